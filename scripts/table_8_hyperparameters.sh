#!/usr/bin/env bash
# Table 8: the grid search, on this bench: values for one backbone from held-out training data. Hours.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/tune.py --dataset seq-cifar100
"$python" scripts/report.py experiments/table_8_hyperparameters.yaml
