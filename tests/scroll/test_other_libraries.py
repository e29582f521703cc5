"""SCROLL in streams of river: one digest, whatever brings the samples."""

import numpy as np
import pandas as pd
from river import metrics
from river.evaluate import progressive_val_score
from sklearn.datasets import load_digits

from scroll import ScrollClassifier
from scroll.libraries.river import RiverScroll
from tests.scroll.conftest import refused

X, Y = load_digits(return_X_y=True, as_frame=True)


def test_river_learns_samples_one_by_one_and_tests_them_first():
    asked = ScrollClassifier(head='lda', calibration_size=0)
    names = Y[:60].map('digit {}'.format)
    model = RiverScroll(asked)
    accuracy = progressive_val_score(
        zip(X[:60].to_dict('records'), names), model, metrics.Accuracy()
    )
    whole = ScrollClassifier(head='lda').fit(X[:60], names)
    assert model.learner.digest() == whole.digest()
    assert accuracy.get() > 0.3
    again = model.clone()
    assert again.predict_one(X.iloc[0].to_dict()) is None
    assert again.predict_proba_many(X[:3]).shape == (3, 0)
    again.learn_many(X[30:60], names[30:60])
    again.learn_many(X[:30].iloc[:, ::-1], names[:30])  # columns by name
    found = again.predict_proba_many(X[60:70])
    assert again.learner.digest() == whole.digest()
    assert list(found.columns) == sorted(set(names))
    assert not hasattr(asked, 'classes_')
    assert np.allclose(found.sum(axis=1), 1)
    assert (
        pd.Series(again.predict_proba_one(X.iloc[60].to_dict())).idxmax() == found.iloc[0].idxmax()
    )
    mixed = RiverScroll()  # names of any kind, numbers in any order
    for row in ({1: 2.0, 'a': 1.0, None: 0.0}, {None: 0.0, 'a': 1.0, 1: 2.0}):
        mixed.learn_one(row, 'x')
    assert mixed.learner.digest() == ScrollClassifier().fit([[2.0, 1, 0]] * 2, ['x', 'x']).digest()
    with refused('pixel_9'):
        again.learn_one(dict(X.iloc[0].to_dict(), pixel_9=1.0), 'digit 1')
