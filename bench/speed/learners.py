"""SCROLL beside scikit-learn's linear classifiers at equal data: time to learn, to add and remove a class.

Those of scikit-learn that solve, `RidgeClassifier` and `LinearDiscriminantAnalysis`, are fitted again to all
data whenever these change. `SGDClassifier.partial_fit` and scikit-learn-intelex's `IncrementalRidge`, where
it is installed, learn from parts, of classes that are known beforehand, and forget nothing on request.
"""
from typing import NamedTuple

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import RidgeClassifier, SGDClassifier

from bench.speed.timing import clock
from scroll.learner import Scroll

LAMBDA, _PARTS = 0.1, 10            # of every ridge; parts of a stream


class Data(NamedTuple):
    """Unit features float64 (N, d) and labels int64 (N,) of 0..K-1, to learn and to test."""
    name: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def synthetic(dim: int, count: int, classes: int = 100, seed: int = 0) -> Data:
    """Classes around centres of their own; few directions have much of what varies, as in features."""
    random = np.random.default_rng(seed)
    axes = np.linalg.qr(random.normal(size=(dim, dim)))[0] * (1 + np.arange(dim) / 10)[:, None] ** -0.5
    centres = random.normal(size=(classes, dim)) @ axes + 0.1 * random.normal(size=(classes, dim))
    labels = np.arange(count + count // 5) % classes
    X = centres[labels] + 8 * random.normal(size=(len(labels), dim)) @ axes
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    order = random.permutation(count)
    return Data('synthetic', X[:count][order], labels[:count][order], X[count:], labels[count:])


class Exact:
    """`Scroll` with a head."""
    IN_PARTS = True                 # as they come; or all data at once

    def __init__(self, head: str):
        self.name = f'SCROLL, {head}'
        self.learner = Scroll(head=head, ridge_lambda=LAMBDA, buffer_size=0)

    def learn(self, X, y, classes) -> None:
        """From parts, as they come."""
        for part in np.array_split(np.arange(len(y)), _PARTS):
            self.learner.partial_fit(X[part], y[part])
        self.learner.predictor()

    def add(self, X, y, new) -> None:
        """Samples `new` (bool (N,)) of (X, y), of a class that was never seen."""
        self.learner.partial_fit(X[new], y[new]).predictor()

    def remove(self, X, y, old) -> None:
        """All samples of a class, `old`."""
        self.learner.remove(X[old], y[old]).predictor()

    def score(self, X, y) -> float:
        return self.learner.score(X, y)


class Refitted:
    """An estimator of scikit-learn that is fitted anew to all that there is."""
    IN_PARTS = False

    def __init__(self, name: str, make):
        self.name, self.make = f'{name}, refit', make

    def learn(self, X, y, classes) -> None:
        self.estimator = self.make().fit(X, y)

    def add(self, X, y, new) -> None:
        self.estimator = self.make().fit(X, y)

    def remove(self, X, y, old) -> None:
        self.estimator = self.make().fit(X[~old], y[~old])

    def score(self, X, y) -> float:
        return float((self.estimator.predict(X) == y).mean())


class Descent:
    """`SGDClassifier`, as it comes: one pass."""
    name, IN_PARTS, remove = 'SGDClassifier.partial_fit', True, None

    def __init__(self):
        self.estimator = SGDClassifier(random_state=0)

    def learn(self, X, y, classes) -> None:
        for part in np.array_split(np.arange(len(y)), _PARTS):
            self.estimator.partial_fit(X[part], y[part], classes)

    def add(self, X, y, new) -> None:
        self.estimator.partial_fit(X[new], y[new])

    def score(self, X, y) -> float:
        return float((self.estimator.predict(X) == y).mean())


class Incremental:
    """scikit-learn-intelex's `IncrementalRidge` on one-hot targets."""
    name, IN_PARTS, remove = 'IncrementalRidge (scikit-learn-intelex)', True, None

    def __init__(self):
        from sklearnex.linear_model import IncrementalRidge
        self.estimator = IncrementalRidge(alpha=LAMBDA)

    def learn(self, X, y, classes) -> None:
        self.classes = classes
        for part in np.array_split(np.arange(len(y)), _PARTS):
            self.estimator.partial_fit(X[part], np.eye(len(classes))[y[part]])
        self.estimator.predict(X[:1])                           # solves

    def add(self, X, y, new) -> None:
        self.estimator.partial_fit(X[new], np.eye(len(self.classes))[y[new]])
        self.estimator.predict(X[:1])

    def score(self, X, y) -> float:
        return float((self.estimator.predict(X).argmax(axis=1) == y).mean())


MAKERS = (lambda: Exact('ridge'), lambda: Exact('lda'),
          lambda: Refitted('RidgeClassifier', lambda: RidgeClassifier(alpha=LAMBDA)),
          lambda: Refitted('LinearDiscriminantAnalysis', lambda: LinearDiscriminantAnalysis(solver='lsqr')),
          Descent, Incremental)


def measure(data: Data):
    """Yield a row for each learner: seconds to learn all classes but the last from a shuffled stream, to add
    that one, to remove the first; percent right on the test samples after a shuffled stream of all classes,
    after one with the classes in order, and after the class was added. What a row lacks the learner cannot
    do."""
    classes = np.unique(data.y)
    new, old = data.y == classes[-1], data.y == classes[0]
    for make in MAKERS:
        try:
            learner = make()
        except ImportError as error:
            print(f'not measured: {error}', flush=True)
            continue
        row = dict(features=data.name, d=data.X.shape[1], samples=len(data.y), learner=learner.name)
        row['seconds'] = _seconds(learner.learn, data.X[~new], data.y[~new], classes)
        row['seconds_to_add'] = _seconds(learner.add, data.X, data.y, new)
        row['accuracy_added'] = row['accuracy'] = row['accuracy_in_order'] = _percent(learner, data)
        if learner.remove is not None:
            row['seconds_to_remove'] = _seconds(learner.remove, data.X, data.y, old)
        if learner.IN_PARTS:                                    # else the order says nothing
            for name, order in (('accuracy', np.arange(len(data.y))),
                                ('accuracy_in_order', np.argsort(data.y, kind='stable'))):
                learner = make()
                learner.learn(data.X[order], data.y[order], classes)
                row[name] = _percent(learner, data)
        yield row


def _percent(learner, data: Data) -> float:
    return round(100 * learner.score(data.X_test, data.y_test), 2)


def _seconds(function, *given) -> float:
    began = clock()
    function(*given)
    return round(clock() - began, 3)
