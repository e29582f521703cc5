#!/usr/bin/env bash
# Table 5: CIFAR-10 in 10 and CIFAR-100 in 50 tasks: 11 methods and joint training, three buffer sizes. 340
# runs. On two cores a run of SCROLL takes 1 to 8 minutes, of an online method 3 to 30, of an offline one
# about 50 times that.
exec "$(dirname "$0")/_experiment.sh" table_5_two_class_splits "$@"
