"""Head 'auto': the one with the least cross-entropy on samples that were learned, each left out.

Ridge, nearest class mean and LDA are functions of the same sums, with a lift or without. Exact leave-one-out
says what each would predict for a sample had it not been learned, so no validation set is needed. The samples
are the buffer's: with `hash` the choice is the same under every schedule.
"""
from math import fsum

import numpy as np

from scroll.exemplars import Exemplars
from scroll.heads.registry import HEADS, Settings
from scroll.heads.scaling import cross_entropies, fit_scale
from scroll.statistics import Statistics

_CANDIDATES = ('ridge', 'lda', 'ncc')           # of equals the first
_SCALES = 1e-6, 1e6                             # of logits
_EQUAL = 1e-9                                   # losses this close, relatively, are equal


def choose_head(statistics: Statistics, settings: Settings, exemplars: Exemplars) -> tuple:
    """(name, the statistics to make it of), of the best candidate; of equals the first, and the one without
    the lift. Losses have the same bits on every machine, and so has the choice."""
    found = [(least_cross_entropy(HEADS[name], sums, settings, exemplars), name, sums)
             for sums in ([statistics.without_lift()] if statistics.lift else []) + [statistics]
             for name in _CANDIDATES]
    least = min(loss for loss, *_ in found)
    return next(rest for loss, *rest in found if loss <= least * (1 + _EQUAL))


def least_cross_entropy(head, statistics: Statistics, settings: Settings, exemplars: Exemplars) -> float:
    """Mean cross-entropy, in nats, of a head's leave-one-out logits at their best scale; samples that are
    the only one of their class do not count."""
    settings = head.settled(statistics, settings)
    online = head.make(statistics, settings)
    logits = head.left_out(online, statistics, settings, exemplars.features, exemplars.labels)
    targets = np.searchsorted(online.classes, exemplars.labels)
    losses = cross_entropies(logits, targets, fit_scale(logits, targets, _SCALES))
    losses = losses[np.isfinite(losses)]
    return fsum(losses) / max(len(losses), 1)
