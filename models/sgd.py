"""Fine-tuning: one step of cross-entropy per batch, nothing against forgetting; every table's lower bound.

    python main.py --model sgd --dataset seq-cifar10
"""
from models.utils.continual_model import ContinualModel


class Sgd(ContinualModel):
    """Plain SGD over all logits."""
    NAME = 'sgd'
    COMPATIBILITY = ['class-il', 'domain-il', 'task-il', 'general-continual']

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        loss = self.loss(self.net(inputs), labels)
        loss.backward()
        self.opt.step()
        return loss
