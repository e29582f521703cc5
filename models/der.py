"""Dark experience replay: replay the network's own past logits, with a squared error.

    python main.py --model der --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03 --buffer_size 200 --alpha 2 --batch_size 10

Accuracy: 51 % (± 8 on other processors).
"""

import torch
import torch.nn.functional as F

from core.arguments import Flag, real
from models.utils.replay_model import ReplayModel


class Der(ReplayModel):
    """DER (Buzzega et al. 2020, equation 6): CE(f(x), y) + alpha |f(x') - z'|^2.

    The square is a mean over samples and classes; z' are the logits of the training-mode forward
    pass in which x' was first seen; labels of the buffer are not used."""

    NAME = 'der'
    ROWS = ('examples', 'logits')
    FLAGS = {'alpha': Flag(real(0), 0.5, 'weight of replayed logits')}

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        logits = self.net(inputs)
        loss = self.loss(logits, labels)
        if not self.buffer.is_empty():
            loss = self.with_replay(loss)
        self.descend(loss)
        self.store(not_aug_inputs, labels, logits.detach())
        return loss

    def with_replay(self, loss: torch.Tensor) -> torch.Tensor:
        """Add the loss of replayed samples to that of the batch."""
        replayed, *_, stored_logits = self.replay()
        return loss + self.args.alpha * F.mse_loss(self.net(replayed), stored_logits)
