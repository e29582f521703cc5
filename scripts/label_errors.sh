#!/usr/bin/env bash
# How many wrong labels out-of-sample scores find. 18 runs of 12 to 25 seconds each; those that have rows are skipped.
# Arguments are passed on: --seeds 1, --only ridge, --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/label_errors.yaml "$@"
"$python" scripts/report.py experiments/label_errors.yaml --collect
