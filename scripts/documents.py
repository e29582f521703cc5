#!/usr/bin/env python3
"""Make the tables and the picture of README.md and docs/ anew from committed rows."""
import _root

from bench.paper.documents import main

_root.run(main)
