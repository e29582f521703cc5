"""A run's losses and accuracies to Weights & Biases, which is not imported unless asked for."""
import importlib.util

from scroll.errors import InputError


def check_tracking(args) -> None:
    """InputError, before any work, if what is asked for is not installed."""
    if not args.nowand and importlib.util.find_spec('wandb') is None:
        raise InputError('--wandb_entity: the package wandb is not installed; pip install wandb, or leave '
                         'the flag out')


class Tracker:
    """Writes losses as a task is learned and accuracies after it, under Mammoth's names."""

    def __init__(self, args):
        self.run = None
        if not args.nowand:
            import wandb
            try:
                self.run = wandb.init(entity=args.wandb_entity, project=args.wandb_project,
                                      name=args.wandb_name, config={k: str(v) for k, v in vars(args).items()})
            except wandb.Error as error:
                raise InputError(f'--wandb_entity: Weights & Biases cannot be used ({error}); '
                                 'see `wandb login`, or give --nowand 1') from error

    def log(self, **values: float) -> None:
        """Numbers by name."""
        if self.run is not None:
            self.run.log(values)

    def log_accuracies(self, class_il: list, task_il: list, dataset, suffix: str = '') -> None:
        """Accuracies on the tasks so far, percent."""
        values, domain = dict(Task=dataset.c_task), dataset.SETTING == 'domain-il'
        for name, accuracies in {'domain' if domain else 'class': class_il, 'task': task_il}.items():
            if not (domain and name == 'task'):
                values[f'RESULT_{name}_mean_accs{suffix}'] = sum(accuracies) / len(accuracies)
                for i, accuracy in enumerate(accuracies, 1):
                    values[f'RESULT_{name}_acc_{i}{suffix}'] = accuracy
        self.log(**values)

    def finish(self, row: dict) -> None:
        """The numbers of the results row; nothing can be written afterwards."""
        if self.run is not None:
            self.log(**{f'FINAL_{k}': v for k, v in row.items() if isinstance(v, (int, float))})
            self.run.finish()
