#!/usr/bin/env bash
# f_T by number of random features, 1,000 to 10,000, on CIFAR-100: 54 runs of 10 seconds to 10 minutes each, from cached features;
# those that have rows, also of heads.sh, are skipped.
# Arguments are passed on: --seeds 1, --only '*/compact*', --dry_run (see scripts/sweep.py --help).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
"$python" scripts/sweep.py experiments/heads_curve.yaml "$@"
"$python" scripts/report.py experiments/heads_curve.yaml --collect
