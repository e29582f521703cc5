#!/usr/bin/env bash
# Figure 1: one data set under four schedules. Seconds; needs CIFAR-10.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/schedule.py plot split:5 blurry recurring:5 iid --dataset seq-cifar10 \
    --out results/tables/figure_1_schedules.png
"$python" scripts/report.py experiments/figure_1_schedules.yaml
