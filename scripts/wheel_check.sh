#!/usr/bin/env bash
# The library as its users get it: a wheel, in a fresh environment without torch, that learns digits there.
# The wheel is built from a copy, so that no build folder is left behind, and none that was left gets into it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/source"
git ls-files -z pyproject.toml README.md LICENSE exact_torch scroll | xargs -0 cp --parents -t "$folder/source"
"${PYTHON:-python3}" -m venv "$folder/venv"
pip() { "$folder/venv/bin/pip" --quiet --disable-pip-version-check "$@"; }
pip wheel --no-deps --wheel-dir "$folder" "$folder/source"
pip install "$folder"/scroll_cl-*.whl
cp tests/wheel_digits.py "$folder"
cd "$folder"
venv/bin/python -I wheel_digits.py
