"""How a task is learned: arguments, frozen for each task, since Mammoth's methods may change theirs."""
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Training:
    """What `bench.cli.flags` says of them."""
    fitting_mode: str
    n_epochs: int
    n_iters: int
    early_stopping_patience: int
    early_stopping_metric: str
    early_stopping_freq: int
    early_stopping_epsilon: float
    scheduler_mode: str
    bn: str
    debug_mode: bool
    eval_epochs: int

    @classmethod
    def of(cls, args):
        """As the arguments are now."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})
