"""`python main.py`: one run, from arguments to results."""
from bench.run.building import initialize
from core.commands import run_command


def run(args=None) -> None:
    """One run, from arguments to results."""
    model, dataset, args = initialize(args)             # first: `--help` ends here, and needs no torch
    from bench.run.training import train
    train(model, dataset, args)


def main(args=None) -> int:
    """`run`, as an exit code: 0, or 2 after one line on what the user can mend."""
    return run_command(lambda: run(args))
