#!/usr/bin/env python3
"""How well the buffer's samples of a class stand for the class: herding, random choice, many shuffles."""
import sys

import _root  # noqa: F401

from bench.paper.exemplar_means import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
