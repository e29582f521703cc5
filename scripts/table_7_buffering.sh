#!/usr/bin/env bash
# Table 7: which samples the buffer keeps. 80 runs. On two cores a run takes 1 to 8 minutes.
exec "$(dirname "$0")/_experiment.sh" table_7_buffering "$@"
