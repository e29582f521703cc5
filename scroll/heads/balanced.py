"""Ridge as if every class had come equally often, from the Gram matrix of each class by itself.

With classes of very different sizes, ridge fits the large ones (for streams: AIR, Fang et al. 2024). Here
each class's sums are divided by its count before ridge sees them; with classes of equal size it is ridge.
"""
import numpy as np

from scroll.grid import GRID
from scroll.heads.predictors import check_seen
from scroll.heads.rounded import scaled, smallest_units
from scroll.statistics import Statistics


def evened(statistics: Statistics) -> Statistics:
    """Statistics in which each class has t = N / K samples, rounded, 1 or more: t s_c / n_c and
    sum_c t G_c / n_c, each entry rounded half to even. InputError: nothing seen, or one Gram matrix for all
    classes."""
    check_seen(statistics)
    counts, grams = statistics.counts, statistics.grams
    share = np.full(len(counts), max(round(statistics.total / len(counts)), 1))
    sums = scaled(statistics.sums, share[:, None], counts[:, None])
    gram = sum(scaled(gram, share[0], count) for gram, count in zip(grams, counts))
    gram[-1] = gram[:, -1] = GRID * sums.sum(axis=0)        # of the constant feature: as the sums say
    return Statistics(statistics.dim, statistics.lift).assign(statistics.classes, share, sums, gram)


def usable_with(even: Statistics, alpha: float) -> float:
    """The lambda of `balanced` for this one: at least what the rounding of K Gram matrices needs."""
    return max(alpha, max(smallest_units(even.gram), len(even.classes) * len(even.gram)) / GRID ** 2)
