"""SCROLL as a classifier of river: one sample, or a data frame of them, at a time, features by
name.
"""

import pandas as pd
from river.base import MiniBatchClassifier

from scroll.learners.estimators import ScrollClassifier


class RiverScroll(MiniBatchClassifier):
    """Classifier of river; `learner` has learned, to save, merge, export. The features of the first
    sample are those of all; InputError: another has other names.

    Args:
        classifier: a `ScrollClassifier`, of which a copy learns; None: one with its defaults.
    """

    def __init__(self, classifier: ScrollClassifier | None = None):
        self.classifier = classifier
        self.learner = ScrollClassifier(**(classifier or ScrollClassifier()).get_params())

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: dict, y) -> None:
        """Count a sample: numbers by name, and its label."""
        self.learn_many(pd.DataFrame([x]), pd.Series([y]))

    def learn_many(self, X: pd.DataFrame, y: pd.Series) -> None:
        """Count samples, columns in any order."""
        self.learner.partial_fit(X, y)

    def predict_proba_one(self, x: dict, **kwargs) -> dict:
        """Return the probability of each label; {} before the first sample."""
        return next(iter(self.predict_proba_many(pd.DataFrame([x])).to_dict('records')), {})

    def predict_proba_many(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return probabilities (N, K), a column a label; (N, 0) before the first sample."""
        if not hasattr(self.learner, 'classes_'):
            return pd.DataFrame(index=X.index)
        return pd.DataFrame(self.learner.predict_proba(X), X.index, self.learner.classes_)
