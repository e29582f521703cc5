"""A linear head on the angle between features and class weights."""

import torch
from torch import nn


class CosineClassifier(nn.Module):
    """logit_k = scale * cos(feature, weight_k), no bias, in ER-ACE and ER-AML (Caccia et al. 2022).

    head: the linear head that it replaces, of F and K."""

    scale = 10.0  # of the paper's code
    _EPS = 1e-5  # added to both norms

    def __init__(self, head: nn.Linear):
        super().__init__()
        self.in_features = head.in_features
        self.out_features = head.out_features
        self.weight = nn.Parameter(torch.empty(head.out_features, head.in_features))
        nn.init.kaiming_uniform_(self.weight, a=5**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, F) -> (B, K)."""
        return self.scale * normalise(x) @ normalise(self.weight).T


def normalise(x: torch.Tensor) -> torch.Tensor:
    """Rows (N, F) divided by their length plus 1e-5."""
    return x / (x.norm(dim=1, keepdim=True) + CosineClassifier._EPS)
