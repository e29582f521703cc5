"""What `scripts/bench.py` measures: each module a few stages, each function one or more lines of its table."""
