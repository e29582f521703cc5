"""The contract every method fulfils: Mammoth's `ContinualModel`.

A method file defines a subclass with a `NAME` and an `observe`; the training loop
(`bench.run.training`) calls, for each task, `begin_task`, then for each epoch `begin_epoch`,
`observe` per batch, `end_epoch`, then `end_task`. The smallest method is `models/sgd.py`.
"""

import inspect
from contextlib import contextmanager, nullcontext, suppress

import torch
from torch import nn

from core.environment import get_device, warn_once
from core.forks import counts_from_one, inherited
from core.loss_watch import LossWatch
from core.plugins import is_shipped
from scroll.adaptation.optimisers import eager
from scroll.ground.errors import InputError
from scroll.ground.progress import track
from utils.augmentations import for_batches
from utils.batch_norm import networks_of, training_mode


class ContinualModel(nn.Module):
    """Base class of all methods.

    Class attributes:
        NAME: its name for `--model`.
        COMPATIBILITY: settings it is made for; by default all but 'cssl'.
        FLAGS: name -> `core.arguments.Flag`, of its own.
        DEFAULTS: name -> default, of flags that all methods have.
        AVAIL_OPTIMS: choices of `--optimizer`.
        RAW_STREAM: inputs of `observe` and `forward` are un-augmented uint8 images (B, H, W, C).
        RAW_NOT_AUG: un-augmented images of `observe` are uint8 (B, H, W, C), for a
            `Buffer(raw=True)`.
        ONLINE: made to see every sample once; any other `--n_epochs` is refused.
        TRANSIENT: names of attributes that a checkpoint leaves out.
        REFUSED_FLAGS: flag -> why; a run that gives one on the command line ends before any work.

    Attributes, ready after `super().__init__`:
        net: a network, or an object that holds some (`utils.batch_norm.networks_of`).
        loss, args, transform, dataset, device, opt.
        N_CLASSES (num_classes), N_TASKS (n_tasks), SETTING: of the data set.
        cpt (classes_per_task): int, or list where tasks differ.
        current_task: 0, counted up when a task ends.
        n_seen_classes, n_past_classes, n_classes_current_task, n_remaining_classes: -1 before the
            first task.
        task_iteration, epoch_iteration: batches seen in this task and epoch.
        psi_digest: hex SHA-256 of the feature extractor that the run was given; None without."""

    NAME: str
    COMPATIBILITY = ['class-il', 'domain-il', 'task-il', 'general-continual']
    AVAIL_OPTIMS = ['sgd', 'adam', 'adamw']
    RAW_STREAM = RAW_NOT_AUG = ONLINE = False
    FLAGS = {}
    DEFAULTS = {}
    REFUSED_FLAGS = {}
    TRANSIENT = ()
    psi_digest = None

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__()
        self.net = backbone
        self.loss = loss
        self.args = args
        self.dataset = dataset = self.__dict__.get('dataset') if dataset is None else dataset
        self.transform = for_batches(transform)
        self.original_transform = transform
        if dataset is not None:
            normalisation = dataset.get_normalization_transform()
            if normalisation is not None:
                self.normalization_transform = normalisation
            self.N_CLASSES = self.num_classes = dataset.N_CLASSES
            self.N_TASKS = self.n_tasks = dataset.N_TASKS
            self.SETTING = dataset.SETTING
            self.cpt = self.classes_per_task = dataset.N_CLASSES_PER_TASK
        for made_here in (self.transform, getattr(self, 'normalization_transform', None)):
            if hasattr(made_here, 'contiguous'):
                made_here.contiguous = self.is_foreign
        self.device = get_device(args.device)
        self.current_task = self.task_iteration = self.epoch_iteration = 0
        self.n_seen_classes = self.n_past_classes = -1
        self.n_classes_current_task = self.n_remaining_classes = -1
        self.opt = self.get_optimizer() if backbone is not None else None
        # a subclass's own may need what is yet to come: `get_model`
        ContinualModel.to(self, self.device)

    def __getattr__(self, name: str):
        """An attribute of torch's, or one that the base class of the user's checkout has."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            return inherited(ContinualModel, self, name)

    @classmethod
    def get_parser(cls, parser):
        """Add the method's flags to `parser` and return it."""
        for name, (kind, default, text, affects) in cls.FLAGS.items():
            values = {'choices' if isinstance(kind, tuple) else 'type': kind}
            parser.add_argument(f'--{name}', default=default, help=text, affects=affects, **values)
        parser.set_defaults(**cls.DEFAULTS)
        return parser

    def to(self, device):
        super().to(device)
        self.device = torch.device(device)
        for network in networks_of(self.net):
            if network is not self:
                network.to(device)
        return self

    @property
    def is_foreign(self) -> bool:
        """True if the method or its network is not of this project.

        It may view batches and maps as vectors, so these come contiguous."""
        return not (is_shipped(type(self)) and (self.net is None or is_shipped(type(self.net))))

    def revisit_task(self, dataset) -> None:
        """Restore what checkpoints leave out (`TRANSIENT`).

        Called instead of `begin_task` for each task that an interrupted run had begun, before its
        state is loaded."""

    def get_parameters(self):
        """Iterator over the parameters that the optimiser trains."""
        parameters = [p for network in networks_of(self.net) for p in network.parameters()]
        return iter(dict.fromkeys(parameters))  # one network may be in another

    def get_optimizer(self, params=None, lr=None):
        """A new optimiser as the flags say; None if there is nothing to train."""
        params = list(self.get_parameters() if params is None else params)
        if not params:
            return None
        args = self.args
        if args.optimizer not in self.AVAIL_OPTIMS:
            raise InputError(
                f'--optimizer {args.optimizer}: {self.NAME} takes {" or ".join(self.AVAIL_OPTIMS)}'
            )
        if args.optim_nesterov and not args.optim_mom:
            raise InputError('--optim_nesterov 1 needs momentum: give --optim_mom a value above 0')
        options = {'lr': args.lr if lr is None else lr, 'weight_decay': args.optim_wd}
        if args.optimizer == 'sgd':
            options |= {'momentum': args.optim_mom, 'nesterov': args.optim_nesterov}
        kinds = {'sgd': torch.optim.SGD, 'adam': torch.optim.Adam, 'adamw': torch.optim.AdamW}
        return eager(kinds[args.optimizer])(params, **options)

    def ends_task_of(self, flag: str) -> bool:
        """Return whether the task that ends is the stream's last or, with `--<flag> N`, an N-th.

        Warn where it is neither and `--stop_after` ends the run with it."""
        done = self.current_task + 1
        every = getattr(self.args, flag) or self.n_tasks
        due = done == self.n_tasks or done % every == 0
        if done == self.args.stop_after and not due and not self.args.inference_only:
            warn_once(
                f'--stop_after {done} ends the run before {self.NAME} makes its final predictor '
                f'(--{flag} {done} makes it here)'
            )
        return due

    def get_offsets(self, task: int):
        """First and last + 1 class of a task."""
        return self.dataset.get_offsets(task)

    def new_classes(self, dataset) -> torch.Tensor:
        """int64 (n,): classes of the current task, on the device."""
        return torch.as_tensor(dataset.task_classes(self.current_task)).to(self.device)

    def class_mask(self, classes=()) -> torch.Tensor:
        """bool (N_CLASSES,): True for these classes."""
        of_all = torch.arange(self.num_classes, device=self.device)
        return torch.isin(of_all, torch.as_tensor(classes, device=self.device))

    def old_and_seen(self, dataset) -> tuple:
        """Masks, bool (N_CLASSES,), of the classes of earlier tasks, and of all so far."""
        old = dataset.seen_classes(self.current_task - 1)
        return self.class_mask(old), self.class_mask(dataset.seen_classes())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (B, N_CLASSES)."""
        return self.net(x)

    def backward(self, loss: torch.Tensor) -> torch.Tensor:
        """Give the parameters the gradients of this loss alone; returns it."""
        self.opt.zero_grad()
        loss.backward()
        return loss

    def descend(self, loss: torch.Tensor) -> torch.Tensor:
        """One step of the optimiser; returns the loss."""
        ContinualModel.backward(self, loss)  # a subclass may have something else of that name
        self.opt.step()
        return loss

    def passes(self, over: str, count: int):
        """Yield (number, a `LossWatch` for its losses) of each pass over what has been collected.

        In training mode; InputError at the end of a pass whose losses were not finite."""
        training_mode(self.net, self.args.bn)
        title = f'Fitting {over}, epochs'
        for epoch in track(title, range(count), quiet=self.args.non_verbose):
            losses = LossWatch(f'{over}, epoch {epoch + 1}')
            yield epoch, losses
            losses.check()

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        """Learn from one batch; return the loss (a number or a tensor), or a dict with 'loss'.

        inputs: augmented, normalised (B, 3, S, S).
        labels: int64 (B,).
        not_aug_inputs: (B, 3, H, W) in [0, 1].
        epoch and further fields (`meta_observe`): for methods whose signature names them."""
        raise NotImplementedError(f'{type(self).__name__} has no observe')

    def begin_task(self, dataset):
        """Prepare for a task."""

    def end_task(self, dataset):
        """End a task, before it is evaluated: in forks the base class may count it."""
        hook = None
        with suppress(AttributeError):
            hook = inherited(ContinualModel, self, 'end_task')
        if hook:
            hook(dataset)

    def begin_epoch(self, epoch, dataset):
        """Prepare for an epoch."""

    def end_epoch(self, epoch, dataset):
        """End an epoch."""

    def end_eval(self, dataset, accs):
        """End an evaluation with (class-il, task-il) accuracies per task, in percent."""

    @contextmanager
    def mid_stream(self):
        """Be ready to predict inside the block, an evaluation within a task (`--eval_every`)."""
        yield

    def results(self) -> dict:
        """Columns of its own for the results row, asked for once, at the end of the run."""
        return {}

    def summary(self) -> list:
        """Further lines of the closing summary."""
        return []

    def save_files(self) -> None:
        """Write the files that flags ask for, at the end of a run; InputError if one cannot be."""

    @staticmethod
    def get_debug_iters() -> int:
        """Batches of a pass with `--debug_mode`."""
        return 5

    def load_buffer(self, buffer) -> None:
        """Take over the samples of a replay buffer, or of a dict that its `serialize` gave."""
        content = buffer if isinstance(buffer, dict) else buffer.serialize()
        count = len(content.get('examples', ()))
        if 0 <= self.buffer.buffer_size < count:
            raise InputError(
                f'its buffer holds {count} samples, --buffer_size is {self.buffer.buffer_size}'
            )
        if hasattr(self.buffer, 'load'):
            self.buffer.load(content)
        else:  # of a Mammoth checkout
            vars(self.buffer).update(content, num_seen_examples=count)

    def meta_begin_task(self, dataset):
        """Counters and a fresh optimiser, then `begin_task`, which may replace it."""
        self.task_iteration = 0
        self.n_classes_current_task = len(dataset.task_classes(self.current_task))
        self.n_past_classes = len(dataset.seen_classes(self.current_task - 1))
        self.n_seen_classes = len(dataset.seen_classes())
        self.n_remaining_classes = self.N_CLASSES - self.n_seen_classes
        if self.net is not None:
            self.opt = self.get_optimizer()
        self.begin_task(dataset)
        samples = getattr(dataset.train_loader, 'dataset', None)
        fields = getattr(samples, 'extra_return_fields', ('logits',))
        if hasattr(samples, 'logits') and 'logits' not in fields:
            samples.extra_return_fields += ('logits',)  # as the loops of 2020 to 2022 do

    def meta_end_task(self, dataset):
        """`end_task`, then the task is counted, unless the method has."""
        task = self.current_task
        self.end_task(dataset)
        self.current_task = task + 1

    def meta_begin_epoch(self, epoch, dataset):
        """Reset the epoch's counter, then `begin_epoch`."""
        self.epoch_iteration = 0
        self._call_hook('begin_epoch', epoch, dataset)

    def meta_end_epoch(self, epoch, dataset):
        """`end_epoch`."""
        self._call_hook('end_epoch', epoch, dataset)

    def _call_hook(self, name: str, epoch: int, dataset):
        """Call a hook of an epoch; in earlier versions of Mammoth it takes one of the two, or none,
        and may count epochs from 1."""
        hook = getattr(self, name)
        names = inspect.signature(hook).parameters
        from_one = not is_shipped(type(self)) and counts_from_one(name)
        values = {'epoch': epoch + from_one, 'dataset': dataset}
        if names.keys() <= values.keys():
            hook(**{name: values[name] for name in names})
        else:
            hook(*values.values())

    def meta_end_eval(self, dataset, accs):
        """`end_eval`."""
        self.end_eval(dataset, accs)

    def meta_observe(self, inputs, labels, not_aug_inputs, **extra):
        """Call `observe` with the extra fields (`epoch`, `logits`, ...) that its signature names.

        `--batch_iterations` calls it repeatedly; only the last time the buffer takes the samples.
        Samples without a label (-1) are left out, unless the method is made for such (`cssl`); a
        batch of these alone is skipped. InputError: it needs a field that the batches lack."""
        signature = inspect.signature(self.observe)
        parameters = signature.parameters
        if not any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
            extra = {name: value for name, value in extra.items() if name in parameters}
        try:
            signature.bind(inputs, labels, not_aug_inputs, **extra)
        except TypeError as error:
            raise InputError(
                f'--model {self.NAME} needs more of a batch than this stream gives: {error} '
                '(true_labels: it comes with --noise_rate)'
            ) from error
        shares = self.args.label_perc, self.args.label_perc_by_class
        if min(shares) < 1 and 'cssl' not in self.COMPATIBILITY:
            labelled = labels != -1
            if not labelled.any():
                return 0.0
            inputs = inputs[labelled]
            labels = labels[labelled]
            not_aug_inputs = not_aug_inputs[labelled]
            for name, value in extra.items():
                if isinstance(value, torch.Tensor):
                    extra[name] = value[labelled]
        for _ in range(self.args.batch_iterations - 1):
            with self._buffer_closed():
                self.observe(inputs, labels, not_aug_inputs, **extra)
        loss = self.observe(inputs, labels, not_aug_inputs, **extra)
        self.task_iteration += 1
        self.epoch_iteration += 1
        return loss

    def _buffer_closed(self):
        """A context in which the buffer, if there is one, takes nothing."""
        buffer = getattr(self, 'buffer', None)
        if buffer is not None and not hasattr(buffer, 'closed'):
            raise InputError(
                f'--batch_iterations: the buffer of {self.NAME} would take the samples each '
                'time: leave the flag out'
            )
        return nullcontext() if buffer is None else buffer.closed()
