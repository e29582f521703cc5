#!/usr/bin/env python3
"""How well the buffer's samples of a class stand for the class: herding, random choice, many shuffles."""
import _root

_root.run('bench.paper.exemplar_means')
