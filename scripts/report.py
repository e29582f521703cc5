#!/usr/bin/env python3
"""Tables and figures from our own rows: the paper's beside its values, and what they say of its claims."""
import sys

import _root  # noqa: F401

from bench.paper.report import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
