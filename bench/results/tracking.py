"""A run's accuracies to Weights & Biases or TensorBoard, neither imported unless asked for."""
import importlib.util

from scroll.errors import InputError


def wanted(args) -> list:
    """Which trackers the flags ask for."""
    return ['wandb'] * (not args.nowand) + ['tensorboard'] * bool(args.tensorboard)


def check_tracking(args) -> None:
    """InputError, before any work, if what is asked for is not installed."""
    for name in wanted(args):
        if importlib.util.find_spec(name) is None:
            flag = dict(wandb='--wandb_entity').get(name, f'--{name}')
            raise InputError(f'{flag}: the package {name} is not installed; pip install {name}, or leave the '
                             'flag out')


class Tracker:
    """Writes losses as a task is learned and accuracies after it, under Mammoth's names.

    Args:
        folder: of TensorBoard's files.
    """

    def __init__(self, args, folder):
        self.wandb = self.board = None
        if 'wandb' in wanted(args):
            self.wandb = _start_wandb(args)
        if 'tensorboard' in wanted(args):
            from torch.utils.tensorboard import SummaryWriter
            self.board = SummaryWriter(str(folder))

    def log(self, values: dict, step: int) -> None:
        """Numbers by name; for TensorBoard at this step."""
        if self.wandb is not None:
            self.wandb.log(values)
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, step)

    def log_accuracies(self, class_il: list, task_il: list, dataset, suffix: str = '') -> None:
        """Accuracies on the tasks so far, percent."""
        shown = (dict(domain=class_il) if dataset.SETTING == 'domain-il'
                 else {'class': class_il, 'task': task_il})
        values = {}
        for name, accuracies in shown.items():
            values[f'RESULT_{name}_mean_accs{suffix}'] = sum(accuracies) / len(accuracies)
            values |= {f'RESULT_{name}_acc_{i + 1}{suffix}': accuracy
                       for i, accuracy in enumerate(accuracies)}
        self.log({**values, 'Task': dataset.c_task}, dataset.c_task + 1)

    def finish(self, row: dict) -> None:
        """The numbers of the results row; nothing can be written afterwards."""
        if self.wandb is not None:
            self.wandb.log({f'FINAL_{k}': v for k, v in row.items() if isinstance(v, (int, float))})
            self.wandb.finish()
        if self.board is not None:
            self.board.close()


def _start_wandb(args):
    import wandb
    try:
        return wandb.init(entity=args.wandb_entity, project=args.wandb_project, name=args.wandb_name,
                          config={k: str(v) for k, v in vars(args).items()})
    except wandb.Error as error:
        raise InputError(f'--wandb_entity: Weights & Biases cannot be used ({" ".join(str(error).split())}); '
                         'see `wandb login`, or give --nowand 1') from error
