#!/usr/bin/env bash
# What the scripts of experiments call: make the runs that have no row yet, then the page. The first argument
# is the name of a file in experiments/; the others go to scripts/sweep.py: --seeds 1, --only 'SCROLL*',
# --dry_run, --gpus 0,1, --extra -- --weights compact (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py "experiments/$1.yaml" "${@:2}"
"$python" scripts/report.py "experiments/$1.yaml" --collect
