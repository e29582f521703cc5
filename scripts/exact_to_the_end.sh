#!/usr/bin/env bash
# Exact to the end: f*, not only f_T, has the same bits under every schedule if the buffer is chosen by hash
# (`hash`), and under all that bring classes whole if it is herded (`herding`). CIFAR-100, |M| = 500; tables
# of digests, then how many there are. Two to three minutes a run on two cores, an hour in all; further flags
# are passed on, for example
#   scripts/exact_to_the_end.sh --num_threads 1
# Digests compare on one machine and one number of threads: adaptation is floating-point arithmetic in a fixed
# order.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
notes="exact to the end, $(date +%Y%m%d-%H%M%S)"
run() {
    "$python" main.py --model scroll --dataset seq-cifar100 --model_config best --buffer_size 500 --non_verbose 1 \
        --notes "$notes" "$@"
}
show() {    # show <strategy> <setting> <column>...: rows of this call
    "$python" scripts/show.py "data/results/$2/seq-cifar100/scroll/mean_accs.csv" "${@:3}" \
        --where "notes=$notes" "buffer_strategy=$1"
}

whole="split:5 split:20 split:50 split:100 split:50,order=random iid"
pieces="split:50,batch=32 iid,batch=1000 iid,batch=4 gaussian blurry siblurry recurring:10"
for schedule in $whole $pieces; do
    run --buffer_strategy hash --schedule "$schedule" "$@"
done
for schedule in $whole; do
    run --buffer_strategy herding --schedule "$schedule" "$@"
done
run --buffer_strategy herding --n_splits 50 --permute_classes 1 --batch_size 1000 "$@"

columns="schedule permute_classes batch_size online_accuracy adapted_accuracy statistics_digest online_digest"
columns="$columns buffer_digest adapted_digest"
for table in "hash class-il" "hash general-continual" "herding class-il"; do
    echo "# $table"
    show $table $columns
done
for tables in "hash class-il general-continual" "herding class-il"; do
    read -r strategy settings <<< "$tables"
    count=$(for setting in $settings; do
        show "$strategy" "$setting" adapted_digest | tail -n +3
    done | sort -u | wc -l)
    echo "$strategy: $count digest(s) of f*"
done
