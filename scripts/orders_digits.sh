#!/usr/bin/env bash
# How far every method depends on the order of the classes, on scikit-learn's digits: five tasks, |M| = 200, the backbone `small`.
# Offline methods pass three times over each task. By what single runs take, two hours of one core; runs that were made are not made again.
# Some orders have a last batch of one sample, and a step on it is noisy, so incomplete batches of methods that train on the stream are
# dropped.
# Further flags are passed on to each study: --orders 5 --seeds 2 (see scripts/orders.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
study() {
    "${PYTHON:-.venv/bin/python}" scripts/orders.py --dataset seq-digits --orders 10 --seeds 2 --worst 10 --keep results/orders --model "$@" \
        --weights small --model_config best
}

study scroll "$@" --buffer_size 0
study ens "$@"
study gdumb "$@" --buffer_size 200
for method in er-ace er-aml ssil mir; do
    study $method "$@" --buffer_size 200 --drop_last 1
done
for method in er der derpp bic icarl agem gem; do
    study $method "$@" --buffer_size 200 --n_epochs 3 --drop_last 1
done
for method in lwf ewc-on sgd; do
    study $method "$@" --n_epochs 3 --drop_last 1
done
