#!/usr/bin/env bash
# One data set, many schedules, one set of digests. Further flags are passed on, for example
#   scripts/schedules_cifar100.sh --buffer_size 200
set -euo pipefail
cd "$(dirname "$0")/.."
run() {
    .venv/bin/python main.py --model scroll --dataset seq-cifar100 --model_config best --non_verbose 1 --notes schedules "$@"
}

for n in 5 10 20 25 50 100; do
    run --n_splits "$n" "$@"
done
run --n_splits 50 --permute_classes 1 "$@"
run --schedule split:50,order=random "$@"
for b in 1 32 1000; do
    run --n_splits 50 --batch_size "$b" "$@"
done
run --schedule iid "$@"
run --schedule split:50,batch=32 "$@"
