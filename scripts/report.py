#!/usr/bin/env python3
"""Tables and figures from our own rows, compared with the paper's values; what they say of its
claims.
"""

import _root

_root.run('bench.paper.report')
