#!/usr/bin/env bash
# From f_T to f* by head, as the paper goes and by cross-validation within the buffer: 168 runs of half a
# minute to three on CIFAR-100.
exec "$(dirname "$0")/_experiment.sh" heads_adapted "$@"
