#!/usr/bin/env bash
# From f_T to f* by head, as the paper goes and by cross-validation within the buffer: 168 runs of half a minute to three on CIFAR-100;
# those that have rows are skipped.
# Arguments are passed on: --seeds 1, --only '*/compact*', --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/heads_adapted.yaml "$@"
"$python" scripts/report.py experiments/heads_adapted.yaml --collect
