#!/usr/bin/env python3
"""Tables and figures from our own rows, compared with the paper's values; what they say of its claims."""
import _root

from bench.paper.report import main

_root.run(main)
