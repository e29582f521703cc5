#!/usr/bin/env bash
# What weights are worth: f_T by ridge (lambda from the statistics alone) and by nearest centroid on the test
# sets of three data sets. Arguments: names or files of weights. Minutes for each, once its features are in
# the cache a minute.
#   scripts/weights_table.sh compact wide
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
notes="weights, $(date +%Y%m%d-%H%M%S)"
for weights in "$@"; do
    for dataset in seq-cifar10 seq-cifar100 seq-miniimg; do
        for predictor in "ridge --ridge_lambda auto" ncc; do
            "$python" main.py --model scroll --dataset $dataset --model_config best --schedule iid \
                --weights "$weights" --buffer_size 0 \
                --predictor $predictor --non_verbose 1 --notes "$notes" > /dev/null
        done
    done
done
for dataset in seq-cifar10 seq-cifar100 seq-miniimg; do
    "$python" scripts/show.py data/results/class-il/$dataset/scroll/mean_accs.csv \
        dataset weights predictor online_accuracy ridge_lambda_used psi_digest --where "notes=$notes"
done
