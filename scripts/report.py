#!/usr/bin/env python3
"""Tables and figures from our own rows: the paper's beside its values, and what they say of its claims."""
import _root

from bench.paper.report import main

_root.run(main)
