#!/usr/bin/env bash
# Table 2: miniImageNet in 10 tasks: 11 methods and joint training, two buffer sizes. 115 runs; those that
# have rows are skipped. On two cores a run of SCROLL takes 1 to 3 minutes, of an online method about 10, of
# an offline one 10 to 20 times that.
# Arguments are passed on: --seeds 1, --only SCROLL*, --dry_run, --gpus 0,1 (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/table_2_miniimagenet.yaml "$@"
"$python" scripts/report.py experiments/table_2_miniimagenet.yaml --collect
