#!/usr/bin/env python3
"""Features of images, by any network, as a file."""

import _root

_root.run('bench.embedding')
