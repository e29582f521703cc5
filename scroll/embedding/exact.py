"""Exact arithmetic (`exact_torch`) whose errors are `InputError`."""

from contextlib import contextmanager

import torch

from exact_torch import ExactArithmetic, NotExact
from scroll.ground.errors import InputError


@contextmanager
def exact_arithmetic(device: torch.device | str = 'cpu', fast: bool = False):
    """An `ExactArithmetic` block; InputError for what is not known to be exact."""
    try:
        with ExactArithmetic(device, fast):
            yield
    except NotExact as error:
        raise InputError(str(error)) from error
