"""Which head: the one with the least cross-entropy on samples that were learned, each left out.

Ridge, nearest class mean and LDA are functions of the same sums, of a lift's and of those within it that know
no lift. Exact leave-one-out tells what each would say of a sample had it not been learned; no validation set
is needed. The samples are the buffer's: with `hash` the choice is the same under every schedule.
"""
import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from scroll.exemplars import Exemplars
from scroll.heads.registry import HEADS, Settings
from scroll.statistics import Statistics

AUTOMATIC = 'auto'
_CANDIDATES = ('ridge', 'lda', 'ncc')           # of equals the first


def choose_head(statistics: Statistics, settings: Settings, exemplars: Exemplars) -> tuple:
    """(name, the statistics that it is to be made of), of the best candidate."""
    found = [(least_cross_entropy(HEADS[name], sums, settings, exemplars), name, sums)
             for sums in ([statistics.without_lift()] if statistics.lift else []) + [statistics]
             for name in _CANDIDATES]
    return min(found, key=lambda candidate: candidate[0])[1:]


def least_cross_entropy(head, statistics: Statistics, settings: Settings, exemplars: Exemplars) -> float:
    """Mean cross-entropy, in nats, of a head's leave-one-out logits, scaled as suits them best."""
    settings = head.settled(statistics, settings)
    online = head.make(statistics, settings)
    logits = head.left_out(online, statistics, settings, exemplars.features, exemplars.labels)
    rows, targets = np.arange(len(logits)), np.searchsorted(online.classes, exemplars.labels)

    def loss(exponent: float) -> float:
        return -float(log_softmax(np.exp(exponent) * logits, axis=1)[rows, targets].mean())
    return minimize_scalar(loss, bounds=np.log([1e-6, 1e6]), method='bounded').fun
