"""Checks of constructor arguments: each says in one line what was given and what is expected."""

import math
import os
from contextlib import suppress
from numbers import Integral, Real
from pathlib import Path

import numpy as np

from scroll.ground.errors import InputError, did_you_mean

MAX_COUNT = 10**9  # samples or updates: more than any run can have
MAX_SEED = 2**63 - 1
_SMALL = 1 << 28  # bytes that any machine has


def shown(value) -> str:
    """Return a value as an error names it: on one line, and short."""
    try:
        text = ' '.join(repr(value).split())
    except Exception:  # noqa: BLE001 (huge integers, and the caller's own classes, raise anything)
        text = f'of type {type(value).__name__}'
    return text if len(text) <= 80 else f'{text[:77]}...'


def whole(name: str, value, least: int = 0, most: int = MAX_COUNT) -> None:
    """InputError unless value is a whole number, Python's or numpy's, from `least` to `most`."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) <= most
    ):
        raise InputError(f'{name} {shown(value)}: expected a whole number, {least} to {most}')


def number(name: str, value, positive: bool = False) -> None:
    """InputError unless value is a finite number, 0 or more, or above 0."""
    try:
        finite = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int beyond the largest float
        finite = False
    if not finite or value < 0 or (positive and value == 0):
        expected = 'a positive number' if positive else 'a number of at least 0'
        raise InputError(f'{name} {shown(value)}: expected {expected}')


def one_of(name: str, value, choices) -> None:
    """InputError unless value is one of these texts."""
    if not isinstance(value, str) or value not in choices:
        raise InputError(
            f'{name} {shown(value)}: expected one of {", ".join(choices)}'
            f'{did_you_mean(value, choices)}'
        )


def on_off(name: str, value) -> None:
    """InputError unless value is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise InputError(f'{name} {shown(value)}: expected True or False')


def instance(name: str, value, kind: type) -> None:
    """InputError unless value is an instance of a class."""
    if not isinstance(value, kind):
        raise InputError(f'{name} {shown(value)}: expected an instance of {kind.__name__}')


def available_memory() -> int:
    """Return the bytes that can still be allocated: free and reclaimable memory and swap, within a
    container's limit.
    """
    try:
        lines = (line.split() for line in Path('/proc/meminfo').read_text().splitlines())
        sizes = {words[0]: int(words[1]) << 10 for words in lines if len(words) == 3}
        limits = [sizes['MemAvailable:'] + sizes['SwapFree:']]
    except (OSError, KeyError):  # not Linux
        limits = [os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')]
    for limit in ('memory.max', 'memory/memory.limit_in_bytes'):  # control groups, versions 2 and 1
        with suppress(OSError, ValueError):  # there is none, or it is 'max'
            limits.append(int(Path('/sys/fs/cgroup', limit).read_text()))
    return min(limits)


def check_memory(what: str, size: int) -> None:
    """InputError if an array of `size` bytes is larger than the memory that is available."""
    if size > _SMALL:
        available = available_memory()
        if size > available:
            raise InputError(
                f'{what} takes {size / 2**30:,.1f} GiB of memory: '
                f'{available / 2**30:,.1f} GiB are available'
            )


def not_installed(what: str, package: str, extra: str) -> InputError:
    """Return the error where an optional package is missing. extra: the one of pyproject.toml that
    has it.
    """
    return InputError(
        f'{what} needs {package}, which is not installed: pip install ".[{extra}]" in a checkout'
    )
