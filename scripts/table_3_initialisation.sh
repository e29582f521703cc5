#!/usr/bin/env bash
# Table 3: which classifier adaptation starts from. 30 runs. On two cores a run takes 1 to 3 minutes.
exec "$(dirname "$0")/_experiment.sh" table_3_initialisation "$@"
