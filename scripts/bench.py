#!/usr/bin/env python3
"""Speed as ratios, both sides of each measured in turn in one process: `make bench`."""

import _root

_root.run('bench.speed')
