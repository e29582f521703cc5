"""`python main.py`: one run, from arguments to results."""
import importlib.util
import os

from bench.run.building import initialize
from core import distributed
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
    distributed.mute_others()
    model, dataset, args = initialize(args)             # first: `--help` ends here, and needs no torch
    from bench.run.training import train
    train(model, dataset, args)
    distributed.leave()


def main(args=None) -> int:
    """`run`; returns 0.

    Raises:
        SystemExit: with the exit code of a run that did not end well, after one line: 2 for what the user can
            mend. So a script that calls this stops where `python main.py` would.
    """
    if code := run_command(lambda: run(args)):
        raise SystemExit(code)
    return 0
