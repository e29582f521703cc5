"""SCROLL as a classifier of CapyMOA: for `ocl_train_eval_loop` and `prequential_evaluation`, in
batches.
"""

import torch
from capymoa.base import BatchClassifier
from capymoa.stream import Schema
from sklearn.base import clone

from scroll.learners.estimators import ScrollClassifier


class CapyMOAScroll(BatchClassifier):
    """schema: of the stream. classifier: a `ScrollClassifier`, of which a copy learns; None: one
    with its defaults. `learner` is what has learned, to save, merge, export."""

    def __init__(self, schema: Schema, classifier: ScrollClassifier = None):
        super().__init__(schema)
        self.learner = clone(classifier or ScrollClassifier())

    def batch_train(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Count samples: x float32 (B, d), y int64 (B,), positions among the labels of the schema."""
        self.learner.partial_fit(x.cpu().numpy(), y.cpu().numpy())

    def batch_predict_proba(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities float32 (B, K); of classes that have not come, and before the first sample,
        0.
        """
        out = torch.zeros(len(x), self.schema.get_num_classes())
        if hasattr(self.learner, 'classes_'):
            found = self.learner.predict_proba(x.cpu().numpy())
            out[:, torch.from_numpy(self.learner.classes_)] = torch.from_numpy(found).float()
        return out
