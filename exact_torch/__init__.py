"""PyTorch with one answer on every machine: float64 arithmetic, and convolutions in 8 bits.

    from exact_torch import ExactArithmetic

    with ExactArithmetic():
        loss = network(inputs.double()).square().mean()
        loss.backward()

See `exact_torch.arithmetic` and `exact_torch.eight_bit`.
"""

from exact_torch.arithmetic import ARITHMETIC, ExactArithmetic
from exact_torch.digits import DIGITS
from exact_torch.replacements import NotExact

__all__ = ['ARITHMETIC', 'DIGITS', 'ExactArithmetic', 'NotExact']
