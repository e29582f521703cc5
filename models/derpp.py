"""Dark experience replay++: logits and labels of the past are replayed, in two draws.

    scripts/tables.sh blurry --only 'DER++/i-Blurry*'

23.4 % of CIFAR-100 at the end of i-Blurry tasks, |M| = 500 (results/rows/blurry.csv, mean of 5 seeds).
"""
import torch.nn.functional as F

from core.arguments import real
from models.utils.replay_model import ReplayModel


class Derpp(ReplayModel):
    """DER++ (Buzzega et al. 2020, equation 7): CE(f(x), y) + alpha |f(x') - z'|^2 + beta CE(f(x''), y'')."""
    NAME = 'derpp'
    COMPATIBILITY = ['class-il', 'domain-il', 'task-il', 'general-continual']

    @staticmethod
    def get_parser(parser):
        ReplayModel.get_parser(parser).add_argument('--alpha', type=real(0), default=0.5,
                                                    help='weight of replayed logits')
        parser.add_argument('--beta', type=real(0), default=0.5, help='weight of replayed labels')
        return parser

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        logits = self.net(inputs)
        loss = self.loss(logits, labels)
        if not self.buffer.is_empty():
            replayed, _, stored_logits = self.replay()
            loss = loss + self.args.alpha * F.mse_loss(self.net(replayed), stored_logits)
            replayed, stored_labels, _ = self.replay()
            loss = loss + self.args.beta * self.loss(self.net(replayed), stored_labels)
        self.descend(loss)
        self.buffer.add_data(examples=not_aug_inputs, labels=labels, logits=logits.detach())
        return loss
