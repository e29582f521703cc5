"""Discriminant analysis from the exact sums: class means, and one covariance within classes, or one
for each.

Ridge and nearest centroids see the covariance of all samples, or none; `lda` sees the one within
classes (Fisher 1936; for streams, Hayes and Kanan 2020). It needs no more than they do: counts,
sums, Gram matrix. With `qda`, from a Gram matrix for each class, each class has a covariance of its
own, drawn towards the common one (FeCAM, Goswami et al. 2023), and the prediction is quadratic in
u.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from scroll.ground.grid import GRID, GRID_BITS, on_grid
from scroll.heads.predictors import WEIGHT_BITS, LinearPredictor, check_seen, head_digest, largest
from scroll.heads.rounded import exact_trace, grid_for, least_shift, scaled, solve
from scroll.sums.lift import Lift
from scroll.sums.products import lifted_blocks
from scroll.sums.statistics import Statistics

POOLING = 1 << 10  # pooling is a multiple of 2^-10
PIECE = 18  # bits of products that are multiplied once more
_SHARE_BITS = 30  # shrinkage is a multiple of 2^-30


def lda(statistics: Statistics, shrinkage: float | str) -> LinearPredictor:
    """argmax_c x' S^-1 m_c - m_c' S^-1 m_c / 2 with exact weights, rounded; classes have equal
    priors.

    S = (1 - a) W / (N - K) + a t I with the scatter W within classes (`within_scatter`), its mean
    variance t = tr(W) / (d (N - K)) and class means m_c. Means are rounded to the grid first,
    2^-18: then W and m_c are integers, and S^-1 m_c is the solution of an integer system, rounded
    correctly (`scroll.heads.rounded`). Logits are multiplied by 1 - a. Where nothing varies within
    classes, S = I: nearest centroids.

    shrinkage: a, from 0 up to below 1, or 'oas' (`oas`).

    InputError: nothing seen, or another shrinkage."""
    means, scatter, shift, freedom = lda_system(statistics, shrinkage)
    integers = means.astype(object)
    longest = max((integers**2).sum(axis=1)) or 1  # in 2^-36
    # of a weight's squared length
    bound = Fraction(longest * freedom**2 << 2 * GRID_BITS, shift**2)
    exponent = grid_for(bound, WEIGHT_BITS)
    weights = solve(scatter, shift, freedom * means.T, exponent - GRID_BITS).T  # (K, d)
    products = (weights * integers).sum(axis=1)
    biases = [round(Fraction(-product, 2 << GRID_BITS)) for product in products]
    weights = np.column_stack([weights, np.array(biases, np.int64)])
    return LinearPredictor(statistics.classes, weights, exponent, statistics.lift)


def lda_system(statistics: Statistics, shrinkage: float | str) -> tuple:
    """(m, W, s, N - K) of the systems (W + s I) w_c = (N - K) m_c of `lda`: integers in units of
    2^-36, means of 2^-18."""
    check_seen(statistics)
    means = class_means(statistics)
    scatter = within_scatter(statistics)
    freedom = statistics.total - len(statistics.classes)
    share = oas(scatter, freedom) if isinstance(shrinkage, str) else exact_share(shrinkage)
    shift = max(_identity_part(scatter, share), least_shift(scatter))
    return means, scatter, shift, max(freedom, 1) if scatter.any() else 1


def _identity_part(scatter: np.ndarray, share: Fraction) -> int:
    """share / (1 - share) times the mean variance, in units of the scatter; 1 if nothing varies."""
    trace = exact_trace(scatter)
    return round(Fraction(trace, len(scatter)) * share / (1 - share)) if trace else GRID**2


def class_means(statistics: Statistics) -> np.ndarray:
    """s_c / n_c in units of 2^-18, rounded half to even: int64 (K, d)."""
    return scaled(statistics.sums[:, :-1], 1, statistics.counts[:, None])


def within_scatter(statistics: Statistics) -> np.ndarray:
    """W = sum_i (u_i - m)(u_i - m)', m the rounded mean of each sample's class: int64 (d, d), in
    2^-36. From the sums, G - sum_c (s_c m_c' + m_c s_c' - n_c m_c m_c'). int64 may wrap on the way:
    it comes back, since the result is at most about N 2^36, below 2^63."""
    return scatter_about(
        class_means(statistics), statistics.counts, statistics.sums, statistics.gram
    )


def scatter_about(
    means: np.ndarray, counts: np.ndarray, sums: np.ndarray, gram: np.ndarray
) -> np.ndarray:
    """Scatter about these means (K, d), from counts (K,), sums (K, d + 1) and a Gram matrix."""
    cross = sums[:, :-1].T @ means
    return gram[:-1, :-1] - (cross + cross.T) + (counts[:, None] * means).T @ means


def oas(scatter: np.ndarray, freedom: int) -> Fraction:
    """The share a of the identity that is best for normal samples, a multiple of 2^-30, at most 1 -
    2^-30. Oracle approximating shrinkage (Chen, Wiesel, Eldar and Hero 2010, eq. 23), from tr(W)
    and tr(W^2) in integers.

    scatter: int64 (d, d).
    freedom: n, of samples less classes."""
    dim = len(scatter)
    trace = exact_trace(scatter)
    squares = sum(value * value for value in scatter.ravel().tolist())
    above = (1 - Fraction(2, dim)) * squares + trace**2
    below = (freedom + 1 - Fraction(2, dim)) * (squares - Fraction(trace**2, dim))
    return exact_share(above / below if below > 0 else 1)


def exact_share(share: float | Fraction) -> Fraction:
    """Return the multiple of 2^-30, below 1, that `lda` takes for this share."""
    one = 1 << _SHARE_BITS
    return Fraction(min(round(share * one), one - 1), one)


@dataclass(frozen=True)
class QuadraticPredictor:
    """argmax_y -(h - m_y)' P_y (h - m_y), h = u or its lift; all integers, exact.

    Attributes:
        classes: (K,) sorted labels.
        means: int64 (K, D), in units of 2^-18.
        forms: int64 (K, D, D), P in units of 2^exponent; none is above `form_bits(D)` bits in size.
        lift: u -> h; None: h is u."""

    classes: np.ndarray
    means: np.ndarray
    forms: np.ndarray
    exponent: int
    lift: Lift | None = None

    @property
    def quadratic(self) -> np.ndarray:
        """P, float64 (K, D, D), exact."""
        return np.ldexp(self.forms.astype(np.float64), self.exponent)

    @property
    def linear(self) -> tuple[np.ndarray, np.ndarray]:
        """(weight (K, D), bias (K,)), float64: 2 m' P and -m' P m in the logit, 2 m' P h - m' P m -
        h' P h."""
        means = self.means / GRID
        weight = np.einsum('kd,kde->ke', means, self.quadratic)
        return 2 * weight, -(weight * means).sum(axis=1)

    def parameters(self) -> np.ndarray:
        """All forms, then all means, float64 (P,), exact."""
        return np.append(self.quadratic, self.means / GRID)

    def decision_function(self, features: np.ndarray) -> np.ndarray:
        """Logits float64 (N, K) of quantised features (N, d): the exact ones, rounded."""
        high, low = self._logits(features)
        return np.ldexp(np.ldexp(high, 2 * PIECE) + low, self.exponent - 2 * GRID_BITS)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Labels (N,) of quantised features (N, d): the class of the largest exact logit, the first
        of equals."""
        return self.classes[largest(*self._logits(features))]

    def _logits(self, features: np.ndarray) -> np.ndarray:
        """Exact logits (high, low) as one array (2, N, K)."""
        features = on_grid(features)
        out = np.empty((2, len(features), len(self.classes)))
        for rows, h in lifted_blocks(features, self.lift):
            for k, (mean, form) in enumerate(zip(self.means, self.forms)):
                out[:, rows, k] = quadratic_logits(h, mean, form.astype(np.float64))
        return out

    def digest(self) -> str:
        """SHA-256 of classes, means, forms and lift."""
        return head_digest(self, self.means, self.forms)


def quadratic_logits(h, mean, form, floor=np.floor) -> tuple:
    """Return (high, low), float64 (N,) whole numbers, 0 <= low < 2^36: logits of one class are high
    2^36 + low in 2^(exponent - 36). Differences have 19 bits and forms so few more that float64
    holds a row of their products; pieces of 18 bits of these meet the differences.

    h: (N, D); mean: (D,); form: float64 (D, D). Several classes: mean (K, D), form (K, D, D), the
    results (K, N). Arrays, or with `floor=torch.floor` tensors."""
    base = 2.0**PIECE
    difference = h - mean[..., None, :]
    rest = difference @ form
    sums = []
    for place in range(3):
        above = floor(rest / base) if place < 2 else 0.0
        sums.append(-((rest - above * base) * difference).sum(-1))
        rest = above
    carry = floor(sums[1] / base)
    below = sums[0] + (sums[1] - carry * base) * base
    more = floor(below / base**2)
    return sums[2] + carry + more, below - more * base**2


def form_bits(size: int) -> int:
    """Bits of a form's numbers for features of `size` numbers."""
    return 53 - (GRID_BITS + 1) - size.bit_length()


def qda(statistics: Statistics, pooling: float, shrinkage: float | str) -> QuadraticPredictor:
    """Mahalanobis distances with covariances C_c = (1 - a) [(1 - b) W_c / (n_c - 1) + b W / (N -
    K)] + a t I.

    W_c is the scatter of a class about its mean, W the sum of all, t = tr(W) / (D (N - K)).
    (Classes have equal priors, and determinants are left out: with a covariance of few samples they
    are noise.) Means and N - K times the covariances are rounded to integers first; the inverses
    are rounded correctly (`scroll.heads.rounded`). Logits are multiplied by 1 - a.

    pooling: b, from 0 to 1, a multiple of 2^-10. shrinkage: a, from 0 up to below 1, or 'oas', of
    W.

    InputError: nothing seen, one Gram matrix for all classes, or other parameters."""
    check_seen(statistics)
    means = class_means(statistics)
    systems, shift, factor = covariances(statistics, means, pooling, shrinkage)
    size = systems.shape[1]
    bound = Fraction(factor << 2 * GRID_BITS, shift)  # of a form's numbers
    exponent = bound.numerator.bit_length() - bound.denominator.bit_length() + 1 - form_bits(size)
    right = np.eye(size, dtype=np.int64) * (factor << 2 * GRID_BITS)
    forms = np.stack([solve(system, shift, right, exponent) for system in systems])
    return QuadraticPredictor(statistics.classes, means, forms, exponent, statistics.lift)


def covariances(
    statistics: Statistics, means: np.ndarray, pooling: float, shrinkage: float | str
) -> tuple:
    """(matrices, shift, factor): (matrices + shift I) / factor, times 1 - a, are the covariances of
    `qda`; int64 (K, D, D) in units of 2^-36. factor: N - K, or as much of it as int64 holds where
    millions of samples meet a class of few."""
    columns = (array[:, None] for array in (means, statistics.counts, statistics.sums))
    matrices = np.stack([scatter_about(*arrays) for arrays in zip(*columns, statistics.grams)])
    freedom = statistics.total - len(statistics.classes)
    pooled = matrices.sum(axis=0)
    share = oas(pooled, freedom) if isinstance(shrinkage, str) else exact_share(shrinkage)
    b = round(float(pooling) * POOLING)
    class_dof = np.maximum(statistics.counts - 1, 1).tolist()
    top = max(int(np.abs(scatter).max()) // dof + 1 for scatter, dof in zip(matrices, class_dof))
    factor = min(max(freedom, 1), ((1 << 63) - (1 << 22)) // top)
    common = scaled(pooled, factor, max(freedom, 1))
    for matrix, dof in zip(matrices, class_dof):
        scatter = scaled(matrix, factor, dof)
        matrix[:] = scaled(scatter, POOLING - b, POOLING) + scaled(common, b, POOLING)
    least = max(least_shift(matrix) for matrix in matrices)
    shift = max(_identity_part(common, share), least, 4 * len(pooled))
    return matrices, shift, factor
