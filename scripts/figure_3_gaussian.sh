#!/usr/bin/env bash
# Figure 3: the Gaussian schedule, as a permutation and as published. Seconds; needs CIFAR-10.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/schedule.py plot gaussian gaussian-resample --dataset seq-cifar10 \
    --out results/tables/figure_3_gaussian.png
"$python" scripts/report.py experiments/figure_3_gaussian.yaml
