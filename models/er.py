"""Experience replay: each batch is joined by samples from a reservoir; one forward pass, one step.

    python main.py --model er --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03 --buffer_size 200

Accuracy: 82 % (± 8 on other processors).
On EfficientNet-Lite0, CIFAR-100 in ten tasks, |M| = 500, two passes: 46.9 %
(results/rows/lite_comparison.csv, one seed).
"""

import torch

from models.utils.replay_model import ReplayModel


class Er(ReplayModel):
    """ER (Ratcliff 1990; Robins 1995; with a reservoir Riemer et al. 2019).

    Mean cross-entropy over B + b samples."""

    NAME = 'er'

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        targets = labels
        if not self.buffer.is_empty():
            replayed, replayed_labels = self.replay()
            inputs = torch.cat([inputs, replayed])
            targets = torch.cat([labels, replayed_labels])
        loss = self.descend(self.loss(self.net(inputs), targets))
        self.store(not_aug_inputs, labels)
        return loss
