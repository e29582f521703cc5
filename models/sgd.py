"""Fine-tuning, the lower bound: one step of cross-entropy per batch, nothing against forgetting.

    python main.py --model sgd --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03

Accuracy: 21 % (± 8 on other processors).
"""

from models.utils.continual_model import ContinualModel


class Sgd(ContinualModel):
    """Plain SGD over all logits."""

    NAME = 'sgd'

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        return self.descend(self.loss(self.net(inputs), labels))
