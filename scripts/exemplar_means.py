#!/usr/bin/env python3
"""How well the buffer's samples of one class stand for the class: herding, random choice, many shuffles."""
import sys

import _root  # noqa: F401

from bench.core.commands import run_command
from bench.paper.exemplar_means import main

if __name__ == '__main__':
    sys.exit(run_command(main))
