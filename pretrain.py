#!/usr/bin/env python3
"""Learn psi: a backbone trained by multi-class classification on classes that no stream has; `--help` says how."""
import sys

from bench.core.commands import run_command
from bench.pretraining.command import main

if __name__ == '__main__':
    sys.exit(run_command(main))
