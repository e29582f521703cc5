"""A-GEM: no step raises the loss on a random minibatch of past tasks' memory, to first order.

    python main.py --model agem --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03 --buffer_size 200

Accuracy: 26 % (± 8 on other processors).
"""

import torch

from models.utils.replay_model import ReplayModel


def project(gxy: torch.Tensor, ger: torch.Tensor) -> torch.Tensor:
    """Remove from the gradient gxy (P,) its part against the reference ger (P,), if it has one."""
    length = torch.dot(ger, ger).clamp(min=torch.finfo(ger.dtype).tiny)
    return gxy - (torch.dot(gxy, ger) / length).clamp(max=0) * ger


class Agem(ReplayModel):
    """A-GEM (Chaudhry et al. 2019, equations 10 and 11).

    The memory is a reservoir of the stream. The reference gradient is of samples of past tasks, so
    the first task is learned as by SGD; on a stream without tasks it is of samples of all earlier
    batches. (Mammoth's memory gains one training batch a task, whatever |M| is.)"""

    NAME = 'agem'
    ROWS = ('examples', 'labels', 'task_labels')

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        loss = self.backward(self.loss(self.net(inputs), labels))
        replayed, replayed_labels = self.past_samples(self.args.minibatch_size)
        if len(replayed):
            gradient = self.net.get_grads()
            self.backward(self.loss(self.net(self.augment(replayed)), replayed_labels))
            self.net.set_grads(project(gradient, self.net.get_grads()))
        self.opt.step()
        self.store(not_aug_inputs, labels)
        return loss
