#!/usr/bin/env bash
# All that waits for a GPU. The same command again resumes what was stopped: a checkpoint or a row is not made twice.
#   scripts/gpu.sh                                  # every stage
#   timeout 9m scripts/gpu.sh integers table_2      # some of: integers resnet12 table_2 resnet18 table_1
# integers: committed certificates, checked on the GPU. resnet12, resnet18: the paper's backbones; table_2: with that ResNet12.
# table_1: its offline baselines. GPU, GPUS (one that runs share several times), SEEDS, OUT (weights) are variables.
set -euo pipefail
unset CDPATH            # with it, cd prints and may lead elsewhere
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(command -v "${PYTHON:-$root/.venv/bin/python}") || { echo "gpu.sh: ${PYTHON:-$root/.venv/bin/python}: no such command" >&2; exit 2; }
python=$(realpath --no-symlinks "$python")
cd "$root"
gpu=${GPU:-0}
out=${OUT:-data/gpu}
mkdir -p "$out"
sweep() { "$python" scripts/sweep.py "$1" --seeds "${SEEDS:-3}" --gpus "${GPUS:-$gpu,$gpu,$gpu,$gpu,$gpu,$gpu}" "${@:2}"; }
for stage in ${*:-integers resnet12 table_2 resnet18 table_1}; do
    echo "== $stage"
    case $stage in
    integers)
        for file in results/certificates/seq-{digits,cifar10,cifar100,miniimg}.json; do
            "$python" scripts/certify.py --check "$file" --non_verbose 1 --feature_cache 0 --device "$gpu"; done ;;
    resnet12)
        [ -f "$out/resnet12.safetensors" ] || "$python" pretrain.py --out "$out/resnet12.safetensors" --width 64 \
            --input_size 84 --epochs 100 --backbone resnet12 --leave_out none --device "$gpu" ;;
    resnet18)
        [ -f "$out/resnet18-84.safetensors" ] || "$python" pretrain.py --out "$out/resnet18-84.safetensors" \
            --leave_out cifar100 cifar10 --width 64 --input_size 84 --epochs 60 --device "$gpu" ;;
    table_2)
        sed "s|^flags: {|&weights: $out/resnet12.safetensors, |" experiments/table_2_miniimagenet.yaml > "$out/table_2_resnet12.yaml"
        sweep "$out/table_2_resnet12.yaml"
        "$python" scripts/report.py "$out/table_2_resnet12.yaml" --collect ;;
    table_1)
        sweep experiments/table_1_cifar.yaml --only ER --only BIC --only DER --only 'DER++'
        "$python" scripts/report.py experiments/table_1_cifar.yaml --collect ;;
    *) echo "gpu.sh: $stage: no such stage" >&2; exit 2 ;;
    esac
done
