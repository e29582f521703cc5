"""`python main.py`: one run, from arguments to results."""

from bench.run.building import initialize
from core.commands import run_command


def run(args=None) -> None:
    """One run, from arguments to results."""
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
