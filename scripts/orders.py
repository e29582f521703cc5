#!/usr/bin/env python3
"""How much the order of the classes matters to a method: easy, hard and random orders, and the worst one."""
import sys

import _root  # noqa: F401

from bench.certify.sensitivity import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
