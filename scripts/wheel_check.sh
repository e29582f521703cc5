#!/usr/bin/env bash
# The library as its users get it: a wheel, in a fresh environment without torch, that learns digits there.
# The wheel is built from a copy, so that no build folder is left behind, and none that was left gets into it.
set -euo pipefail
unset CDPATH            # with it, cd prints and may lead elsewhere
root=$(cd "$(dirname "$0")/.." && pwd)
python=$(command -v "${PYTHON:-python3}") || { echo "wheel_check.sh: PYTHON=${PYTHON:-}: no such command" >&2; exit 2; }
python=$(realpath --no-symlinks "$python")
cd "$root"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/source"
git ls-files -z pyproject.toml README.md LICENSE exact_torch scroll | xargs -0 cp --parents -t "$folder/source"
"$python" -m venv "$folder/venv"
pip() { "$folder/venv/bin/pip" --quiet --disable-pip-version-check "$@"; }
pip wheel --no-deps --wheel-dir "$folder" "$folder/source"
pip install "$folder"/scroll_cl-*.whl
cp tests/wheel_digits.py "$folder"
cd "$folder"
venv/bin/python -I wheel_digits.py
