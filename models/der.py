"""Dark experience replay: the network's own logits of the past are replayed, as targets of a squared error.

    python main.py --model der --dataset seq-cifar100 --buffer_size 500

Accuracy: not run yet.
"""
import torch.nn.functional as F

from core.arguments import real
from models.utils.replay_model import ReplayModel


class Der(ReplayModel):
    """DER (Buzzega et al. 2020, equation 6): CE(f(x), y) + alpha |f(x') - z'|^2.

    The square is a mean over samples and classes; z' are the logits of the training-mode forward pass in
    which x' was first seen; labels of the buffer are not used."""
    NAME = 'der'
    COMPATIBILITY = ['class-il', 'domain-il', 'task-il', 'general-continual']

    @staticmethod
    def get_parser(parser):
        ReplayModel.get_parser(parser).add_argument('--alpha', type=real(0), default=0.5,
                                                    help='weight of replayed logits')
        return parser

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        logits = self.net(inputs)
        loss = self.loss(logits, labels)
        if not self.buffer.is_empty():
            replayed, stored_logits = self.replay()
            loss = loss + self.args.alpha * F.mse_loss(self.net(replayed), stored_logits)
        self.descend(loss)
        self.buffer.add_data(examples=not_aug_inputs, logits=logits.detach())
        return loss
