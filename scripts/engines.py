#!/usr/bin/env python3
"""One digest from every engine, and what it costs: rows of docs/engines.md."""
import sys

import _root  # noqa: F401

from bench.speed.engines import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
