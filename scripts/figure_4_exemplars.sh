#!/usr/bin/env bash
# Figure 4: exemplars against random samples, 100 shuffles. Some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/exemplar_means.py --dataset seq-cifar10 --out results/tables/figure_4_exemplars.png
"$python" scripts/report.py experiments/figure_4_exemplars.yaml
