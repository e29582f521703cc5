"""SCROLL on the command line: learn from files of features, predict, merge and split what was
learned.

    python -m scroll learn day1.parquet day2.npz -o state.npz   # X, y, in any order
    python -m scroll learn --from 'days/*.parquet' --workers 8 -o state.npz  # each file once
    python -m scroll add state.npz day3.npz -o state.npz        # learn more
    python -m scroll predict state.npz new.npz -o labels.csv    # and accuracy, if there is y
    python -m scroll remove state.npz --samples old.npz -o rest.npz  # f_T as if never seen
    python -m scroll merge 1.npz 2.npz 3.npz -o all.npz         # learners, or statistics
    python -m scroll remove all.npz --minus 2.npz -o rest.npz   # f_T as if 2 never came
    python -m scroll remove state.npz --classes cat dog -o rest.npz  # with known statistics
    python -m scroll show all.npz                               # classes, counts, digest
    python -m scroll export state.npz -o FOLDER                 # weights, certificate
    python -m scroll export state.npz -o model.onnx             # a graph alone
    python -m scroll mammoth PATH                               # --model scroll in a Mammoth

`-o -` of predict is standard output. Of several commands that write one file, one works at a time.

Exit codes: 2 after a one-line error that you can mend; 141 if the output's reader has gone.
"""

import argparse
import functools
import signal
import sys
import warnings
from pathlib import Path

from scroll.commands import ending
from scroll.commands.parser import LineParser
from scroll.ground.errors import InputError

try:
    from scroll.commands import states
    from scroll.commands.mammoth import add_mammoth_command
    from scroll.ground import archive
except ModuleNotFoundError as missing:  # a clone without its packages
    print(
        f'scroll: error: {missing.name} is not installed for {sys.executable}: pip install .',
        file=sys.stderr,
    )
    sys.exit(2)


def _parser() -> argparse.ArgumentParser:
    raw = {
        'formatter_class': functools.partial(
            argparse.RawDescriptionHelpFormatter, width=110, max_help_position=32
        )
    }
    parser = LineParser(prog='python -m scroll', description=__doc__, **raw)
    commands = parser.add_subparsers(dest='command', required=True)

    def command(
        name: str, run, about: str, description: str | None = None, **how
    ) -> argparse.ArgumentParser:
        """Add a command, which `run(args)` carries out; return its parser."""
        out = commands.add_parser(name, help=about, description=description or about, **raw, **how)
        out.set_defaults(run=run)
        return out

    states.add_stream_commands(command)
    states.add_state_commands(command)
    add_mammoth_command(command)
    return parser


def main(words=None) -> int:
    """Run `python -m scroll` with these words, by default those of the command line; return the
    exit code."""
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *about, **how: _say(f'scroll: warning: {message}')
        return ending.flushed('scroll', lambda: _run(words))


def _say(text: str) -> None:
    print(' '.join(text.split()), file=sys.stderr, flush=True)


def _run(words) -> int:
    try:
        args = _parser().parse_args(words)
        out = getattr(args, 'out', None)
        folder = Path(out or '-').absolute().parent
        is_there = folder.exists()
        if out is None or (args.command, out) == ('predict', '-') or args.command == 'export':
            args.run(args)
        else:
            archive.check_target(out)
            with archive.locked(
                out, lambda: _say(f'waiting for another command that writes {out}')
            ):
                args.run(args)
        if not is_there:
            _say(f'made the folder {folder}')
        return 0
    except (InputError, MemoryError) as error:
        _say(f'scroll: error: {error if isinstance(error, InputError) else ending.describe(error)}')
        return 2
    except KeyboardInterrupt:
        _say('scroll: interrupted')
        return 128 + signal.SIGINT


if __name__ == '__main__':
    sys.exit(main())
