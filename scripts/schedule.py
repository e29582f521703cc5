#!/usr/bin/env python3
"""A picture of schedules of a data set."""

import _root

_root.run('bench.cli.schedule')
