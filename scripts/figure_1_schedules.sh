#!/usr/bin/env bash
# Figure 1: one data set under four schedules. Seconds; needs CIFAR-10.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/schedule.py plot split:5 --dataset seq-cifar10 --out results/tables/figure_1_schedules-split.png
"$python" scripts/schedule.py plot blurry --dataset seq-cifar10 --out results/tables/figure_1_schedules-blurry.png
"$python" scripts/schedule.py plot recurring:5 --dataset seq-cifar10 --out results/tables/figure_1_schedules-recurring.png
"$python" scripts/schedule.py plot iid --dataset seq-cifar10 --out results/tables/figure_1_schedules-iid.png
"$python" scripts/report.py experiments/figure_1_schedules.yaml
