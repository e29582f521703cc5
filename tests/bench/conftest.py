"""Shared by tests of the scripts."""

import sys
from contextlib import contextmanager

import pytest

from bench.certify import trials
from core.commands import run_command


@contextmanager
def killed_at(number: int):
    """Inside, `make orders` and `make certify` are interrupted at this run of a method, once; gives
    the command lines that were begun.
    """
    ran = []
    run_method = trials.run_method

    def until_killed(words):
        ran.append(words)
        if len(ran) == number:
            raise KeyboardInterrupt
        return run_method(words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trials, 'run_method', until_killed)
        yield ran


@pytest.fixture
def on_digits(monkeypatch, capsys, tiny_weights, tmp_path):
    """on_digits(script, *words): (exit code, stdout, stderr) of a script on the digits, with a tiny
    psi.
    """

    def run(script, *words):
        flags = '--dataset', 'seq-digits', '--weights', tiny_weights, '--base_path', tmp_path
        monkeypatch.setattr(
            sys, 'argv', [f'{script.__name__.rpartition(".")[2]}.py', *map(str, (*flags, *words))]
        )
        try:
            code = run_command(script.main)
        except SystemExit as stop:  # argparse's own
            code = stop.code
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def drawn(monkeypatch) -> list:
    """The figures that are saved, once each."""
    from matplotlib.figure import Figure

    figures = []
    original = Figure.savefig

    def save(figure, *args, **options):
        figures.extend([figure] if figure not in figures else [])
        return original(figure, *args, **options)

    monkeypatch.setattr(Figure, 'savefig', save)
    return figures
