"""How f* is made from f_T and the buffer: settings, which are part of a learner's files and need no
torch.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from scroll.embedding.images import Augmentation
from scroll.ground.arguments import instance, number, on_off, one_of, whole
from scroll.ground.errors import InputError

Mode = Literal['auto', 'adapters', 'full', 'none']
Selection = Literal['none', 'folds']
Precision = Literal['float32', 'bfloat16', 'auto']
MODES = get_args(Mode)
_AUGMENTATION = Augmentation()


@dataclass(frozen=True)
class Adaptation:
    """How f* is made from f_T and the buffer (paper, section 3.3; Algorithm 1, ResidualAdapt and
    FullAdapt).

    Attributes:
        mode: `adapters`, `full`, `none` (f* is f_T), or `auto`: adapters up to `threshold` samples,
            full tuning above.
        threshold: the paper's m, in samples.
        iterations: updates by AdaDelta.
        lr: AdaDelta's rate, of adapters or network.
        classifier_lr, scale_lr: AdaDelta's rates of classifier and learned scale.
        scale: initial logit scale, above 0.
        calibrate: replace the scale by the one of least cross-entropy on the buffer, unless f_T is
            no better there than guessing, whatever the scale (a random start).
        learn_scale: train the scale; None: with adapters yes, with full tuning no.
        minibatch: samples an update, drawn without replacement until the buffer is used up.
        augmentation: changes of the images.
        adapter_scale: adapters start as this times the identity.
        select: 'folds': cross-validation within the buffer chooses f_T, f* or a mixture
            (`scroll.adaptation.selection`); 'none', as in the paper: f* is the end of the
            iterations.
        folds: parts that the buffer is cut into for that, each with its share of every class.
        held_out: samples to predict at least; no further fold is held out after these.
        exact: f* has the same bits on every machine (`exact_torch`).
        precision: of the network's products while it is trained and afterwards, 'float32' or
            'bfloat16' (autocast; norms, classifier, loss and optimiser stay in float32), or 'auto':
            bfloat16 where the machine has matrix units for it. Exact adaptation is in neither.

    InputError: an invalid value."""

    mode: Mode = 'auto'
    threshold: int = 500
    iterations: int = 300
    lr: float = 0.02
    classifier_lr: float = 0.01
    scale_lr: float = 1.0
    scale: float = 1.0
    calibrate: bool = True
    learn_scale: bool | None = None
    minibatch: int = 50
    augmentation: Augmentation = _AUGMENTATION
    adapter_scale: float = 1e-4
    select: Selection = 'folds'
    folds: int = 4
    held_out: int = 250
    exact: bool = False
    precision: Precision = 'float32'

    def __post_init__(self):
        one_of('adaptation mode', self.mode, MODES)
        one_of('adaptation select', self.select, get_args(Selection))
        one_of('adaptation precision', self.precision, get_args(Precision))
        if self.exact and self.precision == 'bfloat16':
            raise InputError(
                'adaptation precision bfloat16: exact adaptation has a precision of its own'
            )
        least = {'iterations': 0, 'threshold': 0, 'minibatch': 1, 'folds': 2, 'held_out': 1}
        for name, minimum in least.items():
            whole(f'adaptation {name}', getattr(self, name), minimum)
        for name in ('lr', 'classifier_lr', 'scale_lr', 'adapter_scale'):
            number(f'adaptation {name}', getattr(self, name))
        number('logit scale', self.scale, positive=True)
        on_off('adaptation calibrate', self.calibrate)
        on_off('adaptation exact', self.exact)
        if self.learn_scale is not None:
            on_off('adaptation learn_scale', self.learn_scale)
        instance('adaptation augmentation', self.augmentation, Augmentation)

    def updates(self, buffered: int) -> int:
        """Updates for f* and its selection with this many samples, at most."""
        held_out = min(self.folds, math.ceil(self.held_out * self.folds / max(buffered, 1)))
        return self.iterations * (1 + held_out * (self.select == 'folds'))

    def mode_for(self, buffered: int) -> str:
        """The mode that `auto` stands for with this many samples."""
        if self.mode != 'auto':
            return self.mode
        return 'adapters' if buffered <= self.threshold else 'full'
