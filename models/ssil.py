"""Separated softmax for incremental learning: new and old classes never compete in one softmax.

    python main.py --model ssil --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03 --buffer_size 200

Accuracy: 77 % (± 10 on other processors).
On EfficientNet-Lite0, CIFAR-100 in ten tasks, |M| = 500: 51.9 % (results/rows/lite_comparison.csv,
mean of 3 seeds).
"""

import torch
import torch.nn.functional as F

from core.arguments import Flag, real
from models.utils.losses import frozen_copy, masked_cross_entropy
from models.utils.replay_model import ReplayModel

_TEMPERATURE = 2.0


def separated_cross_entropy(logits, labels, classes) -> torch.Tensor:
    """Cross-entropy of a softmax over some classes.

    logits: (B, K).
    labels: int64 (B,), all among the classes.
    classes: int64 (n,)."""
    none = torch.zeros(logits.shape[1], dtype=torch.bool, device=logits.device)
    return masked_cross_entropy(logits, labels, none.index_fill(0, classes, True))


def task_wise_distillation(teacher, student, tasks) -> torch.Tensor:
    """KL divergence at T = 2 of one softmax a task, mean over samples, summed over tasks.

    Without the factor T^2.
    teacher, student: logits (B, K).
    tasks: list of int64 (n_t,), the classes of each task."""
    total = 0
    for classes in tasks:
        log_q = F.log_softmax(student[:, classes] / _TEMPERATURE, dim=1)
        p = F.softmax(teacher[:, classes] / _TEMPERATURE, dim=1)
        total = total + F.kl_div(log_q, p, reduction='batchmean')
    return total


class Ssil(ReplayModel):
    """SS-IL (Ahn et al. 2021) in its online form (Caccia et al. 2022).

    Incoming samples: cross-entropy over the classes of the current task. Replayed samples, of
    earlier tasks only: cross-entropy over the earlier classes, and distillation from the network as
    the last task left it, for each earlier task's classes apart. With one class a task the first
    and the last vanish: incoming data teach nothing."""

    NAME = 'ssil'
    ROWS = ('examples', 'labels', 'task_labels')
    COMPATIBILITY = ['class-il', 'task-il']
    FLAGS = {'distill_coef': Flag(real(0), 1.0, 'weight of distillation')}
    ONLINE = True

    def __init__(self, backbone, loss, args, transform, dataset=None):
        super().__init__(backbone, loss, args, transform, dataset)
        self.tasks = []  # classes of each task so far, int64 (n_t,)
        self.teacher = None

    def begin_task(self, dataset):
        self.tasks.append(self.new_classes(dataset))
        if self.current_task > 0:
            self.teacher = frozen_copy(self.net)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        loss = separated_cross_entropy(self.net(inputs), labels, self.tasks[-1])
        if self.current_task > 0:
            replayed, replayed_labels = self.past_samples(self.args.minibatch_size)
            if len(replayed):
                loss = loss + self.replay_loss(self.augment(replayed), replayed_labels)
        self.store(not_aug_inputs, labels)
        return self.descend(loss)

    def replay_loss(self, inputs, labels) -> torch.Tensor:
        """Cross-entropy over the earlier classes, and task-wise distillation."""
        logits = self.net(inputs)
        old = self.tasks[:-1]
        loss = separated_cross_entropy(logits, labels, torch.cat(old))
        if self.args.distill_coef > 0:
            with torch.no_grad():
                before = self.teacher(inputs)
            distilled = task_wise_distillation(before, logits, old)
            loss = loss + self.args.distill_coef * distilled
        return loss
