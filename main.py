#!/usr/bin/env python3
"""Train a continual-learning method on a stream, from the command line.

python main.py --model scroll --dataset seq-cifar100 --n_splits 50
"""

import sys

from bench.cli.command import main
from core.plugins import names_of

# where users of Mammoth look for them
__getattr__ = names_of(__name__, parse_args='bench.cli.parsing', initialize='bench.cli.command')

if __name__ == '__main__':
    sys.exit(main())
