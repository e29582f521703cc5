#!/usr/bin/env bash
# i-Blurry and Si-Blurry of CIFAR-100: five online methods, SCROLL and its heads, five seeds. 120 runs; those that have rows are
# skipped. SCROLL's take half an hour of one core, the others 5 or 6 minutes each, MIR's 10: some six hours in all.
# Arguments are passed on: --seeds 1, --only 'SCROLL*', --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/blurry.yaml "$@"
"$python" scripts/report.py experiments/blurry.yaml --collect
