#!/usr/bin/env python3
"""Tune methods on held-out *training* data, as many trials for each; the values go to `models/config/`."""
import sys

import _root  # noqa: F401

from bench.paper.tune import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
