#!/usr/bin/env bash
# The online methods on CIFAR-10, five tasks of two classes, |M| = 500, beside SCROLL: each image once. About an hour on one core a
# seed; further flags are passed on to each run.
set -euo pipefail
cd "$(dirname "$0")/.."
run() { ${PYTHON:-.venv/bin/python} main.py --dataset seq-cifar10 --n_splits 5 --non_verbose 1 --notes baselines --model "$@"; }

for seed in ${SEEDS:-0}; do
    for method in er-ace ssil mir er-aml gdumb scroll; do
        run $method --buffer_size 500 --seed "$seed" "$@"
    done
    run ens --seed "$seed" "$@"
done
