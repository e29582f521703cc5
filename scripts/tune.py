#!/usr/bin/env python3
"""Tune methods on held-out *training* data, the same number of trials for each; the values go to
`models/config/`.
"""

import _root

_root.run('bench.paper.tune')
