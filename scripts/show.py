#!/usr/bin/env python3
"""Print chosen columns of a results file as a Markdown table; digests are shortened."""
import sys

import _root  # noqa: F401

from bench.results.show import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
