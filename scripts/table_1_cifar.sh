#!/usr/bin/env bash
# Table 1: CIFAR-10 in 5 and CIFAR-100 in 10 tasks: 11 methods and joint training, three buffer sizes. 340
# runs. On two cores a run of SCROLL takes 1 to 8 minutes, of an online method 2 to 30, of an offline one
# about 50 times that.
exec "$(dirname "$0")/_experiment.sh" table_1_cifar "$@"
