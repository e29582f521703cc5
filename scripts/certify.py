#!/usr/bin/env python3
"""Certify how far a method depends on the schedule: many schedules, digests, accuracies, one verdict."""
import sys

import _root  # noqa: F401

from bench.certify.command import main
from core.commands import run_command

if __name__ == '__main__':
    sys.exit(run_command(main))
