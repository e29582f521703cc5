#!/usr/bin/env bash
# Figure 2 with the backbone `small` and 5 passes over a task for offline methods: 5 methods and SCROLL, four splits, three
# seeds. 72 runs, of which half are of tables 1 and 5, too; those that have rows are skipped. About 5 hours of one core.
# Arguments are passed on: --seeds 1, --only 'SCROLL*', --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/small_figure_2_splits.yaml "$@"
"$python" scripts/report.py experiments/small_figure_2_splits.yaml --collect
