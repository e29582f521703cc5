#!/usr/bin/env python3
"""Renew the tables and the picture of README.md and docs/ from committed rows."""

import _root

_root.run('bench.paper.documents')
