#!/usr/bin/env bash
# Table 5 with the backbone `small` and 5 passes over a task for offline methods: 11 methods and joint training, three buffer
# sizes, three seeds. 204 runs; those that have rows are skipped. By what single runs take,
# about 4 hours of one core online and 8 offline.
# Arguments are passed on: --seeds 1, --only 'SCROLL*', --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/small_table_5_two_class_splits.yaml "$@"
"$python" scripts/report.py experiments/small_table_5_two_class_splits.yaml --collect
