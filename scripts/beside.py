#!/usr/bin/env python3
"""SCROLL beside what others keep and fit, on requests to add, merge and remove: part of `make bench`."""
import sys

import _root  # noqa: F401

from bench.speed.beside import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
