"""Mammoth's logger, in front of our results files (`core.rows`), for files
that keep their own record of a run."""
import json
from types import SimpleNamespace

import numpy as np

from core.environment import results_folder
from core.rows import append_row
from utils import metrics


class Logger:
    """Collects accuracies task by task; `write` adds a row to the results file,
    for class-il one below task-il, too.

    Args:
        args: of the run. setting, dataset_name, model_name: parts of the results folder.

    Attributes:
        rows: setting -> columns so far. Arguments of the methods come in pairs (class-il, task-il); `which`
            says which of them counts in a setting.
    """

    def __init__(self, args, setting: str, dataset_name: str, model_name: str):
        self.args, self.dataset, self.model = args, dataset_name, model_name
        self.which = settings(SimpleNamespace(SETTING=setting))
        self.rows, self.means = {name: {} for name in self.which}, {name: [] for name in self.which}

    def _each(self, class_il, task_il) -> list:
        """(setting, its value) pairs."""
        return [(setting, (class_il, task_il)[which]) for setting, which in self.which.items()]

    def log(self, mean_acc) -> None:
        """Mean accuracy after the next task, percent: a number, or (class-il, task-il)."""
        for setting, value in self._each(*(mean_acc if np.ndim(mean_acc) else (mean_acc, mean_acc))):
            self.means[setting].append(float(value))
            self.rows[setting][f'task{len(self.means[setting])}'] = round(float(value), 4)

    def log_fullacc(self, accs) -> None:
        """(class-il, task-il) accuracies on each task after the last one."""
        for setting, values in self._each(*accs):
            self.rows[setting]['accuracy_per_task'] = json.dumps([round(float(v), 4) for v in values])

    def add_bwt(self, results, results_mask_classes) -> None:
        """Backward transfer, from R[i][j] with and without the classes of other tasks."""
        for setting, R in self._each(results, results_mask_classes):
            self.rows[setting]['backward_transfer'] = metrics.backward_transfer(R)

    def add_forgetting(self, results, results_mask_classes) -> None:
        """Forgetting, from the same."""
        for setting, R in self._each(results, results_mask_classes):
            self.rows[setting]['forgetting'] = metrics.forgetting(R)

    def add_fwt(self, results, accs, results_mask_classes, accs_mask_classes) -> None:
        """Forward transfer: rows of R here end with the accuracy on the next task; accs:
        before any training, of each task."""
        for setting, (R, untrained) in self._each((results, accs), (results_mask_classes, accs_mask_classes)):
            before = [row[i + 1] for i, row in enumerate(R[:-1])]
            self.rows[setting]['forward_transfer'] = metrics.forward_transfer(before, untrained[1:])

    def write(self, args=None) -> list:
        """Add the rows, with all arguments (a Namespace or a dict), unless
        `--disable_log 1`; returns the files."""
        if getattr(self.args, 'disable_log', False):
            return []
        args = self.args if args is None else args
        arguments = {k: v for k,
                     v in (args if isinstance(args, dict) else vars(args)).items() if k != 'class_order'}
        paths = []
        for setting, row in self.rows.items():
            folder = results_folder(SimpleNamespace(**{**vars(self.args), 'dataset': self.dataset,
                                                       'model': self.model}), setting)
            average = dict(average_incremental_accuracy=metrics.mean(self.means[setting]))
            paths.append(append_row(folder,
                                    row | average | {k: v for k, v in arguments.items() if k not in row}))
        return paths


def log_accs(args, logger, accs, t: int, setting: str, epoch=None, prefix: str = 'RESULT',
             future: bool = False) -> None:
    """Print the accuracies (class-il, task-il) after task `t`, from 0, and unless it is
    within the task (`epoch`) log them.

    Args:
        logger: a `Logger` or None. prefix: accepted for files written for Mammoth.
        future: of tasks still to come; printed as such, not logged.
    """
    what, within = 'Future Accuracy' if future else 'Accuracy', '' if epoch is None else f' (epoch {epoch})'
    print_accuracies(*accs, SimpleNamespace(SETTING=setting, args=args), within, what, when=t + 1)
    if logger is not None and epoch is None and not future:
        logger.log([metrics.mean(values) for values in accs])
        logger.log_fullacc(accs)


def settings(dataset) -> dict:
    """setting -> which of (class-il, task-il) accuracies counts there; one results file each."""
    known = {'class-il': {'class-il': 0, 'task-il': 1}, 'task-il': {'task-il': 1}}
    return known.get(dataset.SETTING, {dataset.SETTING: 0})


def print_accuracies(class_il, task_il, dataset, epoch: str = '', what: str = 'Accuracy', when=None) -> None:
    """Mammoth's line after an evaluation; with `--raw_accuracies` its second one, too."""
    shown = ({'Domain-IL': class_il} if dataset.SETTING == 'domain-il'
             else {'Class-IL': class_il, 'Task-IL': task_il})
    head = f'{what}{epoch} for {when or dataset.c_task + 1} task(s):'
    args = getattr(dataset, 'args', None)
    if getattr(args, 'joint', 0):
        head = f'Joint {what}{epoch}:'
    print(f'{head} \t ' + ' \t '.join(f'[{name}]: {np.mean(values):.2f} %' for name, values in shown.items()),
          flush=True)
    if getattr(args, 'raw_accuracies', False):
        raw = ' | '.join(f'{name} {np.round(values, 2).tolist()}' for name, values in shown.items())
        print(f'\tRaw accuracy values: {raw}', flush=True)
