"""Exact arithmetic (`exact_torch`) whose errors are `InputError`; the class is there under its
earlier name, for one version."""

from contextlib import contextmanager

import torch

from exact_torch import ExactArithmetic, NotExact
from scroll.ground.errors import InputError

__all__ = ['ExactArithmetic', 'exact_arithmetic']


@contextmanager
def exact_arithmetic(device: torch.device | str = 'cpu', fast: bool = False):
    """An `ExactArithmetic` block; InputError for what is not known to be exact."""
    try:
        with ExactArithmetic(device, fast):
            yield
    except NotExact as error:
        raise InputError(str(error)) from error
