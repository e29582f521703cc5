#!/usr/bin/env python3
"""Make all runs of tables and figures: every cell of experiments/*.yaml with every seed, once."""
import _root

from bench.paper.sweep import main

_root.run(main)
