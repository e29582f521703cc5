#!/usr/bin/env python3
"""All that waits for a GPU, in one command that goes on where it was; `--help` says what."""
import sys

import _root  # noqa: F401

from bench.paper.gpu import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
