#!/usr/bin/env python3
"""Check a certificate under many ways to compute: threads, instructions, libraries, batches, layouts."""
import sys

import _root  # noqa: F401

from bench.certify.settings import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
