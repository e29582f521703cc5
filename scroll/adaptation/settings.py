"""How f* is made from f_T and the buffer: settings, which are part of a learner's files and need no
torch.
"""

from dataclasses import dataclass
from math import ceil
from typing import Literal, get_args

from scroll.embedding.images import Augmentation
from scroll.ground.arguments import instance, number, on_off, one_of, whole
from scroll.ground.errors import InputError

Mode = Literal['auto', 'adapters', 'full', 'none']
Precision = Literal['float32', 'bfloat16', 'auto']
MODES = get_args(Mode)
_AUGMENTATION = Augmentation()
_GONE = ('select', 'folds', 'held_out')


@dataclass(frozen=True)
class Adaptation:
    """How f* is made from f_T and the buffer (paper, section 3.3; Algorithm 1, ResidualAdapt and
    FullAdapt).

    Attributes:
        mode: `adapters`, `full`, `none` (f* is f_T), or `auto`: adapters up to `threshold` samples,
            full tuning above, but for networks with depthwise convolutions.
        threshold: the paper's m, in samples.
        iterations: updates by AdaDelta; None: 300, in at least 25 and at most 75 passes over the
            buffer, and 1,000 at most.
        lr: AdaDelta's rate, of adapters or network.
        classifier_lr, scale_lr: AdaDelta's rates of classifier and learned scale.
        scale: initial logit scale, above 0.
        calibrate: replace the scale by the one of least cross-entropy on the buffer, unless f_T is
            no better there than guessing, whatever the scale (a random start).
        learn_scale: train the scale; None: with adapters yes, with full tuning no.
        minibatch: samples an update, drawn without replacement until the buffer is used up.
        augmentation: changes of the images.
        adapter_scale: adapters start as this times the identity.
        prior: exemplars that an f_T of ridge counts for. In `scroll.Scroll` one of ncc counts for a
            quarter of them, of lda and qda for twice as many, and a lift doubles it. Targets are
            labels and f_T's leave-one-out probabilities, |M| parts and `prior` parts, and f* lies
            |M| / (|M| + prior) of the way from f_T to the trained parameters. 0, as in the paper:
            the labels, and all of the way.
        averaging: the trained parameters are a running mean, not, as in the paper, the last ones.
        exact: f* has the same bits on every machine (`exact_torch`).
        precision: of the network's products while it is trained and afterwards, 'float32' or
            'bfloat16' (autocast; norms, classifier, loss and optimiser stay in float32), or 'auto':
            bfloat16 where the machine has units for it. Exact adaptation is in neither.

    InputError: an invalid value."""

    mode: Mode = 'auto'
    threshold: int = 500
    iterations: int | None = None
    lr: float = 0.2
    classifier_lr: float = 0.01
    scale_lr: float = 1.0
    scale: float = 1.0
    calibrate: bool = True
    learn_scale: bool | None = None
    minibatch: int = 50
    augmentation: Augmentation = _AUGMENTATION
    adapter_scale: float = 1e-4
    prior: float = 200.0
    averaging: bool = True
    exact: bool = False
    precision: Precision = 'float32'

    def __post_init__(self):
        one_of('adaptation mode', self.mode, MODES)
        one_of('adaptation precision', self.precision, get_args(Precision))
        if self.exact and self.precision == 'bfloat16':
            raise InputError(
                'adaptation precision bfloat16: exact adaptation has a precision of its own'
            )
        if self.iterations is not None:
            whole('adaptation iterations', self.iterations)
        whole('adaptation threshold', self.threshold)
        whole('adaptation minibatch', self.minibatch, 1)
        for name in ('lr', 'classifier_lr', 'scale_lr', 'adapter_scale', 'prior'):
            number(f'adaptation {name}', getattr(self, name))
        number('logit scale', self.scale, positive=True)
        on_off('adaptation calibrate', self.calibrate)
        on_off('adaptation averaging', self.averaging)
        on_off('adaptation exact', self.exact)
        if self.learn_scale is not None:
            on_off('adaptation learn_scale', self.learn_scale)
        instance('adaptation augmentation', self.augmentation, Augmentation)

    @classmethod
    def of(cls, values: dict) -> 'Adaptation':
        """Read settings from a file, as of `dataclasses.asdict`. Those of before 0.4 name
        neither prior nor averaging, but cross-validation, which is gone."""
        kept: dict = {name: values[name] for name in values if name not in _GONE}
        if len(kept) < len(values):
            kept = {'prior': 0.0, 'averaging': False} | kept
        kept['augmentation'] = Augmentation(**kept['augmentation'])
        return cls(**kept)

    def updates(self, buffered: int) -> int:
        """Updates with this many samples."""
        if self.iterations is not None:
            return self.iterations
        in_a_pass = buffered / max(1, min(self.minibatch, buffered))
        return ceil(min(1000, max(25 * in_a_pass, min(300, 75 * in_a_pass))))

    def mode_for(self, buffered: int) -> str:
        """The mode that `auto` stands for with this many samples."""
        if self.mode != 'auto':
            return self.mode
        return 'adapters' if buffered <= self.threshold else 'full'
