"""Fit f_T to the sums of a state, with settings chosen for it; adapt it to f* on the buffer."""

import warnings
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from scroll.adaptation.settings import Adaptation
from scroll.ground.arguments import not_installed
from scroll.ground.errors import InputError
from scroll.ground.settings import check_settings
from scroll.heads.discriminants import QuadraticPredictor
from scroll.heads.predictors import LinearPredictor
from scroll.heads.registry import HEADS, Settings, lift_of
from scroll.learners.state import State
from scroll.sums.statistics import Statistics

if TYPE_CHECKING:
    from scroll.adaptation.training import AdaptedPredictor
    from scroll.embedding.embedder import Embedder

_UNEVEN = 1000  # times the samples of the rarest class


Predictor: TypeAlias = LinearPredictor | QuadraticPredictor


@dataclass(frozen=True)
class FittedHead:
    """f_T and what it was made of.

    Attributes:
        online: f_T.
        statistics: the sums that it was made of.
        settings: those of the head, in numbers: lambda is rounded to a multiple of 2^-36, and None
            where the head has none.
        head: its name in `scroll.heads.registry.HEADS`.
    """

    online: Predictor
    statistics: Statistics
    settings: Settings
    head: str

    def left_out(self, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Logits float64 (N, K) on learned samples, as if each had not been. Without the only
        sample of a class that class is unknown: its logit is -inf.

        features: (N, d), quantised.
        labels: (N,)."""
        statistics = self.statistics
        logits = HEADS[self.head].leaves_out(
            self.online, statistics, self.settings, features, labels
        )
        rows = np.searchsorted(statistics.classes, labels)
        alone = np.flatnonzero(statistics.counts[rows] == 1) if len(statistics.classes) > 1 else []
        logits[alone, rows[alone]] = -np.inf
        return logits


def fit_head(values: dict, state: State) -> FittedHead:
    """Make f_T of a state; values: all of `scroll.ground.settings.SETTINGS`."""
    check_settings(values)
    settings = Settings(**{field.name: values[field.name] for field in fields(Settings)})
    statistics = state.statistics
    name = values['head']
    head = HEADS[name]
    lift = lift_of(values, statistics.dim)
    if (head.by_class and not statistics.by_class) or lift != statistics.lift:
        raise InputError(
            f'head {name} needs sums{" for each class" * head.by_class} with lift {lift}: these '
            f'are with lift {statistics.lift}, so learn again'
        )
    counts = statistics.counts
    if (
        head.make is HEADS['ridge'].make
        and len(counts) > 1
        and counts.max() >= _UNEVEN * counts.min()
    ):
        warnings.warn(
            f'a class has {_UNEVEN} times the samples of another, or more: head={name!r} hardly '
            "ever finds the rare one; head='balanced' counts each class alike",
            stacklevel=5,
        )
    settings = head.with_lambda(statistics, settings)
    return FittedHead(head.make(statistics, settings), statistics, settings, name)


def adapt_head(
    fitted: FittedHead,
    state: State,
    embedder: 'Embedder | None',
    settings: Adaptation,
    seed: int,
    progress,
) -> 'AdaptedPredictor':
    """Make f* of f_T and the buffer. InputError: there is no buffer, or no torch."""
    if state.buffer is None:
        raise InputError(
            'adaptation needs a buffer: buffer_size is 0, use f_T or adaptation mode none'
        )
    exemplars = state.buffer.content()
    try:
        import torch
    except ModuleNotFoundError:
        raise not_installed('adaptation', 'torch', 'images') from None

    from scroll.adaptation.training import adapt

    left_out = fitted.left_out(exemplars.features, exemplars.labels)
    worth = HEADS[fitted.head].worth * (1 if fitted.online.lift is None else 2)
    calibrate = settings.calibrate and worth > 0
    settings = replace(settings, prior=worth * settings.prior, calibrate=calibrate)
    # whatever the caller has switched off
    with torch.inference_mode(False), torch.enable_grad():
        return adapt(embedder, fitted.online, exemplars, settings, seed, progress, left_out)
