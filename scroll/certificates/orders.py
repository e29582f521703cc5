"""Orders of classes that are easy or hard for a learner: from the similarity of classes.

    >>> apart = np.array([[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 2], [9, 9, 2, 0.]])
    >>> chain(apart).tolist(), dealt(chain(apart), 2).tolist()
    ([0, 1, 2, 3], [0, 2, 1, 3])
"""
import numpy as np

from scroll.errors import InputError
from scroll.statistics import Statistics


def separations(parts: Statistics) -> np.ndarray:
    """float64 (K, K): |m_a - m_b|^2 / (v_a + v_b), Fisher's ratio, the distance of classes relative to their
    width.

    v_c = tr(G_c) / n_c - |m_c|^2, in integers up to one correctly rounded division: the same on every
    machine. Classes without width have that of one unit of the grid. parts: `by_class`. InputError of one
    class."""
    if len(parts.classes) < 2:
        raise InputError('there is one class only: its order cannot matter')
    counts, n = parts.counts.tolist(), len(parts.classes)
    sums = parts.sums[:, :-1].astype(object)
    products = sums @ sums.T                                        # s_a' s_b, in 2^-36
    traces = [sum(np.diagonal(gram)[:-1].tolist()) for gram in parts.grams]
    widths = [max(trace * count - products[k, k], 1) for k, (trace, count) in enumerate(zip(traces, counts))]
    out = np.zeros((n, n))                                          # widths: v_c n_c^2
    for a in range(n):
        for b in range(a):
            p, q = counts[a], counts[b]
            gap = q * q * products[a, a] - 2 * p * q * products[a, b] + p * p * products[b, b]
            out[a, b] = out[b, a] = gap / (widths[a] * q * q + widths[b] * p * p)
    return out


def chain(apart: np.ndarray) -> np.ndarray:
    """int64 (K,): classes, each followed by the nearest of the rest; of the chains from all K beginnings the
    shortest, the first of several. Tasks cut from it hold classes that are alike. apart: `separations`."""
    best, shortest = None, np.inf
    for begin in range(len(apart)):
        order, left, length = [begin], np.ones(len(apart), bool), 0.0
        left[begin] = False
        while left.any():
            distances = np.where(left, apart[order[-1]], np.inf)
            order.append(int(distances.argmin()))
            left[order[-1]] = False
            length += distances.min()
        if length < shortest:
            best, shortest = order, length
    return np.array(best, np.int64)


def dealt(order: np.ndarray, tasks: int) -> np.ndarray:
    """int64 (K,): the classes of `order` dealt out to tasks: neighbours in it never share a task."""
    task = np.arange(len(order)) % tasks                            # sizes as `split:<tasks>` cuts them
    return np.concatenate([order[task == t] for t in range(tasks)])
