"""Lets a command of this folder find the project, whatever folder it is called from, and runs
it.
"""

import multiprocessing
import sys
from importlib import import_module
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)


def run(module: str) -> None:
    """Exit with the code of the `main` of a module; in its worker processes do nothing."""
    if multiprocessing.parent_process() is None:
        from core.commands import run_command

        sys.exit(run_command(lambda: import_module(module).main()))
