#!/usr/bin/env python3
"""Train a continual-learning method on a stream, from the command line.

    python main.py --model scroll --dataset seq-cifar100 --n_splits 50
"""
import sys

from bench.cli.command import main


def __getattr__(name: str):
    """Mammoth's `parse_args` and `initialize`, where its users look for them."""
    if name == 'parse_args':
        from bench.cli.parsing import parse_args as found
    elif name == 'initialize':
        from bench.run.building import initialize as found
    else:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return found


if __name__ == '__main__':
    sys.exit(main())
