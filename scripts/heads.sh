#!/usr/bin/env bash
# f_T by head: 14 heads, three data sets, two backbones. 252 runs of 10 to 120 seconds each, from cached features; those that
# have rows are skipped.
# Arguments are passed on: --seeds 1, --only '*/compact*', --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/heads.yaml "$@"
"$python" scripts/report.py experiments/heads.yaml --collect
