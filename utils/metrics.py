"""Metrics of a class-incremental run, from R[i][j]: accuracy (percent) on task j <= i after task i.

Formulas as in the literature they name; Mammoth's where the two differ (its results files are what
ours are compared to).
"""

import json


def mean(values) -> float:
    """Arithmetic mean; None of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else None


def backward_transfer(R) -> float:
    """1/(T-1) sum_{j<T} (R[T][j] - R[j][j]). Lopez-Paz and Ranzato 2017. None for one task."""
    return mean(R[-1][j] - R[j][j] for j in range(len(R) - 1))


def forgetting(R) -> float:
    """1/(T-1) sum_{j<T} (max_i R[i][j] - R[T][j]), the maximum over all rows. None for one task."""
    return mean(max(row[j] for row in R[j:]) - R[-1][j] for j in range(len(R) - 1))


def forward_transfer(before, untrained) -> float:
    """1/(T-1) sum_{i>1} (R[i-1][i] - b_i). Lopez-Paz and Ranzato 2017. before: accuracy on each
    task from the second on, just before it is learned. untrained: on the same tasks before any
    training."""
    return mean(a - b for a, b in zip(before, untrained))


def average_incremental_accuracy(R) -> float:
    """mean_i mean_{j<=i} R[i][j]. Rebuffi et al. 2017."""
    return mean(mean(row) for row in R)


def as_text(R) -> str:
    """R as JSON, four digits."""
    return json.dumps([[round(a, 4) for a in row] for row in R])
