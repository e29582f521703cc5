"""Several embedders as one: the features of each, of unit length, side by side.

Two networks that differ are worth more than the better one alone (docs/heads.md), and no sample is
kept for it. There is no one network that could be adapted, so f* is for a single embedder.
"""

import hashlib

import numpy as np

from scroll.embedding.images import check_images
from scroll.ground.errors import InputError
from scroll.ground.grid import quantise, sample_keys

_IMAGES = 1 << 10  # at once


class SideBySide:
    """Embedders of the same images, as one embedder for `Scroll`.

    Args:
        embedders: two or more, of any networks, sizes and dtypes. InputError: fewer.

    Attributes:
        digest: hex SHA-256 of their digests, in their order.
        dim: the sum of theirs.
        dtype: 'exact' where features are the same on every machine, else 'float32'.
        valid_on: the machines on which they are."""

    def __init__(self, *embedders):
        if len(embedders) < 2:
            raise InputError(f'{len(embedders)} embedders side by side: expected two or more')
        self.embedders = embedders
        digests = ' '.join(one.digest for one in embedders)
        self.digest = hashlib.sha256(digests.encode()).hexdigest()
        self.dim = sum(one.dim for one in embedders)
        places = sorted({one.valid_on for one in embedders} - {'every machine'})
        self.dtype = 'float32' if places else 'exact'
        self.valid_on = '; '.join(places) or 'every machine'

    def features(self, images) -> np.ndarray:
        """Return features float32 (N, d), each part of unit length. images: as of
        `Embedder.features`."""
        parts = [quantise(one.features(images)) for one in self.embedders]
        return np.hstack(parts).astype(np.float32)

    def __call__(self, images, progress=None, keep: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Return quantised unit features int32 (N, d) and keys uint64 (N,), as `Embedder`."""
        images = check_images(images)
        out = np.empty((len(images), self.dim), np.int32)
        for start in range(0, len(images), _IMAGES):
            at = slice(start, start + _IMAGES)
            parts = [one(images[at], keep=keep)[0] for one in self.embedders]
            out[at] = quantise(np.hstack(parts))
            if progress:
                progress(len(parts[0]))
        return out, sample_keys(images)

    def forget(self, images) -> None:
        """Take these images' features out of the caches."""
        for one in self.embedders:
            one.forget(images)

    def flush(self) -> None:
        """Write what the caches hold to disk."""
        for one in self.embedders:
            one.flush()


def check_single(embedder, what: str) -> None:
    """Raise InputError for several embedders side by side. what: needs one network."""
    if isinstance(embedder, SideBySide):
        raise InputError(f'{what} needs one network: {len(embedder.embedders)} are side by side')
