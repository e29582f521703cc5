#!/usr/bin/env python3
"""Certify how far a method depends on the schedule: many schedules, digests, accuracies, one
verdict.
"""

import _root

_root.run('bench.certify.command')
