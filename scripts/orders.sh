#!/usr/bin/env bash
# How far every method depends on the order of the classes, with the backbone `small`: scripts/orders.sh digits (five tasks, |M| = 200,
# two hours of one core) or cifar100 (SCROLL and the online methods, ten tasks, |M| = 500, a dozen hours). Further flags are passed on to
# each study: --orders 5 --seeds 2 (see scripts/orders.py --help). Runs that were made are not made again.
# Some orders have a last batch of one sample, and a step on it is noisy, so incomplete batches of methods that train on the stream are
# dropped.
set -euo pipefail
cd "$(dirname "$0")/.."
dataset=$1
shift
case $dataset in
digits) buffer='--buffer_size 200' more='--drop_last 1' methods='scroll ens gdumb er-ace er-aml ssil mir er der derpp bic icarl agem gem lwf ewc-on sgd' ;;
cifar100) buffer='--buffer_size 500' more='--tasks 10' methods='scroll er-ace ssil er-aml gdumb mir' ;;
esac
for method in $methods; do
    flags="$buffer $more"
    case $dataset-$method in
    digits-scroll) flags='--buffer_size 0' ;;
    digits-ens) flags='' ;;
    digits-gdumb) flags=$buffer ;;
    digits-lwf | digits-ewc-on | digits-sgd) flags="--n_epochs 3 $more" ;;
    digits-er | digits-der* | digits-bic | digits-icarl | digits-*gem) flags="$buffer --n_epochs 3 $more" ;;
    esac
    "${PYTHON:-.venv/bin/python}" scripts/orders.py --dataset "seq-$dataset" --orders 10 --seeds 2 --worst 10 --keep results/orders \
        --model "$method" "$@" --weights small --model_config best $flags
done
