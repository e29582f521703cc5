"""All heads by name: how each is made of the exact sums, its leave-one-out logits, its needs.

To add a head: a function of `Statistics`, one in `left_out` for its
leave-one-out logits, a line in `HEADS`, and its name in `scroll.ground.settings`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from scroll.ground.settings import AUTO, OAS, PUBLISHED
from scroll.heads import left_out
from scroll.heads.discriminants import lda, qda
from scroll.heads.predictors import (
    evened,
    exact_lambda,
    least_evened,
    ncc,
    random_weights,
    ridge,
    ridge_system,
)
from scroll.heads.ridge_lambda import choose_lambda
from scroll.sums.lift import Lift
from scroll.sums.statistics import Statistics


@dataclass(frozen=True)
class Settings:
    """Settings of all heads; each reads its own. `scroll.Scroll` documents them."""

    ridge_lambda: Any = 0.1
    targets: str = 'pm1'
    ncc_bias: str = 'exact'
    seed: int = 0
    shrinkage: float | str = OAS
    pooling: float = 0.5


@dataclass(frozen=True)
class Head:
    """A head.

    Attributes:
        make: (statistics, settings) -> a linear or quadratic head.
        leaves_out: its function of `scroll.heads.left_out`.
        lift: the lift that goes with it, where none is asked for.
        by_class: True if it needs a Gram matrix for each class.
        sums_for_lambda: statistics -> those that `ridge_lambda` 'auto' is chosen from; None: has
            none.
        least_lambda: statistics -> the number that lambda is raised to where it is below.
        relative: True if its logits, distances or their differences, only compare the classes of
            one sample; those of ridge stand for themselves.
        worth: the exemplars that its f_T counts for in f*, in those of ridge: means alone take
            less from all samples than a Gram matrix, covariances more. 0: it says nothing, and its
            scale is not calibrated either, since by chance any scale may be the best."""

    make: Callable
    leaves_out: Callable
    lift: str | None = None
    by_class: bool = False
    sums_for_lambda: Callable | None = None
    least_lambda: Callable = lambda statistics: 0.0
    relative: bool = False
    worth: float = 1.0

    def with_lambda(self, statistics: Statistics, settings: Settings) -> Settings:
        """The settings with the lambda in use, chosen from the statistics if it is 'auto'; None:
        has none."""
        if self.sums_for_lambda is None:
            return replace(settings, ridge_lambda=None)
        alpha = settings.ridge_lambda
        least = self.least_lambda(statistics)
        if alpha == AUTO:
            system = ridge_system(self.sums_for_lambda(statistics), settings.targets)
            alpha = choose_lambda(system, least)
        return replace(settings, ridge_lambda=max(exact_lambda(alpha), least))


_RIDGE = Head(
    lambda statistics, settings: ridge(statistics, settings.ridge_lambda, settings.targets),
    left_out.ridge_left_out,
    sums_for_lambda=lambda statistics: statistics,
)
HEADS = {
    'ridge': _RIDGE,
    'ncc': Head(
        lambda statistics, settings: ncc(statistics, settings.ncc_bias),
        left_out.ncc_left_out,
        relative=True,
        worth=0.25,
    ),
    'lda': Head(
        lambda statistics, settings: lda(statistics, settings.shrinkage),
        left_out.lda_left_out,
        relative=True,
        worth=2.0,
    ),
    'rp': replace(_RIDGE, lift='relu'),
    'rff': replace(_RIDGE, lift='fourier'),
    'balanced': Head(
        lambda statistics, settings: ridge(
            evened(statistics), settings.ridge_lambda, settings.targets
        ),
        left_out.balanced_left_out,
        by_class=True,
        sums_for_lambda=evened,
        least_lambda=least_evened,
    ),
    'qda': Head(
        lambda statistics, settings: qda(statistics, settings.pooling, settings.shrinkage),
        left_out.qda_left_out,
        by_class=True,
        relative=True,
        worth=2.0,
    ),
    'random': Head(
        lambda statistics, settings: random_weights(statistics, settings.seed),
        lambda online, statistics, settings, features, labels: online.decision_function(features),
        worth=0.0,
    ),
}
HEADS |= {name: replace(HEADS[head], lift=lift) for name, (head, lift) in PUBLISHED.items()}


def lift_of(settings: dict, dim: int) -> Lift | None:
    """The lift that the settings of a learner ask for, of features of `dim` numbers."""
    kind = settings['lift']
    if kind == AUTO:
        kind = HEADS[settings['head']].lift
    if kind in ('none', None):
        return None
    return Lift(kind, dim, settings['lift_dim'], settings['lift_seed'], settings['lift_bandwidth'])
