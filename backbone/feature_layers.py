"""Networks over feature vectors, without images: a linear layer, or a hidden layer before it."""

import torch
import torch.nn.functional as F
from torch import nn

from backbone import Mapless, register_backbone, xavier


@register_backbone('linear')
class Linear(Mapless):
    """(B, num_inputs) -> linear head. num_inputs: d, which the data set says."""

    def __init__(self, num_classes: int, num_inputs: int):
        super().__init__()
        self.feature_dim = num_inputs
        self.classifier = nn.Linear(self.feature_dim, num_classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return x


@register_backbone('mlp')
class Mlp(Linear):
    """(B, num_inputs) -> hidden layer with ReLU -> linear head.

    hidden_size: its units, hence features."""

    def __init__(self, num_classes: int, num_inputs: int, hidden_size: int = 512):
        super().__init__(num_classes, hidden_size)
        if hidden_size < 1:
            raise ValueError(f'hidden_size={hidden_size}: must be positive')
        self.hidden = nn.Linear(num_inputs, hidden_size)
        self.apply(xavier)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.hidden(x))
