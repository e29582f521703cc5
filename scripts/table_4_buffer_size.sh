#!/usr/bin/env bash
# Table 4: adapters or the whole network, by buffer size. 60 runs; those that have rows are skipped. On two
# cores a run takes 1 to 8 minutes.
# Arguments are passed on: --seeds 1, --only SCROLL*, --dry_run, --gpus 0,1 (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/table_4_buffer_size.yaml "$@"
"$python" scripts/report.py experiments/table_4_buffer_size.yaml --collect
