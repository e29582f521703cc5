"""SCROLL on the command line: from files of features to labels; what was learned put together or taken apart.

    python -m scroll learn day1.parquet day2.npz -o state.npz            # X, y: any order, any sizes
    python -m scroll learn --from 'days/*.parquet' --engine ray -o state.npz     # or spark, dask
    python -m scroll add state.npz day3.npz -o state.npz                 # goes on
    python -m scroll predict state.npz new.npz -o labels.csv             # and the accuracy, where y is there
    python -m scroll remove state.npz --samples old.npz -o rest.npz      # as if they had never been seen
    python -m scroll merge 1.npz 2.npz 3.npz -o all.npz                  # learners, or statistics
    python -m scroll remove all.npz --minus 2.npz -o rest.npz            # as if 2 had never been seen
    python -m scroll remove state.npz --classes cat dog -o rest.npz      # where what they added is known
    python -m scroll rename state.npz cat=kitten -o renamed.npz          # classes by other names
    python -m scroll unlearn --find FOLDER --samples old.npz             # which files still hold them
    python -m scroll show all.npz                                        # classes, counts, digest
    python -m scroll export state.npz -o FOLDER                          # weights, graphs, a model card
    python -m scroll check FOLDER --state state.npz                      # whether they are what they say
    python -m scroll check proof.json --after new.npz --removed old.npz  # what `unlearn --proof FILE` wrote

`-o -` of predict is standard output. Of several commands that write one file, one works at a time.

Exit code 2 after one line on what can be mended; 1 of `--find` where there are such files, of `check` where
something differs; 141 where the output's reader has gone.
"""
import argparse
import signal
import sys
import warnings

from scroll import archive
from scroll.commands import ending, exports, states, streams
from scroll.commands.parser import LineParser
from scroll.errors import InputError


def _parser() -> argparse.ArgumentParser:
    parser = LineParser(prog='python -m scroll', description=__doc__,
                        formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)

    def command(name: str, run, about: str, description: str = None) -> argparse.ArgumentParser:
        """The parser of a new command, which `run(args)` carries out and gives the exit code of, or None."""
        out = commands.add_parser(name, help=about, description=description or about,
                                  formatter_class=argparse.RawDescriptionHelpFormatter)
        out.set_defaults(run=run)
        return out
    for module in (streams, states, exports):
        module.add_commands(command)
    return parser


def main(words=None) -> int:
    """Exit code of `python -m scroll` with these words, by default those of the command line."""
    with warnings.catch_warnings():
        warnings.showwarning = _say_warning
        return ending.flushed('scroll', lambda: _run(words))


def _say_waiting(path) -> None:
    print(f'waiting for another command that writes {path}', file=sys.stderr, flush=True)


def _say_warning(message, *about, **how) -> None:
    print(f"scroll: warning: {' '.join(str(message).split())}", file=sys.stderr, flush=True)


def _run(words) -> int:
    try:
        args = _parser().parse_args(words)
        out = getattr(args, 'out', None)
        if out is None or (args.command, out) == ('predict', '-') or args.command == 'export':
            return args.run(args) or 0
        archive.check_target(out)
        with archive.locked(out, lambda: _say_waiting(out)):
            return args.run(args) or 0
    except (InputError, MemoryError) as error:
        text = str(error) if isinstance(error, InputError) else ending.describe(error)
        print(f"scroll: error: {' '.join(text.split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print('scroll: interrupted', file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == '__main__':
    sys.exit(main())
