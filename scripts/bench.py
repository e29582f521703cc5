#!/usr/bin/env python3
"""Speed and memory as ratios, both sides of each measured in turn in one process: `make bench`."""
import sys

import _root  # noqa: F401

from bench.speed.command import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
