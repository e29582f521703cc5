#!/usr/bin/env python3
"""Make the tables and the picture of README.md and docs/ anew from committed rows."""
import sys

import _root  # noqa: F401

from bench.paper.documents import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
