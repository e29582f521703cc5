"""`python main.py`: one run, from arguments to results."""
import importlib.util
import os

from bench.run.building import initialize
from core.commands import run_command
from core.plugins import ROOT


def _environment() -> None:
    """Variables from the file `.env` (keys of Weights & Biases), if python-dotenv is installed."""
    if os.environ.get('MAMMOTH_TEST') != '1' and importlib.util.find_spec('dotenv'):
        from dotenv import load_dotenv
        load_dotenv(ROOT / '.env')


def run(args=None) -> None:
    """One run, from arguments to results."""
    _environment()
    model, dataset, args = initialize(args)             # first: `--help` ends here, and needs no torch
    from bench.run.training import train
    train(model, dataset, args)


def main(args=None) -> int:
    """`run`, as an exit code: 0, or 2 after one line on what the user can mend."""
    return run_command(lambda: run(args))
