#!/usr/bin/env bash
# How far SCROLL and the online methods depend on the order of the classes of CIFAR-100: ten tasks, |M| = 500, the backbone `small`.
# By what single runs take, a dozen hours of one core, half of them MIR's; runs that were made are not made again. The methods, if not
# all, are in METHODS.
# Further flags are passed on to each study: --orders 5 --seeds 2 (see scripts/orders.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
for method in ${METHODS:-scroll er-ace ssil er-aml gdumb mir}; do
    "${PYTHON:-.venv/bin/python}" scripts/orders.py --dataset seq-cifar100 --tasks 10 --orders 10 --seeds 2 --worst 10 \
        --keep results/orders --model "$method" "$@" --weights small --model_config best --buffer_size 500
done
