#!/usr/bin/env python3
"""Print chosen columns of a results file as a Markdown table; digests are shortened."""
import _root

_root.run('bench.results.show')
