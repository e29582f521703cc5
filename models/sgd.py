"""Fine-tuning: one step of cross-entropy per batch, nothing against forgetting; every table's lower
bound.

    python scripts/orders.py --model sgd --dataset seq-digits --orders 10 --seeds 2 --weights small
        --model_config best --n_epochs 3 --drop_last 1

24.7 % (results/orders/seq-digits.csv, mean of 10 runs in random orders).
"""

from models.utils.continual_model import ContinualModel


class Sgd(ContinualModel):
    """Plain SGD over all logits."""

    NAME = 'sgd'

    def observe(self, inputs, labels, not_aug_inputs):
        return self.descend(self.loss(self.net(inputs), labels))
