"""Gradient episodic memory: no step raises the loss on a past task's memory, to first order.

    python main.py --model gem --dataset seq-digits --weights small --input_size 16
        --n_epochs 1 --lr 0.03 --buffer_size 200

Accuracy: 73 % (± 8 on other processors).
"""

import numpy as np
import quadprog
import torch

from core.arguments import Flag, real
from models.utils.replay_model import ReplayModel
from utils.buffer import fill_buffer

_CHUNK = 2**20  # columns turned into float64 at once


def solve(P: np.ndarray, q: np.ndarray, margin: float) -> np.ndarray:
    """argmin_v 1/2 v'Pv + q'v subject to v >= margin, by Goldfarb and Idnani's dual method.

    P: float64 (t, t), symmetric, positive definite.
    q: float64 (t,)."""
    # the same v; quadprog's tolerances are absolute, and fail on large gradients
    scale = np.trace(P) / len(P)
    bounds = np.full(len(q), float(margin))
    return quadprog.solve_qp(P / scale, -q / scale, np.eye(len(q)), bounds)[0]


def inner_products(rows: torch.Tensor) -> np.ndarray:
    """float64 (n, n): inner products of float32 rows (n, P), in float64 by parts, for memory."""
    total = torch.zeros(len(rows), len(rows), dtype=torch.float64, device=rows.device)
    for part in rows.split(_CHUNK, dim=1):
        total += part.double() @ part.double().T
    return total.cpu().numpy()


def project(
    gradient: torch.Tensor, memories: torch.Tensor, margin: float = 0.5, eps: float = 1e-3
) -> torch.Tensor:
    """The gradient nearest to this one that no memory objects to (equations 9 to 11 of the paper).

    gradient: (P,). memories: (t, P), gradients on the past tasks' memories. margin: lower bound of
    the dual variables; above 0 it pulls towards all memories once one objects. eps: added to the
    diagonal, so that the programme has one solution, also with equal memories; at least what
    float64 can add to large gradients.

    Returns:
        (P,): the gradient itself, bit by bit, if no inner product is negative."""
    products = inner_products(torch.cat([gradient[None], memories]))
    along = products[0, 1:]
    P = products[1:, 1:]
    if (along >= 0).all():
        return gradient
    eps = max(eps, 1e-12 * np.trace(P) / len(P))
    dual = solve((P + P.T) / 2 + eps * np.eye(len(P)), along, margin)
    return gradient + torch.from_numpy(dual).to(memories) @ memories


class Gem(ReplayModel):
    """GEM (Lopez-Paz and Ranzato 2017).

    At a task's end the memory is divided equally among the classes of all tasks so far. Each step
    passes the whole memory through the network, augmented, task by task; batch norms see these
    passes, too."""

    NAME = 'gem'
    ROWS = ('examples', 'labels', 'task_labels')
    COMPATIBILITY = ['class-il', 'domain-il', 'task-il']
    FLAGS = {'gamma': Flag(real(0), 0.5, 'margin of the dual variables')}

    def end_task(self, dataset):
        fill_buffer(self.buffer, dataset, self.current_task, required_attributes=self.ROWS)

    def observe(self, inputs, labels, not_aug_inputs, epoch=None):
        memories = None if self.buffer.is_empty() else self.memory_gradients()
        loss = self.backward(self.loss(self.net(inputs), labels))
        if memories is not None:
            self.net.set_grads(project(self.net.get_grads(), memories, self.args.gamma))
        self.opt.step()
        return loss

    def memory_gradients(self) -> torch.Tensor:
        """(t, P): the gradient on all samples of each past task in the memory."""
        inputs, labels, tasks = self.buffer.get_all_data(self.transform, self.device)
        rows = []
        for task in tasks.unique():
            of_task = tasks == task
            self.backward(self.loss(self.net(inputs[of_task]), labels[of_task]))
            rows.append(self.net.get_grads())
        return torch.stack(rows)
