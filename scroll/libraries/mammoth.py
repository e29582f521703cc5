"""SCROLL as a method of Mammoth, or of a fork of it: `python -m scroll mammoth PATH`, then
`--model scroll` there.

A task is learned at its end, as one segment, each sample once and as the bytes of its image: no
digest depends on the batch size, the epochs or the order in a task. Evaluation is with f_T, after
the last task with f*, which starts from f_T and the buffer.
"""

import sys
import warnings
from argparse import ArgumentParser
from importlib import import_module
from typing import Any

import numpy as np
import torch

from scroll.adaptation.settings import MODES, Adaptation
from scroll.embedding.embedder import Embedder
from scroll.embedding.images import Augmentation, Preprocessing
from scroll.embedding.libraries import LibraryNetwork
from scroll.ground.archive import check_target
from scroll.ground.errors import InputError
from scroll.ground.settings import SETTINGS, check_settings, parse
from scroll.learners.learner import Scroll

_FLAGS = [name for name in SETTINGS if name not in ('adaptation', 'seed', 'keep_keys')]
_ROUNDING = 0.01  # of a byte, that float32 may lose


def get_parser() -> ArgumentParser:
    """Return a parser of all flags, which Mammoth before 2024 takes from a method's file."""
    parser = MammothScroll.get_parser()
    theirs = import_module('utils.args')
    theirs.add_management_args(parser)
    theirs.add_experiment_args(parser)
    return parser


def _end_in_a_line(kind, error, trace) -> None:
    """Exit with code 2 after the line of an InputError that nobody caught. (`sys.excepthook`: the
    loop of Mammoth swallows a SystemExit.)"""
    if not isinstance(error, InputError):
        return sys.__excepthook__(kind, error, trace)
    sys.stderr.write(f'scroll: error: {error}\n')
    return sys.exit(2)


class _Backbone(LibraryNetwork):
    """A backbone of Mammoth, whose own `to` takes other arguments than torch's."""

    body: Any

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return features (B, d)."""
        return self.body.features(x)


class _Logits:
    """Hook that replaces the logits of a network, but not of its copies and files."""

    def __init__(self, replace=lambda x, logits: logits):
        self.replace = replace

    def __call__(self, net, inputs, logits):
        return self.replace(inputs[0], logits)

    def __reduce__(self):
        return _Logits, ()


class MammothScroll(torch.nn.Module):
    """Method of Mammoth, the first base of a class whose second is that Mammoth's `ContinualModel`.
    The backbone, frozen, has `features(x)`.

    Attributes:
        learner: a `Scroll`, to save, merge, unlearn."""

    NAME = 'scroll'
    COMPATIBILITY = ['class-il']
    args: Any
    net: Any
    device: Any
    learner: Any

    @staticmethod
    def get_parser(parser=None):
        """Add SCROLL's flags to a parser, or a new one, and return it."""
        parser = parser or ArgumentParser(allow_abbrev=False)
        flag = parser.add_argument
        for name in _FLAGS:
            about = SETTINGS[name]
            flag(f'--{name}', type=parse, default=about.default, help=about.help)
        flag('--adaptation', choices=MODES, default='auto', help='how f* is made; none: keep f_T')
        flag('--iterations', type=int, help='updates of f* (default: by the buffer)')
        flag('--embed_dtype', default='float32', help='exact: one digest on every machine')
        flag('--save_state', help='file for the learner (python -m scroll show)')
        parser.set_defaults(lr=0.0, n_epochs=1)
        return parser

    def __init__(self, backbone, loss, args, transform, *dataset, **named):
        sys.excepthook = _end_in_a_line
        settings = {name: getattr(args, name) for name in _FLAGS}
        check_settings(settings)
        if args.n_epochs not in (1, None):
            raise InputError(f'--n_epochs {args.n_epochs}: each sample is learned once: give 1')
        if getattr(args, 'savecheck', None):
            raise InputError('--savecheck: it holds networks alone: give --save_state FILE')
        if args.save_state:
            check_target(args.save_state, '--save_state')
        super().__init__(backbone, loss, args, transform, *dataset, **named)
        args.save_after_interrupt = 0
        self.steps = _steps(transform)
        flip = any(type(step).__name__ == 'RandomHorizontalFlip' for step in self.steps)
        adaptation = Adaptation(
            args.adaptation, iterations=args.iterations, augmentation=Augmentation(flip=flip)
        )
        self.learner = Scroll(adaptation=adaptation, seed=args.seed or 0, **settings)
        self.segment = []

    def begin_task(self, dataset) -> None:
        """Refuse streams that are not of new classes."""
        if dataset.SETTING not in self.COMPATIBILITY:
            raise InputError(f'{dataset.NAME} is {dataset.SETTING}: expected class-il')

    def observe(self, inputs, labels, not_aug_inputs, *more, epoch=None, **kwargs) -> float:
        """Gather a batch of the first epoch."""
        if self.learner.embedder is None:
            self._set_embedder(inputs)
        if not epoch:
            self.segment.append((_as_bytes(not_aug_inputs), labels.cpu().numpy()))
        return 0.0

    def _set_embedder(self, inputs: torch.Tensor) -> None:
        """Take the network as it is now, with weights of a checkpoint, for inputs like these."""
        levels = [(step.mean, step.std) for step in self.steps if hasattr(step, 'std')]
        channels = inputs.shape[1]
        levels = levels or [([0.0] * channels, [1.0] * channels)]
        self.levels = tuple(levels[-1][0]), tuple(levels[-1][1])
        # its larger images are resized so, too
        preprocessing = Preprocessing(inputs.shape[-1], *self.levels, 'bicubic')
        net = _Backbone(self.net, inputs.shape[-1], (type(self.net).__name__,))
        dtype = self.args.embed_dtype
        self.learner.set_params(
            embedder=Embedder(net, preprocessing, dtype, self.device, channels_last=False)
        )
        # forks evaluate `model.net`, not the model
        self.net.register_forward_hook(_Logits(self._logits))

    def end_task(self, dataset) -> None:
        """Learn the task; after the last make f*."""
        learner = self.learner
        missing = len(dataset.train_loader.dataset) - sum(len(part[1]) for part in self.segment)
        if missing:
            warnings.warn(
                f'{missing} samples of this task did not come: where its loader drops the last '
                'batch, digests depend on --batch_size',
                stacklevel=2,
            )
        if not self.segment:
            return
        images, labels = (np.concatenate(part) for part in zip(*self.segment))
        self.segment = []
        learner.partial_fit(images, labels)
        digests = {
            'statistics_digest': learner.digest(),
            'online_digest': learner.predictor().digest(),
        }
        if len(dataset.test_loaders) == (getattr(self.args, 'stop_after', 0) or dataset.N_TASKS):
            if learner.buffer_size:
                learner.adapt()
            if learner.adapted_:
                digests['adapted_digest'] = learner.adapted_.digest()
            if self.args.save_state:
                learner.save(self.args.save_state)
        vars(self.args).update(digests)  # for Mammoth's log
        said = ', '.join(f'{name} {digest[:16]}' for name, digest in digests.items())
        total = learner.statistics_.total
        print(f'scroll: {total} samples, {said} on {learner.embedder.valid_on}', flush=True)

    def _logits(self, x: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        """Replace logits (B, K) of the network; -inf for classes that have not come."""
        if not hasattr(self.learner, 'statistics_'):
            return logits
        images = _as_bytes(x, *self.levels)
        out = torch.full_like(logits, -torch.inf)
        seen = torch.from_numpy(self.learner.decision_function(images)).to(out)
        out[:, torch.tensor(self.learner.classes_)] = seen
        return out


def _steps(transform) -> list:
    """The steps of a transform of torchvision, also of transforms in it."""
    parts = getattr(transform, 'transforms', None)
    return [transform] if parts is None else [step for part in parts for step in _steps(part)]


def _as_bytes(x: torch.Tensor, mean: Any = 0.0, std: Any = 1.0) -> np.ndarray:
    """uint8 images (B, H, W, C) of floats (B, C, H, W) in [0, 1], normalised or not; InputError:
    they are not those of bytes."""
    x = x.movedim(1, -1).cpu().double()
    x = 255 * (x * torch.tensor(std) + torch.tensor(mean))
    images = x.round().clamp(0, 255)
    if (x - images).abs().max() > _ROUNDING:
        raise InputError(
            f'images are not bytes, less mean {mean}, by deviation {std}: expected a transform '
            'that ends with ToTensor, or Normalize of these'
        )
    return images.to(torch.uint8).numpy()
