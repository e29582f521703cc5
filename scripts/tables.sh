#!/usr/bin/env bash
# Make tables and figures: the runs that have no row yet, then the pages. Names are those of files in experiments/; flags behind
# them go to scripts/sweep.py: --seeds 1, --only 'SCROLL*', --gpus 0,1, --extra -- --weights compact (scripts/sweep.py --help).
#   scripts/tables.sh table_3_initialisation --seeds 3
set -euo pipefail
unset CDPATH            # with it, cd prints and may lead elsewhere
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$(ls "$root/.venv/bin/python" 2> /dev/null || echo python)}    # a venv of your own: its python
python=$(command -v "$python") || { echo "tables.sh: PYTHON=${PYTHON:-}: no such command" >&2; exit 2; }
python=$(realpath --no-symlinks "$python")
cd "$root"
files=()
while [[ $# -gt 0 && $1 != -* ]]; do files+=("experiments/$1.yaml"); shift; done
"$python" scripts/sweep.py "${files[@]}" "$@"
base=./data/ previous=''
for word in "$@"; do        # rows lie where the runs' own --base_path leads them
    [[ $word != --base_path=* ]] || base=${word#*=}
    [[ $previous != --base_path ]] || base=$word
    previous=$word
done
"$python" scripts/report.py "${files[@]}" --collect --base_path "$base"
