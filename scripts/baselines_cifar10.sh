#!/usr/bin/env bash
# The online methods on CIFAR-10, five tasks of two classes, |M| = 500, beside SCROLL: each image once. About an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
for seed in ${SEEDS:-0}; do
    common="--dataset seq-cifar10 --n_splits 5 --seed $seed --non_verbose 1 $*"
    for method in scroll gdumb er-ace ssil mir er-aml; do
        $python main.py --model $method --buffer_size 500 $common
    done
    $python main.py --model ens $common
done
