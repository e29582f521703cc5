#!/usr/bin/env python3
"""How well the buffer's samples of a class stand for the class: herding, random choice, many shuffles."""
import _root

from bench.paper.exemplar_means import main

_root.run(main)
