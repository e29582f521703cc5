#!/usr/bin/env python3
"""Make all runs of tables and figures: every cell of experiments/*.yaml with every seed, once."""

import _root

_root.run('bench.paper.sweep')
