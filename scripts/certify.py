#!/usr/bin/env python3
"""Certify how far a method depends on the schedule: many schedules, digests, accuracies, one verdict."""
import _root

from bench.certify.command import main

_root.run(main)
