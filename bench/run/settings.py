"""A run's arguments, frozen into three parts, each for the room that needs it. Mammoth's methods
see `args`, and may change it: so training is frozen for each task."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class _Part:
    @classmethod
    def of(cls, args):
        """Copy the arguments as they are now."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class Stream(_Part):
    """The part of the stream that comes, and what it is judged on."""

    start_from: int
    stop_after: int
    validation: float
    inference_only: bool


@dataclass(frozen=True)
class Training(_Part):
    """How a task is learned."""

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


@dataclass(frozen=True)
class Output(_Part):
    """Measurements, console output and files."""

    disable_log: bool
    non_verbose: bool
    enable_other_metrics: bool
    eval_every: int
    prequential: bool
    savecheck: str
