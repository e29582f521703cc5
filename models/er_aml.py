"""ER with asymmetric metric learning: new samples learn by contrast with their like and unlike, not through the head.

    python main.py --model er-aml --dataset seq-cifar10 --buffer_size 500
"""
import torch

from models.utils.cosine_classifier import CosineClassifier, normalise
from models.utils.replay_model import ReplayModel
from scroll.randomness import torch_stream
from utils import binary_to_boolean_type
from utils.args import real

_BASE_TEMPERATURE = 0.07


def contrastive_loss(anchors, positives, negatives, labels, negative_labels, valid, temperature):
    """SupCon (Khosla et al. 2020) of each anchor, taken twice, against all positives and negatives.

    Args:
        anchors, positives, negatives: unit rows (n, F). labels: int64 (n,), of anchors and positives.
        negative_labels: int64 (n,). valid: bool (n,), rows that count; without any the loss is 0.
    """
    contrast, contrast_labels = torch.cat([positives, negatives]), torch.cat([labels, negative_labels])
    valid, labels = valid.repeat(2), labels.repeat(2)
    similarity = anchors.repeat(2, 1) @ contrast.T / temperature                                    # (2n, 2n)
    log_p = similarity.masked_fill(~valid, torch.finfo(similarity.dtype).min).log_softmax(dim=1)
    alike = (labels[:, None] == contrast_labels) & valid
    per_anchor = (log_p * alike).sum(dim=1) / alike.sum(dim=1).clamp(min=1)
    return -(temperature / _BASE_TEMPERATURE) * (per_anchor * valid).sum() / valid.sum().clamp(min=1)


def choose(allowed: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """For each row of bool (B, N) one of its True columns at random, int64 (B,); column 0 in a row without any."""
    return (torch.rand(allowed.shape, generator=generator).to(allowed.device) * allowed).argmax(dim=1)


class ErAml(ReplayModel):
    """ER-AML (Caccia et al. 2022, equation 2) with a cosine head.

    Each incoming sample gets a positive (its class, not itself) and a negative (another class of this batch) out of buffer and
    batch; samples for which there is none do not count. So where tasks have one class, incoming data teach nothing, and the
    method learns from replay alone. Until the buffer holds something (`--task_free 0`: in the first task): cross-entropy.
    """
    NAME = 'er_aml'
    COMPATIBILITY = ['class-il', 'task-il', 'general-continual']
    ONLINE = True

    @staticmethod
    def get_parser(parser):
        ReplayModel.get_parser(parser)
        parser.add_argument('--task_free', type=binary_to_boolean_type, default=True,
                            help='contrast and replay from the second batch on; 0: from the second task on')
        parser.add_argument('--supcon_temperature', type=real(positive=True), default=0.2, help='of the contrast')
        return parser

    def __init__(self, backbone, loss, args, transform, dataset=None):
        backbone.classifier = CosineClassifier(backbone.classifier.in_features, backbone.classifier.out_features)
        super().__init__(backbone, loss, args, transform, dataset)
        self.random = torch_stream(args.seed, 'contrast')

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        if self.buffer.is_empty() or not (self.args.task_free or self.current_task > 0):
            loss = self.loss(self.net(inputs), labels)
        else:
            replayed, replayed_labels = self.replay()
            loss = self.incoming_loss(inputs, labels, not_aug_inputs) + self.loss(self.net(replayed), replayed_labels)
        loss.backward()
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels)
        return loss

    def incoming_loss(self, inputs, labels, not_aug_inputs) -> torch.Tensor:
        """The contrast of a batch with positives and negatives from the batch and the buffer."""
        count, kept = len(labels), len(self.buffer)
        pool = torch.cat([labels, self.buffer.labels[:kept]])                                       # (B + |M|,)
        alike, present = labels[:, None] == pool, (pool[:, None] == labels).any(dim=1)
        itself = torch.arange(count, device=self.device)[:, None] == torch.arange(len(pool), device=self.device)
        positive, negative = alike & ~itself, ~alike & present
        chosen = torch.cat([choose(allowed, self.random) for allowed in (positive, negative)])      # (2 B,)
        images = torch.where(_column(chosen < count), not_aug_inputs[chosen.clamp(max=count - 1)],
                             self.buffer.examples[(chosen - count).clamp(min=0)])
        anchors = normalise(self.net(inputs, returnt='features'))
        positives, negatives = normalise(self.net(self.transform(images), returnt='features')).split(count)
        valid = positive.any(dim=1) & negative.any(dim=1)
        return contrastive_loss(anchors, positives, negatives, labels, pool[chosen[count:]], valid, self.args.supcon_temperature)


def _column(mask: torch.Tensor) -> torch.Tensor:
    """(B,) -> (B, 1, 1, 1), to choose among images."""
    return mask[:, None, None, None]
