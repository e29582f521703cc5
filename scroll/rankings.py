"""Rankings of candidates for the buffer by the mean of their class: herding, and distance.

Integer arithmetic decides wherever float64 cannot, so they are the same on any machine; ties go to the first
candidate.
"""
import numpy as np

_TOGETHER = 1 << 12                 # candidates of whom all products are held at once
_NUMBERS = 1 << 20                  # of candidates that are ranked together
_SPLIT = 20                         # bits of the lower part of integers that int64 cannot hold


def herding_order(features: np.ndarray, class_sum: np.ndarray, count: int, k: int) -> np.ndarray:
    """Greedy herding: positions of the first k of the candidates, in order of choice.

    Step i takes argmin_j |mu - (f_j + sum of the chosen) / (i + 1)|, mu = class_sum / count; ties to the
    first position. float64 decides where distances are further apart than its rounding, integers where they
    are not. features: int (n, d) on the grid. class_sum: int64 (d,), of all `count` samples of the class."""
    return _herd(features[None], class_sum[None], np.array([count]), k)[0]


def herding_orders(features: list, sums: np.ndarray, counts: np.ndarray, allowed: np.ndarray) -> list:
    """Herding orders of several classes; those with the same number of candidates are made together."""
    out, by_size = [None] * len(features), {}
    for place, own in enumerate(features):
        by_size.setdefault(own.shape, []).append(place)
    for (size, dim), places in by_size.items():
        step = max(_NUMBERS // (size * dim), 1)
        for at in (places[start:start + step] for start in range(0, len(places), step)):
            orders = _herd(np.stack([features[place] for place in at]), sums[at], counts[at],
                           int(allowed[at].max()))
            for place, order in zip(at, orders):
                out[place] = order[:allowed[place]]
    return out


def by_distance(features: np.ndarray, class_sum: np.ndarray, count: int, sign: int) -> np.ndarray:
    """Candidates by distance to the class mean, nearest (sign 1) or furthest (-1) first; ties in order."""
    f = features.astype(np.float64)
    high, low = _distances((f * f).sum(axis=1), _towards(f, class_sum), 1, count)
    return np.lexsort((sign * low, sign * high))


def _herd(features: np.ndarray, class_sums: np.ndarray, counts: np.ndarray, k: int) -> np.ndarray:
    """`herding_order` of C classes that have n candidates each, at once: int64 (C, min(k, n)). features: int
    (C, n, d). class_sums: int64 (C, d). counts: int64 (C,)."""
    f, each, number = features.astype(np.float64), np.arange(len(features)), counts.astype(float)[:, None]
    towards, squares = _towards(f, class_sums), np.einsum('cnd,cnd->cn', f, f)
    rounded = 2 * (towards[0] * float(1 << _SPLIT) + towards[1])
    longest, furthest = (np.abs(part).max(axis=1, keepdims=True) for part in (squares, rounded))
    off = 2.0 ** -49 * (2 * number * longest + furthest)
    together = f.shape[1] <= min(2 * k, _TOGETHER)          # all products, or those of one after the other
    twice = 2 * np.stack([own @ own.T for own in f]) if together else None
    chosen = np.zeros((len(f), min(k, f.shape[1])), np.int64)
    for size in range(1, chosen.shape[1] + 1):  # squares: |f + s|^2 - |s|^2, s the sum of the chosen
        distances = number * squares - size * rounded       # each is off by less than half of size off
        best = distances.argmin(axis=1)
        near = distances <= distances[each, best][:, None] + size * off
        if np.count_nonzero(near) > len(f):
            for row in np.flatnonzero(near.sum(axis=1) > 1):
                at = np.flatnonzero(near[row])
                high, low = _distances(squares[row, at], [part[row, at] for part in towards], size,
                                       counts[row])
                nearest = np.flatnonzero(high == high.min())
                best[row] = at[nearest[low[nearest].argmin()]]
        chosen[:, size - 1] = best
        if size < chosen.shape[1]:
            squares += twice[each, best] if together else 2 * (f @ f[each, best][:, :, None])[..., 0]
            squares[each, best] = np.inf                    # not again
    return chosen


def _towards(f: np.ndarray, class_sum: np.ndarray) -> tuple:
    """f . class_sum as (high, low), int64 (..., n) each, in units of 2^20 and 1; exact, all is < 2^53."""
    parts = class_sum >> _SPLIT, class_sum & (1 << _SPLIT) - 1
    return tuple((f @ part.astype(np.float64)[..., None])[..., 0].astype(np.int64) for part in parts)


def _distances(squares: np.ndarray, towards: tuple, size: int, count: int) -> tuple:
    """count squares - 2 size f . class_sum as (high, low), 0 <= low < 2^20: with squares = |f + s|^2 - |s|^2
    the order of the distances of (f + s) / size from the class mean, s the sum of size - 1 others.

    int64 is enough for 2^27 samples of a class, 2^16 of them kept, and unit features of up to 2^14 numbers.
    """
    squares = squares.astype(np.int64)
    low = count * (squares & (1 << _SPLIT) - 1) - 2 * size * towards[1]
    return count * (squares >> _SPLIT) - 2 * size * towards[0] + (low >> _SPLIT), low & (1 << _SPLIT) - 1
