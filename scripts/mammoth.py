#!/usr/bin/env python3
"""What of a Mammoth checkout runs here, and how our methods compare with its own."""
import _root

from bench.checkout import main

_root.run(main)
