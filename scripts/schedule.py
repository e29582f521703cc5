#!/usr/bin/env python3
"""What a schedule does to a data set: as text, as a picture, or whether it is sound."""
import _root

from bench.cli.schedule import main

_root.run(main)
