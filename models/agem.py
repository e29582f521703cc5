"""Averaged GEM: a step may not raise the loss on a random minibatch of the memory, to first order.

    python main.py --model agem --dataset seq-cifar10 --buffer_size 500
"""
import torch

from models.utils.gradients import read_gradients, write_gradients
from models.utils.replay_model import ReplayModel


def project(gradient: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """The gradient (P,) without its part against the reference gradient (P,), if there is one; else as it is."""
    along = torch.dot(gradient, reference)
    length = torch.dot(reference, reference)
    correction = torch.where((along < 0) & (length > 0), along / length.clamp(min=torch.finfo(length.dtype).tiny), 0.0)
    return gradient - correction * reference


class Agem(ReplayModel):
    """A-GEM (Chaudhry et al. 2019, equation 11).

    The memory is a reservoir of the stream, so streams without tasks will do. (Mammoth's gains one training batch a task,
    whatever |M| is.)
    """
    NAME = 'agem'
    COMPATIBILITY = ['class-il', 'domain-il', 'task-il', 'general-continual']

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        self.opt.zero_grad()
        loss = self.loss(self.net(inputs), labels)
        loss.backward()
        if not self.buffer.is_empty():
            gradient = read_gradients(self.net)
            replayed, replayed_labels = self.replay()
            self.opt.zero_grad()
            self.loss(self.net(replayed), replayed_labels).backward()
            write_gradients(self.net, project(gradient, read_gradients(self.net)))
        self.opt.step()
        self.buffer.add_data(examples=not_aug_inputs, labels=labels)
        return loss
