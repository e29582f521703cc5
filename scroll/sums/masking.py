"""Secure sums: a server adds statistics that it cannot read.

Each two parties share a secret. One of them adds the random bits that it expands to, the other
subtracts them, modulo 2^64. What a party sends is random to all who lack its secrets, and the sum
of all parties is, to the bit, what `Statistics.merge` gives: nothing is clipped or rounded. This is
the masking of Bonawitz et al. 2017 without their recovery of a party that drops out: a round that
lacks one is repeated, under another name, among the others.

    >>> a, b = (Statistics(2).add(np.array([[3, 4]]), [label]) for label in (0, 1))
    >>> parts = [
    ...     mask_statistics(s, me, {other: b'16 random bytes.'}, [0, 1], 'day 1')
    ...     for s, me, other in ((a, 'a', 'b'), (b, 'b', 'a'))
    ... ]
    >>> sum_masked(parts, [0, 1], Statistics(2)) == a.merge(b)
    True
"""

import hashlib
import json

import numpy as np

from scroll.ground.errors import InputError, prefixed
from scroll.ground.labels import check_labels
from scroll.sums.statistics import Statistics, in_rows


def mask_statistics(
    statistics: Statistics, party: str, secrets: dict[str, bytes], classes, round: str
) -> np.ndarray:
    """Return what a party may send: uint64 (P,), of as many numbers as the statistics of all
    `classes` have.

    Args:
        statistics: of the party's own samples.
        party: its name.
        secrets: of every other party's name, the secret shared with it: 16 random bytes or more.
        classes: all labels that any party may have, the same for all of them.
        round: name of this sum; of no other. Two sums under one name would show their difference.

    InputError: a sample of another class; no secret, or one that is short or the party's own."""
    if not secrets or party in secrets or min(map(len, secrets.values())) < 16:
        raise InputError('secrets: expected 16 random bytes or more for each other party')
    classes = np.unique(check_labels(classes))
    seen, *arrays = statistics.state_dict().values()
    if not np.isin(seen, classes).all():
        raise InputError('classes: these statistics have others')
    in_classes = 3 if statistics.by_class else 2
    rows = [in_rows(array, seen, classes) for array in arrays[:in_classes]]
    out = np.concatenate([array.ravel() for array in (*rows, *arrays[in_classes:])])
    out = out.view(np.uint64) + _noise(_terms(classes, statistics), out)
    for other, secret in secrets.items():
        pair = json.dumps([round, *sorted([party, other])]).encode()
        bits = _noise(len(secret).to_bytes(8, 'big') + secret + pair, out)
        out = out + bits if party < other else out - bits
    return out


def _terms(classes: np.ndarray, statistics: Statistics) -> bytes:
    """All that parties and server must agree on."""
    return json.dumps([classes.tolist(), str(statistics.lift)]).encode()


def _noise(content: bytes, like: np.ndarray) -> np.ndarray:
    return np.frombuffer(hashlib.shake_256(content).digest(like.nbytes), '<u8')


def sum_masked(parts, classes, like: Statistics) -> Statistics:
    """Return the statistics of all samples of all parties.

    Args:
        parts: what `mask_statistics` returned to each party, in any order.
        classes: as there.
        like: statistics of the same features, lift and `by_class`; their samples do not count.

    InputError: a part is missing, or is of another round, of other classes, lift or secrets."""
    classes = np.unique(check_labels(classes))
    counts = len(classes)
    size = like.size + 1
    shape = (counts, size, size) if like.by_class else (size, size)
    total = np.zeros(counts * (size + 1) + int(np.prod(shape)), np.uint64)
    noise = _noise(_terms(classes, like), total)
    with prefixed('a part is missing, or of another round, classes, lift or secrets'):
        for part in parts:
            if part.shape != total.shape or part.dtype != np.uint64:
                raise InputError(f'expected {len(total)} numbers, uint64, not {part.shape}')
            total = total + part - noise
        n, sums, gram = np.split(total.view(np.int64), [counts, counts * (size + 1)])
        seen = n != 0
        gram = gram.reshape(shape)
        arrays = {
            'classes': classes[seen],
            'counts': n[seen],
            'sums': sums.reshape(counts, size)[seen],
            'gram': gram[seen] if like.by_class else gram,
        }
        return Statistics.from_arrays(arrays, like.lift)
