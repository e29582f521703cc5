#!/usr/bin/env bash
# Table 6 with the backbone `small`, without the rows of ResNet50. 90 runs of 10 to 30 seconds; those that have rows are skipped.
# Arguments are passed on: --seeds 1, --only 'SCROLL*', --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/small_table_6_ensemble.yaml "$@"
"$python" scripts/report.py experiments/small_table_6_ensemble.yaml --collect
