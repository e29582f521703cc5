#!/usr/bin/env python3
"""Train a backbone by multi-class classification on classes that no stream has; `--help` says
how.
"""

import sys
from importlib import import_module

from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(lambda: import_module('bench.pretraining.command').main()))
