"""Mahalanobis distance to each class with a covariance of its own, from the Gram matrix of each class.

Where `lda` has one covariance within classes for all, here each class has its own, drawn towards the common
one (FeCAM, Goswami et al. 2023). The prediction is quadratic in u.
"""
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from scroll.grid import GRID_BITS, on_grid
from scroll.heads.lda import class_means, degrees, exact_share, oas
from scroll.heads.predictors import check_seen, digest_of, largest
from scroll.heads.rounded import scaled, smallest_units, solve
from scroll.lift import Lift
from scroll.settings import OAS
from scroll.statistics import Statistics, lifted_blocks

POOLING = 1 << 10                  # pooling is a multiple of 2^-10
PIECE = 18                         # bits of products that are multiplied once more


@dataclass(frozen=True)
class QuadraticPredictor:
    """argmax_y -(h - m_y)' P_y (h - m_y), h = u or its lift; all integers, exact.

    Attributes:
        classes: (K,) sorted labels. means: int64 (K, D), in units of 2^-18. forms: int64 (K, D, D), P in
            units of 2^exponent; none is above `form_bits(D)` bits in size. lift: u -> h; None: h is u."""
    classes: np.ndarray
    means: np.ndarray
    forms: np.ndarray
    exponent: int
    lift: Lift = None

    @property
    def quadratic(self) -> np.ndarray:
        """P, float64 (K, D, D), exact."""
        return np.ldexp(self.forms.astype(np.float64), self.exponent)

    @property
    def linear(self) -> tuple:
        """(weight (K, D), bias (K,)), float64: of -(h - m)' P (h - m) = 2 m' P h - m' P m - h' P h."""
        means = np.ldexp(self.means.astype(np.float64), -GRID_BITS)
        weight = np.einsum('kd,kde->ke', means, self.quadratic)
        return 2 * weight, -(weight * means).sum(axis=1)

    def parameters(self) -> np.ndarray:
        """All forms, then all means, float64 (P,), exact."""
        return np.append(self.quadratic.ravel(), np.ldexp(self.means.astype(np.float64), -GRID_BITS).ravel())

    def decision_function(self, features: np.ndarray) -> np.ndarray:
        """Logits float64 (N, K) of quantised features (N, d): the exact ones, rounded."""
        high, low = self._logits(features)
        return np.ldexp(np.ldexp(high.astype(np.float64), 2 * PIECE) + low, self.exponent - 2 * GRID_BITS)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Labels (N,) of quantised features (N, d): of the largest exact logit, the first of equals."""
        return self.classes[largest(*self._logits(features))]

    def _logits(self, features: np.ndarray) -> tuple:
        """(high, low), int64 (N, K), 0 <= low < 2^36: logits are high 2^36 + low in 2^(exponent - 36).

        Differences have 19 bits and forms so few more that float64 holds a row of their products; of these,
        pieces of 18 bits are multiplied by the differences again."""
        features = on_grid(features)
        high, low = (np.empty((len(features), len(self.classes)), np.int64) for _ in range(2))
        for rows, h in lifted_blocks(features, self.lift):
            for k, (mean, form) in enumerate(zip(self.means, self.forms)):
                difference = (h - mean).astype(np.float64)
                products, total = (difference @ form.astype(np.float64)).astype(np.int64), []
                for _ in range(3):
                    piece = products & (1 << PIECE) - 1 if len(total) < 2 else products
                    products = products >> PIECE
                    squares = np.einsum('nd,nd->n', piece.astype(np.float64), difference)
                    total.append(-squares.astype(np.int64))
                below = total[0] + ((total[1] & (1 << PIECE) - 1) << PIECE)
                high[rows, k] = total[2] + (total[1] >> PIECE) + (below >> 2 * PIECE)
                low[rows, k] = below & (1 << 2 * PIECE) - 1
        return high, low

    def digest(self) -> str:
        """SHA-256 of classes, means, forms and lift."""
        return digest_of(self.classes, self.exponent, self.lift, self.means, self.forms)


def form_bits(size: int) -> int:
    """Bits of a form's numbers for features of `size` numbers."""
    return 53 - (GRID_BITS + 1) - size.bit_length()


def qda(statistics: Statistics, pooling: float = .5, shrinkage: float | str = OAS) -> QuadraticPredictor:
    """Mahalanobis distances with covariances C_c = (1 - a) [(1 - b) W_c / (n_c - 1) + b W / (N - K)] + a t I.

    W_c is the scatter of a class about its mean, W the sum of all, t = tr(W) / (D (N - K)). (Classes have
    equal priors, and determinants are left out: with a covariance of few samples they are noise.)
    Means and N - K times the covariances are rounded to integers first; the inverses are rounded correctly
    (`scroll.heads.rounded`). Logits are multiplied by 1 - a.

    pooling: b, from 0 to 1, a multiple of 2^-10. shrinkage: a, from 0 up to below 1, or 'oas', of W.

    InputError: nothing seen, one Gram matrix for all classes, or other parameters."""
    check_seen(statistics)
    means = class_means(statistics)
    systems, units = covariances(statistics, means, pooling, shrinkage)
    size, freedom = systems.shape[1], max(degrees(statistics), 1)
    bound = Fraction(freedom << 2 * GRID_BITS, units)                           # of a form's numbers
    exponent = bound.numerator.bit_length() - bound.denominator.bit_length() + 1 - form_bits(size)
    one = np.eye(size, dtype=np.int64) * (freedom << 2 * GRID_BITS)
    forms = np.stack([solve(system, units, one, exponent) for system in systems])
    return QuadraticPredictor(statistics.classes, means, forms, exponent, statistics.lift)


def covariances(statistics: Statistics, means: np.ndarray, pooling: float, shrinkage) -> tuple:
    """(N - K) / (1 - a) times the covariances without their diagonal part, int64 (K, D, D), and that part;
    both in units of 2^-36."""
    scatters, freedom = class_scatters(statistics, means), max(degrees(statistics), 1)
    pooled = scatters.sum(axis=0)
    b = round(float(pooling) * POOLING)
    a = oas(pooled, degrees(statistics)) if shrinkage == OAS else exact_share(shrinkage)
    for k, count in enumerate(statistics.counts.tolist()):
        own = scaled(scatters[k], freedom, max(count - 1, 1))
        scatters[k] = scaled(own, POOLING - b, POOLING) + scaled(pooled, b, POOLING)
    trace = sum(np.diagonal(pooled).tolist())
    units = round(Fraction(trace, len(pooled)) * a / (1 - a)) if trace else 1 << 2 * GRID_BITS
    return scatters, max(units, *(smallest_units(system) for system in scatters), 4 * len(pooled))


def class_scatters(statistics: Statistics, means: np.ndarray) -> np.ndarray:
    """sum (u - m)(u - m)' over each class, m its rounded mean: int64 (K, D, D), in units of 2^-36."""
    out = statistics.grams[:, :-1, :-1].copy()
    for scatter, mean, total, count in zip(out, means, statistics.sums[:, :-1], statistics.counts):
        cross = np.outer(total, mean)
        scatter += count * np.outer(mean, mean) - (cross + cross.T)
    return out
