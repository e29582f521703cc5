"""Accuracies on the console. Mammoth's `Logger` comes from the user's checkout (`core.mammoth`)."""

import sys

import numpy as np

from core import mammoth


def settings(dataset) -> dict:
    """setting -> which of (class-il, task-il) accuracies counts there; one results file each."""
    known = {'class-il': {'class-il': 0, 'task-il': 1}, 'task-il': {'task-il': 1}}
    return known.get(dataset.SETTING, {dataset.SETTING: 0})


def print_accuracies(class_il, task_il, dataset, epoch: str = '', when=None) -> None:
    """Mammoth's line after an evaluation."""
    shown = (
        {'Domain-IL': class_il}
        if dataset.SETTING == 'domain-il'
        else {'Class-IL': class_il, 'Task-IL': task_il}
    )
    head = f'Accuracy{epoch} for {when or dataset.c_task + 1} task(s):'
    if dataset.args.joint:
        head = f'Joint Accuracy{epoch}:'
    line = f'{head} \t ' + ' \t '.join(
        f'[{name}]: {np.mean(values):.2f} %' for name, values in shown.items()
    )
    print(line, flush=True)
    if mammoth.checkout() and not sys.stderr.isatty():  # scripts made for Mammoth read them there
        print(line, file=sys.stderr, flush=True)
