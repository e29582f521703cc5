"""Triplet losses of a batch, with the hardest samples for each anchor (Hermans et al. 2017,
"In defense of the triplet loss")."""
import torch
import torch.nn.functional as F


def batch_hard_triplet_loss(labels: torch.Tensor, embeddings: torch.Tensor, k: int = 1, margin: float = 0,
                            margin_type: str = 'soft') -> torch.Tensor:
    """Mean over anchors of hinge(d(a, p) - d(a, n) + margin): p the farthest of its class, n
    the nearest of another (equation 5).

    Anchors without a positive or a negative are left out; without any the loss is 0.

    Args:
        labels: int (B,). embeddings: (B, D). k: means over the k farthest and k nearest, as far as there are
            so many.
        margin_type: 'soft': log(1 + exp(.)); 'hard': max(0, .).
    """
    distances = _distances(embeddings)
    same = labels[:, None] == labels
    positives = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    ready = positives.any(1) & (~same).any(1)
    farthest = _mean_of_hardest(distances, positives, k, largest=True)
    gaps = farthest - _mean_of_hardest(distances, ~same, k, largest=False)
    return _mean(_hinge(gaps + margin, margin_type), ready)


def negative_only_triplet_loss(labels: torch.Tensor, embeddings: torch.Tensor, k: int = 1, margin: float = 0,
                               margin_type: str = 'soft') -> torch.Tensor:
    """Mean over anchors of hinge(margin - d(a, n)), n the k nearest samples of other
    classes: these only are pushed away.

    Arguments as above. Anchors without a negative are left out.
    """
    others = labels[:, None] != labels
    gaps = -_mean_of_hardest(_distances(embeddings), others, k, largest=False)
    return _mean(_hinge(gaps + margin, margin_type), others.any(1))


def _distances(embeddings: torch.Tensor) -> torch.Tensor:
    """Euclidean, (B, B); where two samples are the same, their gradient is 0."""
    squares = (embeddings[:, None] - embeddings).square().sum(2)
    return torch.where(squares > 0, squares.clamp(min=1e-24).sqrt(), 0)


def _mean_of_hardest(distances, allowed, k: int, largest: bool) -> torch.Tensor:
    """(B,): mean of the k largest (or smallest) allowed distances of each row; 0 where nothing is allowed."""
    ordered = distances.masked_fill(~allowed, -torch.inf if largest
                                    else torch.inf).sort(1, descending=largest).values[:, :k]
    real = torch.isfinite(ordered)
    return torch.where(real, ordered, 0).sum(1) / real.sum(1).clamp(min=1)


def _hinge(gaps: torch.Tensor, margin_type: str) -> torch.Tensor:
    if margin_type not in ('soft', 'hard'):
        raise ValueError(f'margin_type {margin_type!r}: expected soft or hard')
    return F.softplus(gaps) if margin_type == 'soft' else F.relu(gaps)


def _mean(losses: torch.Tensor, ready: torch.Tensor) -> torch.Tensor:
    return (losses * ready).sum() / ready.sum().clamp(min=1)
