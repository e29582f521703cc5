#!/usr/bin/env python3
"""What a schedule does to a data set: as text, as a picture, or whether it is sound."""
import sys

import _root  # noqa: F401

from bench.cli.schedule import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
