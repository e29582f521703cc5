"""`python main.py`: one run, from arguments to results."""

from bench.cli.parsing import parse_args
from bench.run import building
from core.commands import run_command


def initialize(args=None) -> tuple:
    """(model, dataset, args) of a run. args: parsed ones; default: those of the command line."""
    return building.initialize(parse_args() if args is None else args)


def run(args=None) -> None:
    """Train a run, from arguments to results."""
    model, dataset, args = initialize(args)  # first: `--help` ends here, and needs no torch
    from bench.run.training import train

    train(model, dataset, args)


def main(args=None) -> int:
    """`run`; returns 0. SystemExit: with the exit code of a run that did not end well, after one
    line: 2 for what the user can mend. So a script that calls this stops where `python main.py`
    would."""
    if code := run_command(lambda: run(args)):
        raise SystemExit(code)
    return 0
