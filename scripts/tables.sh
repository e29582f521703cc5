#!/usr/bin/env bash
# Make tables and figures: the runs that have no row yet, then the pages. Names are those of files in experiments/; flags behind
# them go to scripts/sweep.py: --seeds 1, --only 'SCROLL*', --gpus 0,1, --extra -- --weights compact (scripts/sweep.py --help).
#   scripts/tables.sh table_3_initialisation --seeds 3
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$(ls .venv/bin/python 2> /dev/null || echo python)}    # a venv of your own: its python
files=()
while [[ $# -gt 0 && $1 != -* ]]; do files+=("experiments/$1.yaml"); shift; done
"$python" scripts/sweep.py "${files[@]}" "$@"
"$python" scripts/report.py "${files[@]}" --collect
