"""Maximally interfered retrieval: replay what the step to come would hurt most.

    python main.py --model mir --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03 --buffer_size 200

Accuracy: 71 % (± 12 on other processors).
On EfficientNet-Lite0, CIFAR-100 in ten tasks, |M| = 500: 43.9 % (results/rows/lite_comparison.csv,
mean of 3 seeds).
"""

import torch
import torch.nn.functional as F
from torch.func import functional_call

from core.arguments import Flag, whole
from models.utils.replay_model import ReplayModel, task_free


@torch.no_grad()
def interference(net, lr: float, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """CE after minus CE before the virtual step theta - lr * gradient, (C,), of `net`'s gradients.

    Batch norms use the statistics of these images if the network is in train mode; running
    statistics are left alone."""
    now = dict(net.named_parameters())
    then = {name: p if p.grad is None else p - lr * p.grad for name, p in now.items()}
    losses = []
    for parameters in (now, then):
        buffers = {name: b.clone() for name, b in net.named_buffers()}
        logits = functional_call(net, (parameters, buffers), images)
        losses.append(F.cross_entropy(logits, labels, reduction='none'))
    return losses[1] - losses[0]


class Mir(ReplayModel):
    """MIR (Aljundi et al. 2019, section 3.1): of C candidates the b most interfered are replayed.

    The gradient of the replayed samples is added to that of the batch; then one step. Candidates
    are scored un-augmented; the virtual step knows the learning rate only, no momentum. Equal
    scores (a rate of zero) leave the order of the draw, and with C = b the replayed samples are
    ER's draw. The current task is not replayed, unless `--task_free 1`."""

    NAME = 'mir'
    ROWS = ('examples', 'labels', 'task_labels')
    COMPATIBILITY = ['class-il', 'task-il', 'general-continual']
    FLAGS = {
        'task_free': task_free(default=False),
        'subsample': Flag(whole(1), 50, 'candidates for replay'),
    }
    ONLINE = True

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        loss = self.backward(self.loss(self.net(inputs), labels))
        candidates, candidate_labels = self.past_samples(self.args.subsample)
        if len(candidates):
            lr = self.opt.param_groups[0]['lr']
            scores = interference(self.net, lr, self.plain(candidates), candidate_labels)
            chosen = scores.argsort(descending=True, stable=True)[: self.args.minibatch_size]
            logits = self.net(self.augment(candidates[chosen]))
            self.loss(logits, candidate_labels[chosen]).backward()
        self.opt.step()
        self.store(not_aug_inputs, labels)
        return loss
