#!/usr/bin/env python3
"""Train a continual-learning method on a stream, from the command line.

python main.py --model scroll --dataset seq-cifar100 --n_splits 50
"""

import sys

from bench.cli.command import initialize, main, parse_args

__all__ = ['initialize', 'main', 'parse_args']  # where users of Mammoth look for them

if __name__ == '__main__':
    sys.exit(main())
