#!/usr/bin/env bash
# Table 1: CIFAR-10 in 5 and CIFAR-100 in 10 tasks: 11 methods and joint training, three buffer sizes. 340
# runs; those that have rows are skipped. On two cores a run of SCROLL takes 1 to 8 minutes, of an online
# method 2 to 30, of an offline one about 50 times that.
# Arguments are passed on: --seeds 1, --only SCROLL*, --dry_run, --gpus 0,1 (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/table_1_cifar.yaml "$@"
"$python" scripts/report.py experiments/table_1_cifar.yaml --collect
