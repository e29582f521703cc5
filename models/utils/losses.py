"""Losses that several methods share."""

import copy

import torch
import torch.nn.functional as F
from torch import nn


def masked_cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, allowed: torch.Tensor
) -> torch.Tensor:
    """Cross-entropy of a softmax over the allowed classes; other logits get a gradient of zero.

    logits: (B, K).
    labels: int64 (B,), all of them allowed.
    allowed: bool (K,)."""
    return F.cross_entropy(logits.masked_fill(~allowed, torch.finfo(logits.dtype).min), labels)


def softened_cross_entropy(
    teacher: torch.Tensor, student: torch.Tensor, temperature: float
) -> torch.Tensor:
    """-sum softmax(teacher / T) log softmax(student / T), mean over samples (Hinton et al. 2015).

    Without their factor T^2."""
    return F.cross_entropy(student / temperature, F.softmax(teacher / temperature, dim=1))


def frozen_copy(net: nn.Module) -> nn.Module:
    """A teacher: a copy of the network as it is, in eval mode, without gradients."""
    return copy.deepcopy(net).eval().requires_grad_(False)
