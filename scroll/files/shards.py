"""Shares of samples that machines cut without talking to each other, by the samples' bytes."""

import argparse
import re

import numpy as np

from scroll.ground.grid import sample_keys


def shard(text: str) -> str:
    """Command-line type: 'i/n', the i-th of n shares, counted from 1."""
    match = re.fullmatch(r'([0-9]{1,9})/([0-9]{1,9})', text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(
            f'{text!r}: expected i/n, the i-th of n shares: 1/4, 2/4, 3/4 or 4/4'
        )
    return text


def in_shard(samples: np.ndarray, text: str) -> np.ndarray:
    """Return bool (N,): True for samples in the share. A function of their bytes alone: uint8
    pixels (N, H, W, C), or features on the grid (N, d)."""
    which, count = map(int, text.split('/'))
    return sample_keys(samples) % np.uint64(count) == which - 1
