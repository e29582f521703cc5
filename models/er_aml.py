"""ER with asymmetric metric learning: new samples learn by contrast, not by the head.

    python main.py --model er-aml --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03 --buffer_size 200

Accuracy: 70 % (± 8 on other processors).
On EfficientNet-Lite0, CIFAR-100 in ten tasks, |M| = 500: 39.4 % (results/rows/lite_comparison.csv,
mean of 3 seeds).
"""

import torch

from core.arguments import Flag, real
from models.utils.cosine_classifier import CosineClassifier, normalise
from models.utils.replay_model import ReplayModel, task_free
from scroll.ground.randomness import torch_stream

_BASE_TEMPERATURE = 0.07


def contrastive_loss(anchors, positives, negatives, labels, negative_labels, valid, temperature):
    """SupCon (Khosla et al. 2020): each anchor against all positives and negatives, by class.

    anchors, positives, negatives: unit rows (n, F).
    labels: int64 (n,), of anchors and positives.
    negative_labels: int64 (n,).
    valid: bool (n,), rows that count; without any the loss is 0."""
    contrast = torch.cat([positives, negatives])
    contrast_labels = torch.cat([labels, negative_labels])
    # (n, 2n), (2n,)
    similarity = anchors @ contrast.T / temperature
    counts = valid.repeat(2)
    log_p = similarity.masked_fill(~counts, torch.finfo(similarity.dtype).min).log_softmax(dim=1)
    alike = (labels[:, None] == contrast_labels) & counts
    per_anchor = log_p.masked_fill(~alike, 0).sum(dim=1) / alike.sum(dim=1).clamp(min=1)
    return (
        -(temperature / _BASE_TEMPERATURE) * (per_anchor * valid).sum() / valid.sum().clamp(min=1)
    )


def partners(labels, pool, rivals, generator) -> tuple:
    """A random positive and negative for each sample of a batch.

    Returns their positions in the pool, int64 (B,) each, and bool (B,): the sample has both.
    labels: int64 (B,).
    pool: int64 (N,), labels of the samples to choose from; the first B are the batch itself.
    rivals: int64 (R,), classes that negatives may have.
    generator: torch generator on the CPU."""
    position = torch.arange(len(pool), device=pool.device)
    alike = labels[:, None] == pool  # (B, N)
    rival = torch.isin(pool, rivals)  # (N,)
    others = position[: len(labels), None] != position
    allowed = torch.stack([alike & others, ~alike & rival])  # (2, B, N)
    priority = 1 - torch.rand(allowed.shape, generator=generator).to(pool.device)  # above 0
    positives, negatives = (priority * allowed).argmax(dim=2)
    return positives, negatives, allowed.any(dim=2).all(dim=0)


class ErAml(ReplayModel):
    """ER-AML (Caccia et al. 2022, equation 2) with a cosine head.

    Each incoming sample gets a positive (its class, not itself) and a negative (another class of
    this batch; with `--task_free 0`: of this task) out of buffer and batch; samples for which there
    is none do not count. So where tasks have one class, incoming data teach nothing, and the method
    learns from replay alone, which draws from the whole buffer. Until the buffer holds something
    (`--task_free 0`, the default of the authors' code: in the first task): cross-entropy."""

    NAME = 'er_aml'
    COMPATIBILITY = ['class-il', 'task-il', 'general-continual']
    FLAGS = {
        'task_free': task_free(default=False),
        'supcon_temperature': Flag(real(positive=True), 0.2, 'of the contrast'),
    }
    ONLINE = True

    def __init__(self, backbone, loss, args, transform, dataset=None):
        backbone.classifier = CosineClassifier(backbone.classifier)
        super().__init__(backbone, loss, args, transform, dataset)
        self.random = torch_stream(args.seed, 'contrast')

    def begin_task(self, dataset):
        self.task_classes = self.new_classes(dataset)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        if self.buffer.is_empty() or not (self.task_free or self.current_task > 0):
            loss = self.loss(self.net(inputs), labels)
        else:
            replayed, replayed_labels = self.replay()
            loss = self.incoming_loss(inputs, labels, not_aug_inputs)
            loss = loss + self.loss(self.net(replayed), replayed_labels)
        self.descend(loss)
        self.store(not_aug_inputs, labels)
        return loss

    def incoming_loss(self, inputs, labels, not_aug_inputs) -> torch.Tensor:
        """Contrast of a batch.

        Samples that do not count pass the network, too, so that no step waits for the device."""
        stored, stored_labels = self.buffer.get_all_data()
        pool = torch.cat([labels, stored_labels])
        rivals = labels if self.task_free else self.task_classes
        positives, negatives, valid = partners(labels, pool, rivals, self.random)
        images = torch.cat([not_aug_inputs, stored])[torch.cat([positives, negatives])]
        anchors = normalise(self.net(inputs, returnt='features'))
        features = normalise(self.net(self.augment(images), returnt='features'))
        like, unlike = features.split(len(labels))
        return contrastive_loss(
            anchors, like, unlike, labels, pool[negatives], valid, self.args.supcon_temperature
        )
