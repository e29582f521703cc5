"""Losses that several methods share."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


def masked_cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, allowed: torch.Tensor
) -> torch.Tensor:
    """Cross-entropy of a softmax over some of the classes; the other logits have a gradient of
    exactly zero.
    logits: (B, K). labels: int64 (B,), all of them allowed. allowed: bool (K,)."""
    return F.cross_entropy(logits.masked_fill(~allowed, torch.finfo(logits.dtype).min), labels)


def softened_cross_entropy(
    teacher: torch.Tensor, student: torch.Tensor, temperature: float
) -> torch.Tensor:
    """-sum softmax(teacher / T) log softmax(student / T), mean over samples, without T^2 (Hinton et
    al.).
    """
    return (
        -(F.softmax(teacher / temperature, dim=1) * F.log_softmax(student / temperature, dim=1))
        .sum(dim=1)
        .mean()
    )


def frozen_copy(net: nn.Module) -> nn.Module:
    """A teacher: a copy of the network as it is, in eval mode, without gradients."""
    return copy.deepcopy(net).eval().requires_grad_(False)
