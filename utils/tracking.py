"""A run's accuracies to Weights & Biases or TensorBoard, if asked for. Neither is needed otherwise, nor imported."""
from utils import metrics
from utils.errors import UserError


def wanted(args) -> list:
    """Which trackers the flags ask for."""
    both = args.wandb_entity and args.wandb_project
    if bool(args.wandb_entity) != bool(args.wandb_project):
        raise UserError('--wandb_entity and --wandb_project belong together: give both of them')
    return ['wandb'] * bool(both and not args.nowand) + ['tensorboard'] * bool(args.tensorboard)


def check_tracking(args) -> None:
    """UserError, before any work, if what is asked for is not installed."""
    import importlib.util
    for name in wanted(args):
        if importlib.util.find_spec(name) is None:
            flag = dict(wandb='--wandb_entity').get(name, f'--{name}')
            raise UserError(f'{flag}: the package {name} is not installed; pip install {name}, or leave the flag out')


class Tracker:
    """Writes mean and single accuracies after each task, under Mammoth's names.

    Args:
        folders: results folders by setting; TensorBoard's files go below the first.
    """

    def __init__(self, args, folders: dict):
        self.args, self.wandb, self.board = args, None, None
        names = wanted(args)
        if 'wandb' in names:
            import wandb
            self.wandb = wandb.init(entity=args.wandb_entity, project=args.wandb_project, name=args.wandb_name,
                                    config={k: str(v) for k, v in vars(args).items()})
        if 'tensorboard' in names:
            from torch.utils.tensorboard import SummaryWriter
            self.board = SummaryWriter(str(next(iter(folders.values())) / 'tensorboard'))

    def log(self, record, task: int) -> None:
        """Accuracies after a task, from 0."""
        values = {}
        for name, R in (('class', record.class_il), ('task', record.task_il)):
            values[f'RESULT_{name}_mean_accs'] = metrics.mean(R[-1])
            values |= {f'RESULT_{name}_acc_{i + 1}': accuracy for i, accuracy in enumerate(R[-1])}
        if self.wandb is not None:
            self.wandb.log({**values, 'Task': task})
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, task + 1)

    def finish(self, row: dict) -> None:
        """The final row."""
        if self.wandb is not None:
            self.wandb.log({f'FINAL_{k}': v for k, v in row.items() if isinstance(v, (int, float))})
            self.wandb.finish()
        if self.board is not None:
            self.board.close()
