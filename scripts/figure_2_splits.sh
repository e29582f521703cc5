#!/usr/bin/env bash
# Figure 2: CIFAR-100 in 5 to 50 tasks, six methods. 120 runs. On two cores a run of SCROLL a minute, of an
# online method 3 to 30, of an offline one about 50 times that.
exec "$(dirname "$0")/_experiment.sh" figure_2_splits "$@"
