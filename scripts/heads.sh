#!/usr/bin/env bash
# f_T by head: 14 heads, three data sets, two backbones. 252 runs of 10 to 120 seconds each, from cached
# features.
exec "$(dirname "$0")/_experiment.sh" heads "$@"
