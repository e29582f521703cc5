"""Progressive perceptron: a column for each task, which reads the hidden layers of the columns before it.

Rusu et al. 2016.
"""
import torch
import torch.nn.functional as F
from torch import nn

from backbone import ReturnTypes, register_backbone
from backbone.MNISTMLP import BaseMNISTMLP


class Lateral(nn.Module):
    """What one layer adds from the columns before: U relu(V [a_1 h_1, ..., a_k h_k]), equation 2.

    It is zero without columns.

    Args:
        widths: values (or channels) of each h. width_out: of the sum. layer: `layer(width_in, width_out)`,
            linear, for U and V.
    """

    def __init__(self, widths: list, width_out: int, layer):
        super().__init__()
        self.alphas = nn.ParameterList([nn.Parameter(torch.ones(())) for _ in widths])
        if widths:
            self.reduce, self.expand = layer(sum(widths), widths[0]), layer(widths[0], width_out)

    def forward(self, hidden: list):
        if not hidden:
            return 0
        scaled = torch.cat([a * h for a, h in zip(self.alphas, hidden)], dim=1)
        return self.expand(F.relu(self.reduce(scaled)))


class Frozen(nn.ModuleList):
    """The columns of earlier tasks: they learn no more, and stay in eval mode."""

    def __init__(self, columns: list = None):
        super().__init__(columns or [])
        self.requires_grad_(False).eval()

    def train(self, mode: bool = True):
        return super().train(False)


class MNISTMLP_PNN(BaseMNISTMLP):
    """(B, ...) -> two hidden layers -> linear head; the second layer and the head have lateral inputs.

    Args:
        input_size: values of an image. output_size: classes. old_cols: networks of this class, of tasks
            before.
        hidden_size: units of each hidden layer.
    """

    def __init__(self, input_size: int, output_size: int, old_cols: list = None, hidden_size: int = 100):
        super().__init__(input_size, output_size, hidden_size)
        self.old_cols = Frozen(old_cols)
        widths = [col.feature_dim for col in self.old_cols]
        self.lateral2, self.lateral_out = (Lateral(widths, width, nn.Linear)
                                           for width in (hidden_size, output_size))

    def hidden(self, x: torch.Tensor) -> tuple:
        """Both hidden layers (B, H)."""
        before = [col.hidden(x) for col in self.old_cols]
        first = F.relu(self.fc1(x.flatten(1)))
        return first, F.relu(self.fc2(first) + self.lateral2([h for h, _ in before]))

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return self.hidden(x)[1]

    def forward(self, x: torch.Tensor, returnt: ReturnTypes = 'out'):
        out = super().forward(x, returnt)
        if returnt == 'features':
            return out
        lateral = self.lateral_out([col.features(x) for col in self.old_cols])
        return out + lateral if returnt == 'out' else (out[0] + lateral, out[1])


@register_backbone('mnistmlp-pnn')
def first_column(num_classes: int, mlp_hidden_size: int = 100, mlp_input_size: int = 28 * 28) -> MNISTMLP_PNN:
    """A first column, without any before it."""
    return MNISTMLP_PNN(mlp_input_size, num_classes, None, mlp_hidden_size)
