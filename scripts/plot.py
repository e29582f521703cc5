#!/usr/bin/env python3
"""A picture of results files: final accuracy, accuracy along the stream, forgetting."""

import _root

_root.run('bench.results.plot')
