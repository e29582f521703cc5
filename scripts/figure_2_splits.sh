#!/usr/bin/env bash
# Figure 2: CIFAR-100 in 5 to 50 tasks, six methods. 120 runs; those that have rows are skipped. On two cores
# a run of SCROLL a minute, of an online method 3 to 30, of an offline one about 50 times that.
# Arguments are passed on: --seeds 1, --only SCROLL*, --dry_run, --gpus 0,1 (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/figure_2_splits.yaml "$@"
"$python" scripts/report.py experiments/figure_2_splits.yaml --collect
