#!/usr/bin/env python3
"""Check a certificate under many ways to compute: threads, instructions, libraries, batches, layouts."""
import _root

_root.run('bench.certify.settings')
