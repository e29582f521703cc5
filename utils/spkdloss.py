"""Similarity-preserving knowledge distillation (Tung and Mori 2019)."""
import torch
import torch.nn.functional as F
from torch import nn


class SPKDLoss(nn.Module):
    """|G_T - G_S|_F^2 / B^2 (equation 4): which samples of a batch are alike is to
    be the same for teacher and student.

    G holds the inner products of all pairs of activations of the batch, each row scaled
    to unit length (equations 2 and 3).

    Args:
        reduction: 'batchmean' or 'mean', as above; 'sum' leaves out the division by B^2.
    """

    def __init__(self, reduction: str = 'batchmean'):
        super().__init__()
        if reduction not in ('batchmean', 'mean', 'sum'):
            raise ValueError(f'reduction {reduction!r}: expected batchmean, mean or sum')
        self.reduction = reduction

    def forward(self, teacher_outputs: torch.Tensor, student_outputs: torch.Tensor) -> torch.Tensor:
        """Activations (B, ...) each, of whatever sizes; the two may be exchanged."""
        squares = (similarities(teacher_outputs) - similarities(student_outputs)) ** 2
        return squares.sum() if self.reduction == 'sum' else squares.mean()


def similarities(activations: torch.Tensor) -> torch.Tensor:
    """G (B, B)."""
    flat = activations.flatten(1)
    return F.normalize(flat @ flat.T, dim=1)
