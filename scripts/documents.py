#!/usr/bin/env python3
"""Make the tables and the picture of README.md and docs/ anew from committed rows."""
import sys

import _root  # noqa: F401

from bench.core.commands import run_command
from bench.paper.documents import main

if __name__ == '__main__':
    sys.exit(run_command(main))
