#!/usr/bin/env bash
# Every method on scikit-learn's digits, five tasks of two classes, |M| = 200, three seeds.
# Offline methods pass three times over each task. An hour or so on one core; further flags are passed on to
# each run.
set -euo pipefail
cd "$(dirname "$0")/.."
run() {
    ${PYTHON:-.venv/bin/python} main.py --dataset seq-digits --non_verbose 1 --notes baselines --model "$@"
}

for seed in ${SEEDS:-0 1 2}; do
    for method in scroll er-ace er-aml ssil mir gdumb; do
        run $method --buffer_size 200 --seed "$seed" "$@"
    done
    run ens --seed "$seed" "$@"
    for method in er der derpp bic icarl agem gem; do
        run $method --buffer_size 200 --n_epochs 3 --seed "$seed" "$@"
    done
    for method in sgd joint lwf ewc-on; do
        run $method --n_epochs 3 --seed "$seed" "$@"
    done
done
