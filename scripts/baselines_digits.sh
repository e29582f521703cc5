#!/usr/bin/env bash
# Every method on scikit-learn's digits, five tasks of two classes, |M| = 200, three seeds: the README's table of methods.
# One run after the other; runs whose row exists are made again, so empty the results folder to start anew. About an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
for seed in ${SEEDS:-0 1 2}; do
    common="--dataset seq-digits --seed $seed --non_verbose 1 $*"
    for method in sgd joint lwf ewc-on; do
        $python main.py --model $method $common
    done
    for method in er der derpp bic icarl gem agem gdumb er-ace er-aml ssil mir scroll; do
        $python main.py --model $method --buffer_size 200 $common
    done
    $python main.py --model ens $common
done
