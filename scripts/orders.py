#!/usr/bin/env python3
"""How much the order of the classes matters to a method: easy, hard and random orders, and the
worst one.
"""

import _root

_root.run('bench.certify.sensitivity')
