"""SCROLL as a classifier of CapyMOA: for `ocl_train_eval_loop` and `prequential_evaluation`, in
batches.
"""

import torch
from capymoa.base import BatchClassifier
from capymoa.stream import Schema

from scroll.learners.estimators import ScrollClassifier


class CapyMOAScroll(BatchClassifier):
    """Classifier of CapyMOA; `learner` has learned, to save, merge, export.

    Args:
        schema: schema of the stream.
        classifier: a `ScrollClassifier`, of which a copy learns; None: one with its defaults.
    """

    def __init__(self, schema: Schema, classifier: ScrollClassifier | None = None):
        super().__init__(schema)
        self.learner = ScrollClassifier(**(classifier or ScrollClassifier()).get_params())

    def batch_train(self, x: torch.Tensor, y: torch.Tensor) -> None:
        """Count samples: x float32 (B, d), y int64 (B,), places among the labels of the schema."""
        self.learner.partial_fit(x.cpu().numpy(), y.cpu().numpy())

    def batch_predict_proba(self, x: torch.Tensor) -> torch.Tensor:
        """Return probabilities float32 (B, K): 0 for classes that have not come, and before the
        first sample."""
        out = torch.zeros(len(x), self.schema.get_num_classes())
        if hasattr(self.learner, 'classes_'):
            seen = torch.from_numpy(self.learner.predict_proba(x.cpu().numpy()))
            out[:, torch.from_numpy(self.learner.classes_)] = seen.float()
        return out
