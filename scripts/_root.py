"""Lets a command of this folder find the project, whatever folder it is called from, and runs it."""
import multiprocessing
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)


def run(main) -> None:
    """Exit with the code of a command; in its worker processes do nothing."""
    from core.commands import run_command
    if multiprocessing.parent_process() is None:
        sys.exit(run_command(main))
