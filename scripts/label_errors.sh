#!/usr/bin/env bash
# How many wrong labels out-of-sample scores find. 18 runs of 12 to 25 seconds each.
exec "$(dirname "$0")/_experiment.sh" label_errors "$@"
