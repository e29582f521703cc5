#!/usr/bin/env python3
"""Models and data sets of a Mammoth checkout: which run here; our methods next to its own."""

import _root

_root.run('bench.checkout')
