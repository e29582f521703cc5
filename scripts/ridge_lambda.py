#!/usr/bin/env python3
"""Which lambda ridge should have, by the training data alone: GCV beside exact leave-one-out."""
import sys

import _root  # noqa: F401

from bench.paper.ridge_lambda import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
