#!/usr/bin/env python3
"""Speed and memory as ratios, both sides of each measured in turn in one process: `make bench`."""
import _root

_root.run('bench.speed')
