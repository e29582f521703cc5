#!/usr/bin/env bash
# One certificate, checked in many ways to compute: threads, instructions, libraries, batches, layouts. Each way is a process
# of its own, without a feature cache. Prints a Markdown table; exit code 0 if no line differs anywhere, else 1, 2 if
# nothing could be said. Flags of `certify.py --check` go behind the file; WAYS, a variable, names some of the ways (a glob).
#   scripts/same_everywhere.sh results/certificates/seq-digits.json
#   WAYS='oneDNN*' scripts/same_everywhere.sh results/certificates/seq-digits-f-star.json --adapt 1
set -euo pipefail
unset CDPATH            # with it, cd prints and may lead elsewhere
root=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-$(ls "$root/.venv/bin/python" 2> /dev/null || echo python)}    # a venv of your own: its python
python=$(command -v "$python") || { echo "same_everywhere.sh: PYTHON=${PYTHON:-}: no such command" >&2; exit 2; }
python=$(realpath --no-symlinks "$python")
[ $# -gt 0 ] || { echo 'same_everywhere.sh: give the file of a certificate' >&2; exit 2; }
certificate=$(realpath "$1")
shift
cd "$root"
without_onednn="import sys, torch; torch.backends.mkldnn.set_flags(False); sys.argv[0] = '$root/scripts/certify.py'
sys.path[0] = '$root/scripts'; import runpy; runpy.run_path(sys.argv[0], run_name='__main__')"
worst=0 count=0
check() {       # name of the way, its variables, its flags
    local name=$1 began=$SECONDS said code=0 variables=() program=("$root/scripts/certify.py")
    shift
    # shellcheck disable=SC2254
    case $name in ${WAYS:-*}) ;; *) return 0 ;; esac
    count=$((count + 1))
    while [[ ${1:-} == *=* ]]; do variables+=("$1"); shift; done
    [[ $name == 'no oneDNN'* ]] && program=(-c "$without_onednn")
    local flags=(--non_verbose 1 --feature_cache 0 "${given[@]}" "$@")
    [[ " ${flags[*]} " == *' --device '* ]] || flags+=(--device cpu)
    [[ " ${flags[*]} " == *' --num_threads '* ]] || flags+=(--num_threads 1)
    said=$(env "${variables[@]}" "$python" "${program[@]}" --check "$certificate" "${flags[@]}" 2>&1) || code=$?
    (( code < 2 )) || { tail -n 1 <<< "$said" >&2; exit 2; }        # no certificate, flags that are none, or killed
    echo "| $name | $(tail -n 1 <<< "$said" | sed 's/^ *//') | $((SECONDS - began)) |"
    (( code <= worst )) || worst=$code
}
given=("$@")
printf '| setting | check | seconds |\n|---|---|---|\n'
check 'one thread'
check 'two threads' --num_threads 2
check 'oneDNN held to AVX2' ONEDNN_MAX_CPU_ISA=AVX2
check 'oneDNN held to SSE4.1' ONEDNN_MAX_CPU_ISA=SSE41
check 'torch without vectors' ATEN_CPU_CAPABILITY=default
check 'both of these' ONEDNN_MAX_CPU_ISA=SSE41 ATEN_CPU_CAPABILITY=default
check 'float32, not 8 bits' SCROLL_EIGHT_BIT=0
check 'no oneDNN'
check 'no oneDNN, MKL in compatible mode' MKL_CBWR=COMPATIBLE
check 'OpenBLAS for Nehalem' OPENBLAS_CORETYPE=Nehalem
check 'OpenBLAS for Haswell' OPENBLAS_CORETYPE=Haswell
check 'batches of 7' --embed_chunk 7
check 'batches of 32' --embed_chunk 32
check 'contiguous maps' --channels_last 0
(( count )) || { echo "same_everywhere.sh: WAYS=${WAYS:-}: no such way; they stand at the end of this script" >&2; exit 2; }
exit "$worst"
