#!/usr/bin/env python3
"""Make all runs of tables and figures: every cell of experiments/*.yaml with every seed, once."""
import sys

import _root  # noqa: F401

from bench.paper.sweep import main

if __name__ == '__main__':
    sys.exit(main())
