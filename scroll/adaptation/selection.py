"""Choose f_T, f* or a mixture by cross-validation within the buffer.

The exemplars are cut into folds. f_T without the samples of a fold (the exact sums without them) is
adapted on the others and predicts these; so with one fold after the other, until enough samples
have been predicted. Candidates are two numbers of updates, and two shares of the way from f_T to
f*: interpolation of all weights (Wortsman et al. 2022). The one of least cross-entropy on held-out
samples is taken, if that is below f_T's by more than one standard error of the difference and no
fewer are right; if not, f* is f_T.
"""

import copy
from dataclasses import dataclass, replace

import numpy as np

from scroll.adaptation.settings import Adaptation
from scroll.adaptation.training import AdaptedPredictor, adaptation_path
from scroll.heads.scaling import cross_entropies, fit_scale
from scroll.sums.exemplars import Exemplars, herding_order

# of the updates; of the way from f_T to f*
STOPS = (1 / 3, 1.0)
SHARES = (0.5, 1.0)


@dataclass(frozen=True)
class Trial:
    """Predictions of a candidate on held-out samples.

    Attributes:
        updates, share: the candidate; both 0 for f_T. loss: mean cross-entropy, nats. gain: how far
        below
            f_T's, and error: the standard error of that. accuracy: 0 to 1."""

    updates: int
    share: float
    loss: float
    gain: float
    error: float
    accuracy: float


def select(
    embedder,
    exemplars: Exemplars,
    settings: Adaptation,
    seed: int,
    without,
    herded: bool,
    progress=None,
) -> list:
    """Trials of all candidates, f_T first; none if the buffer is too small to leave a fold out.
    without: positions of exemplars -> (f_T without these, its leave-one-out logits on the rest).
    herded: whether the exemplars were chosen for their common mean. The others as
    `scroll.adaptation.training.adapt`."""
    stops = sorted({max(round(share * settings.iterations), 1) for share in STOPS})
    logits = {(0, 0.0): [], **{(stop, share): [] for stop in stops for share in SHARES}}
    columns = []
    for held in folds(exemplars, settings.folds, settings.held_out, herded):
        rest = np.setdiff1d(np.arange(len(exemplars)), held)
        if len(rest) < 2:  # too few to adapt on
            continue
        online, left_out = without(held)
        probes = exemplars.at(held[np.isin(exemplars.labels[held], online.classes)])
        samples = probes.features if embedder is None else probes.samples
        path = adaptation_path(
            embedder, online, exemplars.at(rest), settings, seed, [0, *stops], progress, left_out
        )
        f_T = next(path)
        logits[0, 0.0].append(f_T.decision_function(samples))
        for stop, f_star in zip(stops, path):
            for share in SHARES:
                logits[stop, share].append(between(f_T, f_star, share).decision_function(samples))
        columns.append(np.searchsorted(online.classes, probes.labels))
    if not columns:
        return []
    widest = max(z.shape[1] for z in logits[0, 0.0])
    return compared(
        {
            candidate: np.concatenate(
                [
                    np.pad(z, ((0, 0), (0, widest - z.shape[1])), constant_values=-np.inf)
                    for z in parts
                ]
            )
            for candidate, parts in logits.items()
        },
        np.concatenate(columns),
    )


def compared(logits: dict, columns: np.ndarray) -> list:
    """A `Trial` of each candidate: its logits (N, K), with the one scale that suits all of them
    best, and the columns (N,) of the true classes. The first is f_T's."""
    losses = {
        candidate: cross_entropies(z, columns, fit_scale(z, columns, (1e-3, 1e3)))
        for candidate, z in logits.items()
    }
    first = next(iter(losses.values()))
    out = []
    for candidate, of_each in losses.items():
        gain = first - of_each
        error = gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else np.inf
        right = logits[candidate].argmax(axis=1) == columns
        means = [float(values.mean()) for values in (of_each, gain, right)]
        updates, share = candidate
        out.append(Trial(updates, share, means[0], means[1], float(error), means[2]))
    return out


def chosen(trials: list[Trial]) -> Trial | None:
    """The best of the trials; the first, f_T, where no other is surely better; None of none."""
    sure = [
        trial
        for trial in trials[1:]
        if trial.gain > trial.error and trial.accuracy >= trials[0].accuracy
    ]
    return min(sure, key=lambda trial: trial.loss, default=trials[0] if trials else None)


def adapt_selected(
    embedder, online, exemplars, settings, seed, without, herded, progress=None, left_out=None
) -> tuple:
    """(f*, or None where f_T is as good; the trials). Arguments as `select` and
    `scroll.adaptation.training.adapt`."""
    trials = select(embedder, exemplars, settings, seed, without, herded, progress)
    best = chosen(trials)
    if best is None or not best.updates:
        return None, trials
    path = adaptation_path(
        embedder,
        online,
        exemplars,
        replace(settings, iterations=best.updates),
        seed,
        [0, best.updates],
        progress,
        left_out,
    )
    return between(next(path), next(path), best.share), trials


def folds(exemplars: Exemplars, count: int, asked: int, herded: bool) -> list:
    """Positions of the samples of the first of `count` folds that have `asked` samples together, or
    of all. Herded samples balance each other: without some of them the others are off the class
    mean. The beginning of their order is not, so folds are cut from its end."""
    cut = [[] for _ in range(count)]
    for label in np.unique(exemplars.labels):
        rows = np.flatnonzero(exemplars.labels == label)
        if herded:
            features = exemplars.features[rows]
            of_all = features.sum(axis=0, dtype=np.int64)
            rows = rows[herding_order(features, of_all, len(rows), len(rows))][::-1]
        for fold, part in zip(cut, np.array_split(rows, count)):
            fold.append(part)
    cut = [at for at in map(np.concatenate, cut) if len(at)]
    before = np.cumsum([0, *map(len, cut[:-1])])
    return [np.sort(at) for at, number in zip(cut, before) if number < asked]


def between(f_T: AdaptedPredictor, f_star: AdaptedPredictor, share: float) -> AdaptedPredictor:
    """The predictor with weights (1 - share) of f_T's and `share` of f*'s."""
    if share == 1:
        return f_star
    out = copy.copy(f_star)
    for name in ('weight', 'bias', 'scale'):
        a = getattr(f_T, name)
        b = getattr(f_star, name)
        setattr(out, name, a + (share if name == 'scale' else a.dtype.type(share)) * (b - a))
    if f_star.embedder is not None:
        net = copy.deepcopy(f_star.embedder.pristine)
        start = f_T.embedder.pristine.state_dict()
        net.load_state_dict(
            {
                name: start[name] + share * (value - start[name])
                if value.is_floating_point()
                else value
                for name, value in net.state_dict().items()
            }
        )
        out.embedder = f_star.embedder.with_net(net)
    return out
