#!/usr/bin/env python3
"""A schedule of a data set: as text, as a picture, or whether it is sound."""

import _root

_root.run('bench.cli.schedule')
