#!/usr/bin/env bash
# f_T by number of random features, 1,000 to 10,000, on CIFAR-100: 54 runs of 10 seconds to 10 minutes each,
# from cached features.
exec "$(dirname "$0")/_experiment.sh" heads_curve "$@"
