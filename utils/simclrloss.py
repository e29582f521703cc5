"""Supervised contrastive loss, and SimCLR's where there are no labels
(Khosla et al. 2020; Chen et al. 2020)."""
import torch
from torch import nn


class SupConLoss(nn.Module):
    """L_out (Khosla et al., equation 2), of anchor i: -T/T_0 1/|P(i)| sum_{p in P(i)}
    log softmax_{a != i}(z_i z_a / T)[p].

    P(i): the other views of the same sample, and all views of samples that are its positives.
    An anchor without positives costs 0.

    Args:
        temperature, base_temperature: T, T_0.
        contrast_mode: 'all': every view is an anchor; 'one': only the first of each sample.
        reduction: over anchors: 'mean', 'sum' or 'none', then (anchor views, B).
    """

    def __init__(self, temperature: float = 0.07, contrast_mode: str = 'all', base_temperature: float = 0.07,
                 reduction: str = 'mean'):
        super().__init__()
        if contrast_mode not in ('all', 'one'):
            raise ValueError(f'contrast_mode {contrast_mode!r}: expected all or one')
        if reduction not in ('mean', 'sum', 'none'):
            raise ValueError(f'reduction {reduction!r}: expected mean, sum or none')
        self.temperature, self.base_temperature = temperature, base_temperature
        self.contrast_mode, self.reduction = contrast_mode, reduction

    def forward(self, features: torch.Tensor, labels=None, mask=None) -> torch.Tensor:
        """The loss of a batch.

        Args:
            features: (B, V, D) or (B, V, ...): V views of each sample, as a rule of unit length.
            labels: (B,): samples with equal ones are each other's positives.
            mask: instead of labels, (B, B): entry (i, j) is 1 where j is a positive of i. With neither, each
                sample has but its own views.
        """
        if features.dim() < 3:
            raise ValueError(f'features of shape {tuple(features.shape)}: expected (B, V, D)')
        if labels is not None and mask is not None:
            raise ValueError('SupConLoss takes labels or mask, not both')
        features = features.flatten(2)
        B, V, D = features.shape
        if mask is None:
            labels = torch.arange(B) if labels is None else torch.as_tensor(labels).flatten()
            if len(labels) != B:
                raise ValueError(f'{len(labels)} labels for {B} samples')
            mask = labels[:, None] == labels
        views = features.transpose(0, 1).reshape(V * B, D)                 # row v * B + i: view v of sample i
        anchors = V if self.contrast_mode == 'all' else 1
        logits = views[:anchors * B] @ views.T / self.temperature               # (A B, V B)
        itself = torch.eye(anchors * B, V * B, dtype=torch.bool, device=features.device)
        log_normaliser = logits.masked_fill(itself, -torch.inf).logsumexp(1, keepdim=True)
        positives = mask.to(features.device, features.dtype).repeat(anchors, V).masked_fill(itself, 0)
        # without others, the normaliser is log 0
        log_prob = torch.where(positives > 0, logits - log_normaliser, 0)
        loss = -(positives * log_prob).sum(1) / positives.sum(1).clamp(min=1)
        loss = self.temperature / self.base_temperature * loss.view(anchors, B)
        return loss if self.reduction == 'none' else loss.sum() if self.reduction == 'sum' else loss.mean()
