"""Which head: the one with the least cross-entropy on samples that were learned, each left out.

Ridge, nearest class mean and LDA are functions of the same sums, of a lift's and of those within it that know
no lift. Exact leave-one-out tells what each would say of a sample had it not been learned; no validation set
is needed. The samples are the buffer's: with `hash` the choice is the same under every schedule.
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
    """(name, the statistics that it is to be made of), of the best candidate; of equals the first, and
    the one without the lift. Losses have the same bits on every machine; so the choice is the same, too."""
    found = [(least_cross_entropy(HEADS[name], sums, settings, exemplars), name, sums)
             for sums in ([statistics.without_lift()] if statistics.lift else []) + [statistics]
             for name in _CANDIDATES]
    least = min(loss for loss, *_ in found)
    return next(rest for loss, *rest in found if loss <= least * (1 + _EQUAL))


def least_cross_entropy(head, statistics: Statistics, settings: Settings, exemplars: Exemplars) -> float:
    """Mean cross-entropy, in nats, of a head's leave-one-out logits, scaled as suits them best; 0 where each
    sample is the only one of its class."""
    settings = head.settled(statistics, settings)
    online = head.make(statistics, settings)
    logits = head.left_out(online, statistics, settings, exemplars.features, exemplars.labels)
    targets = np.searchsorted(online.classes, exemplars.labels)
    losses = cross_entropies(logits, targets, fit_scale(logits, targets, _SCALES))
    losses = losses[np.isfinite(losses)]                # without classes that are unknown
    return fsum(losses) / max(len(losses), 1)
