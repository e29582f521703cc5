"""Batch norms with a scale and a shift for each class, domain or task (Dumoulin et
al. 2017; de Vries et al. 2017)."""
import torch
from torch import nn


class _Conditional(nn.Module):
    """Batch norm without affine part; then sample i is scaled and shifted by row
    `condition[i]` of `weight` and `bias`.

    Args:
        num_features: channels C. num_conditions: rows. options: of the batch norm (eps, momentum,
            track_running_stats).
    """
    NORM: type

    def __init__(self, num_features: int, num_conditions: int, **options):
        super().__init__()
        self.bn = self.NORM(num_features, affine=False, **options)
        self.weight = nn.Parameter(torch.ones(num_conditions, num_features))
        self.bias = nn.Parameter(torch.zeros(num_conditions, num_features))

    def forward(self, x: torch.Tensor, condition) -> torch.Tensor:
        """(B, C, ...) and int64 (B,), or one number for all, -> the shape of `x`."""
        rows = torch.as_tensor(condition, device=x.device).expand(len(x))
        shape = *x.shape[:2], *[1] * (x.dim() - 2)
        return self.bn(x) * self.weight[rows].view(shape) + self.bias[rows].view(shape)


class ConditionalBatchNorm1d(_Conditional):
    """Of vectors (B, C), or (B, C, L)."""
    NORM = nn.BatchNorm1d


class ConditionalBatchNorm2d(_Conditional):
    """Of maps (B, C, H, W)."""
    NORM = nn.BatchNorm2d
