#!/usr/bin/env python3
"""What of a Mammoth checkout runs here, and how our methods compare with its own."""

import _root

_root.run('bench.checkout')
