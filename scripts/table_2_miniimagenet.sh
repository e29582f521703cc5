#!/usr/bin/env bash
# Table 2: miniImageNet in 10 tasks: 11 methods and joint training, two buffer sizes. 115 runs. On two cores a
# run of SCROLL takes 1 to 3 minutes, of an online method about 10, of an offline one 10 to 20 times that.
exec "$(dirname "$0")/_experiment.sh" table_2_miniimagenet "$@"
