"""How f* is made from f_T and the buffer: settings, which are part of a learner's files and need no torch."""
from dataclasses import dataclass

from scroll.arguments import instance, number, on_off, one_of, whole
from scroll.embedding.images import Augmentation

MODES = ('auto', 'adapters', 'full', 'none')


@dataclass(frozen=True)
class Adaptation:
    """How f* is made from f_T and the buffer.

    Attributes:
        mode: `adapters`, `full`, `none` (f* is f_T), or `auto`: adapters up to `threshold` samples, full
            tuning above.
        threshold: the paper's m.
        iterations: updates.
        lr: of adapters or network. classifier_lr, scale_lr: of the classifier and of the learned scale.
        scale: initial logit scale, before calibration. calibrate: set it by cross-entropy on the buffer
            first.
        learn_scale: train the scale; None: with adapters yes, with full tuning no.
        minibatch: samples an update, drawn without replacement until the buffer is used up.
        augmentation: what is done to the images.
        adapter_scale: adapters start as this times the identity.
    """
    mode: str = 'auto'
    threshold: int = 500
    iterations: int = 300
    lr: float = 0.02
    classifier_lr: float = 0.01
    scale_lr: float = 1.0
    scale: float = 1.0
    calibrate: bool = True
    learn_scale: object = None
    minibatch: int = 50
    augmentation: Augmentation = Augmentation()
    adapter_scale: float = 1e-4

    def __post_init__(self):
        one_of('adaptation mode', self.mode, MODES)
        for name, least in (('iterations', 0), ('threshold', 0), ('minibatch', 1)):
            whole(f'adaptation {name}', getattr(self, name), least)
        for name in ('lr', 'classifier_lr', 'scale_lr', 'adapter_scale'):
            number(f'adaptation {name}', getattr(self, name))
        number('logit scale', self.scale, positive=True)
        on_off('adaptation calibrate', self.calibrate)
        if self.learn_scale is not None:
            on_off('adaptation learn_scale', self.learn_scale)
        instance('adaptation augmentation', self.augmentation, Augmentation)

    def mode_for(self, buffered: int) -> str:
        """The mode that `auto` stands for with this many samples."""
        return self.mode if self.mode != 'auto' else 'adapters' if buffered <= self.threshold else 'full'
