#!/usr/bin/env python3
"""Renew the tables and the picture of README.md and docs/ from committed rows."""
import _root

from bench.paper.documents import main

_root.run(main)
