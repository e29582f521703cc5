"""Logits as probabilities, and those of left-out samples on the scale that their labels ask for.

    >>> softmax(np.array([[0.0, np.log(3.0)]])).round(2).tolist()
    [[0.25, 0.75]]
"""
import numpy as np

from scroll.arguments import need_torch


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities float64 (N, K); each row sums to one."""
    logits = np.exp(logits - logits.max(axis=1, keepdims=True))
    return logits / logits.sum(axis=1, keepdims=True)


def calibrated(logits: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """softmax(s logits), float64 (N, K), with the one s > 0 of least mean cross-entropy on these samples
    (temperature scaling: Guo et al. 2017).

    One number fitted to N samples: of logits that leave each sample out, it changes no order of classes, and
    that much alone is learned from the sample itself.

    Args:
        logits: float64 (N, K). columns: int (N,), of the labels.
    """
    need_torch('calibration')
    from scroll.adaptation.training import calibrated_scale
    return softmax(calibrated_scale(logits, columns) * logits)
