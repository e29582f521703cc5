"""Linear heads from statistics: nearest centroid, ridge, balanced ridge, or random, for the
ablation.

Each is a pure function of the exact statistics, so it is the same, to the last bit, under every
schedule. Weights are integers in units of a power of two: quotients and solutions of integer
systems, correctly rounded (`scroll.heads.rounded`). Logits are exact sums of integers. Hence
weights, digests and predictions are those of the data, on every machine, with every BLAS and number
of threads.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, isqrt
from typing import ClassVar, NamedTuple

import numpy as np

from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, GRID_BITS, digest_of, on_grid, quantise
from scroll.ground.randomness import numpy_stream
from scroll.heads.rounded import grid_for, least_shift, limbs_of, scaled, solve
from scroll.sums.lift import Lift
from scroll.sums.products import lifted_blocks
from scroll.sums.statistics import MAX_SAMPLES, Statistics

NCC_FACTOR = {'exact': -0.5, 'paper': -1.0, 'zero': 0.0}  # of |c|^2
WEIGHT_BITS = 47  # of the largest weight; two limbs hold it for up to 2046 features
_LOGITS = 1 << 18  # in a block, which caches hold
_ROWS = 1 << 7  # of a block, or more


@dataclass(frozen=True)
class LinearPredictor:
    """argmax_y w_y . h + b_y over unit features u, h = u or its lift; all integers, exact.

    Attributes:
        classes: (K,) sorted labels.
        units: int64 (K, D + 1), weights and, last, bias, in units of 2^exponent; none is above 2^47
            in size.
        lift: u -> h; None: h is u."""

    classes: np.ndarray
    units: np.ndarray
    exponent: int
    lift: Lift | None = None
    quadratic: ClassVar[None] = None

    @property
    def weight(self) -> np.ndarray:
        """float64 (K, D), exact."""
        return np.ldexp(self.units[:, :-1].astype(np.float64), self.exponent)

    @property
    def bias(self) -> np.ndarray:
        """float64 (K,), exact."""
        return np.ldexp(self.units[:, -1].astype(np.float64), self.exponent)

    @property
    def linear(self) -> tuple[np.ndarray, np.ndarray]:
        """(weight, bias) of logits that are linear in h; `quadratic`: the forms of others."""
        return self.weight, self.bias

    def parameters(self) -> np.ndarray:
        """All weights, then all biases, float64 (P,), exact."""
        return np.append(self.weight, self.bias)

    def decision_function(self, features: np.ndarray) -> np.ndarray:
        """Logits float64 (N, K) of quantised features (N, d): the exact ones, correctly rounded."""
        limbs, width = self.limbs()
        shift = (len(limbs) - 1) * width
        unit = self.exponent - GRID_BITS
        blocks = (exact_logits(h, limbs, width) for h in self._blocks(features))
        return np.concatenate([np.ldexp(np.ldexp(high, shift) + low, unit) for high, low in blocks])

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Labels (N,) of quantised features (N, d): the class of the largest exact logit, the first
        of equals."""
        return self.classes[np.concatenate([self._largest(h) for h in self._blocks(features)])]

    def predict_vectors(self, X: np.ndarray) -> np.ndarray:
        """Labels (N,) of feature vectors (N, d), as `predict` has them of `quantise(X, True)`.

        In float32, a logit over |x| is off by less than 2 (d + 8) 2^-24 times the largest length of
        a row of weights, and quantising moves it by at most sqrt(d) 2^-19 times that. Rows are
        quantised where another logit is closer to the largest than twice that."""
        if self.lift is not None or X.dtype.kind not in 'fiu':
            return self.predict(quantise(X, True))
        with np.errstate(all='ignore'):
            x = X.astype(np.float32, copy=False)
            lengths = np.sqrt(np.einsum('nd,nd->n', x, x))
            usual = (np.abs(np.log2(lengths)) < 30).all()
        if not usual:
            return self.predict(quantise(X, True))
        weights, longest = self._in_float64
        weights = weights.astype(np.float32)
        dim = x.shape[1]
        limit = (dim**0.5 / GRID + 4 * (dim + 8) * 2.0**-24) * longest * lengths
        rows = max(_LOGITS // max(weights.shape), _ROWS)
        parts = []
        for start in range(0, max(len(x), 1), rows):
            at = slice(start, start + rows)
            logits = x[at] @ weights[:, :-1].T + lengths[at, None] * weights[:, -1]
            least = logits.max(axis=1) - limit[at]
            near = np.count_nonzero(logits >= least[:, None], axis=1)
            parts.append((logits.argmax(axis=1), near > 1))
        best, unsure = map(np.concatenate, zip(*parts))
        labels = self.classes[best]
        labels[unsure] = self.predict(quantise(X[unsure], True))
        return labels

    def _blocks(self, features: np.ndarray):
        """Yield h, float64, for some rows at a time, so that neither all of h nor all logits are in
        memory at once."""
        rows = max(_LOGITS // len(self.units), _ROWS)
        for _, h in lifted_blocks(on_grid(features), self.lift):
            for start in range(0, max(len(h), 1), rows):
                yield h[start : start + rows].astype(np.float64)

    def _largest(self, h: np.ndarray) -> np.ndarray:
        """Columns (n,) of the largest exact logits, the first of equals.

        A float64 logit is off by at most (D + 1) 2^-53 |[h; 1]| |[w; b]|, in whatever order it is
        summed (Higham 2002, section 3.1). Where others are closer to the largest than that, exact
        logits decide."""
        weights, longest = self._in_float64
        logits = h @ weights[:, :-1].T
        logits += weights[:, -1] * GRID
        rows = np.arange(len(h))
        best = logits.argmax(axis=1)
        top = logits[rows, best]
        logits[rows, best] = -np.inf
        lengths = np.sqrt(np.einsum('nd,nd->n', h, h) + GRID**2)
        limit = top - (h.shape[1] + 5) * 2.0**-52 * longest * lengths
        unsure = np.flatnonzero(logits.max(axis=1) >= limit)
        if len(unsure):
            near = (logits[unsure] >= limit[unsure, None]).any(axis=0)
            near[best[unsure]] = True
            columns = np.flatnonzero(near)
            few = LinearPredictor(self.classes[columns], self.units[columns], self.exponent)
            best[unsure] = columns[largest(*exact_logits(h[unsure], *few.limbs()))]
        return best

    @cached_property
    def _in_float64(self) -> tuple[np.ndarray, float]:
        """(`units`, float64, exact; the largest length of a row)."""
        weights = self.units.astype(np.float64)
        return weights, np.sqrt(np.einsum('kd,kd->k', weights, weights).max())

    def limbs(self) -> tuple[list[np.ndarray], int]:
        """([float64 (K, D + 1), ...], width): whole numbers; `units` is the sum of limbs[i] 2^(i
        width)."""
        width = 53 - GRID_BITS - self.units.shape[1].bit_length()
        return limbs_of(self.units, -(-(WEIGHT_BITS + 1) // width), width), width

    def __getstate__(self) -> dict:
        return dict(vars(self))  # as of now: another thread may predict meanwhile

    def digest(self) -> str:
        """SHA-256 of classes, weights and lift."""
        return head_digest(self, self.units)


def exact_logits(h, limbs, width: int, floor=np.floor) -> tuple:
    """Return (high, low), float64 (N, K) whole numbers, 0 <= low < 2^w, w = (number of limbs - 1)
    width: logits are high 2^w + low in units of 2^(exponent - 18). Limbs are so short that no sum
    of products reaches 2^53, so every one is exact.

    h: float64 (N, D), on the grid; an array, or with `floor=torch.floor` a tensor.
    limbs, width: from `LinearPredictor.limbs`."""
    base = 2.0**width
    low = 0.0
    high = h @ limbs[0][:, :-1].T + limbs[0][:, -1] * GRID
    for place, limb in enumerate(limbs[1:]):
        carry = floor(high / base)
        low = low + (high - carry * base) * base**place
        high = carry + (h @ limb[:, :-1].T + limb[:, -1] * GRID)
    return high, low


def largest(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Columns (N,) of the largest of exact logits (high, low), the first of equals."""
    return np.where(high == high.max(axis=1, keepdims=True), low, -1).argmax(axis=1)


def head_digest(predictor, *arrays: np.ndarray) -> str:
    """SHA-256 of a predictor's labels, exponent and lift, and of these arrays of it."""
    facts = [predictor.classes.tolist(), predictor.exponent]
    if predictor.lift is not None:
        facts.append(predictor.lift.digest)
    return digest_of(facts, *arrays)


def ncc(statistics: Statistics, bias: str = 'exact') -> LinearPredictor:
    """Nearest centroids as a linear layer (paper, eq. 5), w_y = c_y, each weight rounded correctly.

    |u - c_y|^2 = |u|^2 - 2 (u . c_y - |c_y|^2 / 2), so the exact bias is -|c_y|^2 / 2. `paper` is
    the -|c_y|^2 of the paper's appendix, which lacks the factor; `zero` has no bias. The unit is
    2^-47 of the largest possible weight, 1, or of the largest bias if that is more."""
    check_seen(statistics)
    sums = statistics.sums[:, :-1]
    counts = statistics.counts
    biases = []
    for class_sum, count in zip(sums.tolist(), counts.tolist()):
        square = sum(value * value for value in class_sum)
        biases.append(Fraction(NCC_FACTOR[bias]) * Fraction(square, (count << GRID_BITS) ** 2))
    exponent = (max(ceil(max(map(abs, biases))), 1) - 1).bit_length() - WEIGHT_BITS
    weights = scaled(sums, 1 << -exponent - GRID_BITS, counts[:, None])
    ends = [round(value / Fraction(2) ** exponent) for value in biases]  # half to even, as `scaled`
    units = np.column_stack([weights, np.array(ends, np.int64)])
    return LinearPredictor(statistics.classes, units, exponent, statistics.lift)


def exact_lambda(alpha: float) -> float:
    """Return the lambda that `ridge` uses for this one: the nearest multiple of 2^-36, the unit of
    the Gram matrix; 0.10000000000582077 for 0.1."""
    return round(float(alpha) * GRID**2) / GRID**2


def ridge(statistics: Statistics, alpha: float, targets: str = 'pm1') -> LinearPredictor:
    """Ridge regression on [u; 1] (paper, eqs. 7 and 8; the constant feature, shrunk as well, is the
    bias).

    Solves (A + alpha I) W = R with A = sum [u; 1][u; 1]^T over all samples, exactly but for the
    rounding of each weight to the nearest unit. R holds the class sums S (`onehot`), or 2 S - sum_y
    S_y for targets +-1 (`pm1`), which gives the same argmax and logits twice as far apart. The
    paper's lambda is alpha / N; alpha is rounded first (`exact_lambda`).

    The unit is 2^-47 of the least power of two that is at least one of two bounds on any weight:
    sqrt(N / alpha) / 2 (a singular value s enters as s / (s^2 + alpha)), and |R_y| / alpha with
    |R_y|^2 <= (d + 1) max |R|^2.

    InputError: nothing seen, or alpha below 2^-40 of A's trace, where float64 cannot steer the
    solution."""
    system = ridge_system(statistics, targets)
    weights, exponent = ridge_weights(system, alpha, statistics.total)
    return LinearPredictor(statistics.classes, weights, exponent, statistics.lift)


class System(NamedTuple):
    """Sums that a ridge regression needs.

    Attributes:
        gram: sum x x', int64 (n, n), in units of 2^-36.
        right: sum x t', int64 (n, K), in units of 2^-18 and of the targets.
        squares: sum |t|^2, a whole number.
        total: number of samples; less one where the sums are of differences from the means."""

    gram: np.ndarray
    right: np.ndarray
    squares: int
    total: int


def ridge_system(statistics: Statistics, targets: str) -> System:
    """Return the sums of x = [u; 1] and targets t, of `ridge`; InputError: nothing seen."""
    check_seen(statistics)
    each = len(statistics.classes) if targets == 'pm1' else 1  # each target is +-1, or one is 1
    right = target_sums(statistics, targets)
    return System(statistics.gram, right, statistics.total * each, statistics.total)


def ridge_weights(system: System, alpha: float, most: int) -> tuple[np.ndarray, int]:
    """Return (int64 (K, n), e): weights in units of 2^e, each rounded correctly. most: bound on the
    sum of squares of any target."""
    gram, right, _, _ = system
    shift = usable_lambda(gram, alpha)
    top = max(int(np.abs(right).max()), 1)
    # of a weight's square
    bound = min(
        Fraction(most << 2 * GRID_BITS - 2, shift),
        Fraction(len(gram) * top**2 << 2 * GRID_BITS, shift**2),
    )
    exponent = grid_for(bound, WEIGHT_BITS)
    return solve(gram, shift, right, exponent - GRID_BITS).T, exponent


def target_sums(statistics: Statistics, targets: str) -> np.ndarray:
    """R = sum [u; 1] t^T over all samples, t the targets of `ridge`: int64 (d + 1, K) in units of
    2^-18."""
    sums = statistics.sums.T
    # the last column of the Gram matrix is sum_y S_y
    return 2 * sums - (statistics.gram[:, -1:] >> GRID_BITS) if targets == 'pm1' else sums


def usable_lambda(gram: np.ndarray, alpha: float) -> int:
    """`exact_lambda` in units of 2^-36. InputError if it is too small for this Gram matrix."""
    shift = round(float(alpha) * GRID**2)
    least = least_shift(gram)
    if shift < least:
        raise InputError(
            f'ridge lambda {alpha:g}: too small for these sums; use a '
            f'larger one, {1.01 * least / GRID**2:.3g} or more'
        )
    return shift


def evened(statistics: Statistics) -> Statistics:
    """Statistics as if every class had come equally often, for head `balanced`: with classes of
    very different sizes ridge fits the large ones (for streams: AIR, Fang et al. 2024). Each class
    has t = N / K samples, rounded, 1 or more: t s_c / n_c and sum_c t G_c / n_c, each entry rounded
    half to even.

    InputError: nothing seen, or one Gram matrix for all classes."""
    counts = statistics.counts
    share = _samples_each(statistics)
    sums = scaled(statistics.sums, share, counts[:, None])
    gram = np.zeros_like(statistics.grams[0])
    for class_gram, count in zip(statistics.grams, counts):
        gram += scaled(class_gram, share, count)
    gram[-1] = gram[:, -1] = GRID * sums.sum(axis=0)  # of the constant feature: as the sums say
    even = Statistics(statistics.dim, statistics.lift)
    return even.assign(statistics.classes, np.full_like(counts, share), sums, gram)


def _samples_each(statistics: Statistics) -> int:
    check_seen(statistics)
    count = len(statistics.counts)
    return min(round(statistics.total / count), MAX_SAMPLES // count)


def least_evened(statistics: Statistics) -> float:
    """The least lambda of `balanced`: `least_shift` of the evened Gram matrix, and twice what its
    rounding can take from an eigenvalue (`scroll.heads.rounded`). Entries are off by K / 2 at most,
    but for those of the constant feature: by 2^18 times the error of the sums, which is measured
    here."""
    share = _samples_each(statistics)
    counts = statistics.counts[:, None]
    sums = statistics.sums
    variances = scaled(statistics.grams.diagonal(axis1=1, axis2=2), share, counts).sum(axis=0)
    moved = scaled(sums, share, counts) * counts - share * sums  # below n_c: what wraps comes back
    moved = scaled(moved, 1 << 20, counts).sum(axis=0).tolist()
    rounding = 2 * counts.size * len(moved) + isqrt(sum(value * value for value in moved))
    return max(least_shift(np.diag(variances)), rounding) / GRID**2


def random_weights(statistics: Statistics, seed: int) -> LinearPredictor:
    """Weights that ignore all but the classes: uniform in +-1/sqrt(d), as in a new linear layer."""
    check_seen(statistics)
    uniform = numpy_stream(seed, 'initialisation').random(statistics.sums.shape)
    weights = (2 * uniform - 1) * (1 / np.sqrt(statistics.size))
    exponent = int(np.frexp(np.abs(weights).max())[1]) - WEIGHT_BITS
    units = np.rint(np.ldexp(weights, -exponent)).astype(np.int64)
    return LinearPredictor(statistics.classes, units, exponent, statistics.lift)


def check_seen(statistics: Statistics) -> None:
    """InputError if the statistics count no sample."""
    if not len(statistics.classes):
        raise InputError('there is no head before the first sample')
