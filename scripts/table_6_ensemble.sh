#!/usr/bin/env bash
# Table 6: SCROLL and ENS on splits and on the Gaussian schedule. 150 runs; those that have rows are skipped.
# On two cores a run with the shipped weights takes a minute; those with the ResNet50 need its weights, and a
# GPU.
# Arguments are passed on: --seeds 1, --only SCROLL*, --dry_run, --gpus 0,1 (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/table_6_ensemble.yaml "$@"
"$python" scripts/report.py experiments/table_6_ensemble.yaml --collect
