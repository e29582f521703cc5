"""Ridge as if every class had come equally often, from the Gram matrix of each class by itself.

With classes of very different sizes, ridge fits the large ones (for streams: AIR, Fang et al. 2024). Here
each class's sums are divided by its count before ridge sees them; with classes of equal size it is ridge.

    >>> from scroll.grid import quantise
    >>> y = np.repeat([0, 1], [90, 10])
    >>> u = quantise(np.eye(3)[y] + .1 * np.random.default_rng(0).normal(size=(100, 3)))
    >>> even = evened(Statistics(3, by_class=True).add(u, y))
    >>> even.counts.tolist(), even.total
    ([50, 50], 100)
"""
import numpy as np

from scroll.grid import GRID
from scroll.heads.predictors import check_seen
from scroll.heads.rounded import smallest_units
from scroll.statistics import Statistics


def evened(statistics: Statistics) -> Statistics:
    """Statistics in which each class has t = N / K samples, rounded: t s_c / n_c and sum_c t G_c / n_c, with
    every entry rounded to the nearest integer (of two to the even one).

    Raises:
        InputError: nothing seen, or one Gram matrix for all classes.
    """
    check_seen(statistics)
    counts, grams = statistics.counts, statistics.grams
    share = np.full(len(counts), weight_of_classes(statistics))
    sums = scaled(statistics.sums, share[:, None], counts[:, None])
    gram = sum(scaled(gram, share[0], count) for gram, count in zip(grams, counts))
    gram[-1] = gram[:, -1] = GRID * sums.sum(axis=0)        # of the constant feature: as the sums say
    return Statistics(statistics.dim, statistics.lift).assign(statistics.classes, share, sums, gram)


def weight_of_classes(statistics: Statistics) -> int:
    """t: samples that each class stands for, N / K rounded to the nearest; 1 or more."""
    return max(round(statistics.total / len(statistics.classes)), 1)


def usable_with(even: Statistics, alpha: float) -> float:
    """The lambda of `balanced` for this one: at least what the rounding of K Gram matrices needs."""
    return max(alpha, max(smallest_units(even.gram), len(even.classes) * len(even.gram)) / GRID ** 2)


def scaled(array: np.ndarray, times, over) -> np.ndarray:
    """array times / over, rounded to the nearest integer, of two to the even one: int64.

    times and over: whole, 1 to 2^31; results must be below 2^62.
    """
    whole, rest = np.divmod(array, over)
    more, rest = np.divmod(rest * times, over)
    out = whole * times + more
    return out + (2 * rest + out % 2 > over)
