"""The contract of every estimator, in the manner of scikit-learn's check_estimator; and the
promises of the package itself.
"""

import ast
import copy
import doctest
import importlib
import inspect
import itertools
import os
import pickle
import pkgutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import scroll
from scroll import Adaptation, Scroll, ScrollClassifier
from scroll.ground.settings import DEFAULTS, HEAD_NAMES, PUBLISHED, SETTINGS
from scroll.heads.registry import HEADS
from scroll.sums.exemplars import STRATEGIES
from tests.conftest import python
from tests.scroll.conftest import digests, quick, refused

MODULES = ['scroll', *(m.name for m in pkgutil.walk_packages(scroll.__path__, 'scroll.'))]
CASES = list(zip(HEAD_NAMES, itertools.cycle(STRATEGIES)))  # every head, every strategy
every, one = (
    pytest.mark.parametrize('head, strategy', cases, ids=map('-'.join, cases))
    for cases in (CASES, CASES[2:3])
)


@pytest.fixture
def new(head, strategy):
    """A function that makes the estimator under test."""
    return lambda: Scroll(
        head=head, strategy=strategy, buffer_size=8, lift_dim=6, adaptation=Adaptation(iterations=2)
    )


Y = np.repeat([0, 1, 2], 8)
X = np.random.default_rng(0).normal(size=(24, 4)) + 3 * np.eye(4)[Y]


def fingerprint(estimator) -> tuple:
    """All that can be seen of what was learned."""
    logits = estimator.decision_function(X).tobytes()
    return *digests(estimator), estimator.predictor().digest(), logits


def test_constructors_have_the_settings_of_the_table_and_the_registry_every_head():
    """Names, order and defaults."""
    of_scroll, of_classifier = (
        {name: part.default for name, part in inspect.signature(kind).parameters.items()}
        for kind in (Scroll, ScrollClassifier)
    )
    assert [*of_scroll.items()] == [('embedder', None), *DEFAULTS.items()]
    assert Scroll().get_params() == of_scroll
    own = {'scale': 'unit', 'limit': None, 'calibration_size': 500}
    of_buffer = ('buffer_size', 'strategy', 'adaptation', 'keep_keys')
    shared = {name: value for name, value in DEFAULTS.items() if name not in of_buffer}
    expected = {'head': shared.pop('head'), **own, **shared}
    assert [*of_classifier.items()] == [*expected.items()]
    assert ScrollClassifier().get_params() == of_classifier
    assert tuple(HEADS) == (*HEAD_NAMES, *PUBLISHED)
    assert {head for setting in SETTINGS.values() for head in setting.heads} <= set(HEADS)


@every
def test_clones_are_new_and_fit_forgets_repeats_and_returns_self(new):
    estimator = new()
    assert estimator.fit(X[::-1] + 1, Y) is estimator
    assert estimator.partial_fit(X, Y) is estimator
    first = fingerprint(estimator.fit(X, Y))
    clone = sklearn.base.clone(estimator)
    assert clone.get_params() == estimator.get_params()
    assert not hasattr(clone, 'statistics_')
    assert first == fingerprint(clone.fit(X, Y))
    assert estimator.adapt() is estimator


@every
def test_input_is_left_alone(new):
    x = X.copy()
    y = Y.copy()
    x.flags.writeable = y.flags.writeable = False
    estimator = new().fit(x, y).remove(x[:3], y[:3]).partial_fit(x[:3], y[:3]).adapt()
    before = fingerprint(estimator), vars(estimator).keys()
    (
        estimator.predict(x),
        estimator.predict_proba(x),
        estimator.decision_function(X[:3]),
        estimator.score(x, y),
    )
    assert (fingerprint(estimator), vars(estimator).keys()) == before  # predicting changes nothing


@every
def test_before_the_first_sample_everything_asks_for_partial_fit(new):
    for call in (
        lambda e: e.predict(X),
        lambda e: e.predict_proba(X),
        lambda e: e.decision_function(X),
        lambda e: e.score(X, Y),
        lambda e: e.predictor(),
        lambda e: e.adapt(),
        lambda e: e.remove(X, Y),
        lambda e: e.digest(),
        lambda e: e.classes_,
        lambda e: e.save('x'),
    ):
        with refused('partial_fit'):
            call(new())


@every
def test_a_copy_predicts_and_goes_on_the_same_and_shares_nothing(new):
    for again in (lambda e: pickle.loads(pickle.dumps(e)), copy.deepcopy):
        estimator = new().fit(X[:20], Y[:20])
        for _ in range(2):  # f_T, then f*
            twin = again(estimator)
            before = fingerprint(estimator)
            assert fingerprint(twin) == before
            estimator.adapt()
        before = fingerprint(estimator)
        twin.adapt().partial_fit(X[20:], Y[20:])
        assert fingerprint(estimator) == before
        assert fingerprint(twin) == fingerprint(estimator.partial_fit(X[20:], Y[20:]))


FORMS = {
    'fortran': np.asfortranarray,
    'strided': lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    'reversed': lambda x: x[::-1][::-1],
    'lists': lambda x: x.tolist(),
    'float64': lambda x: x.astype(np.float64),
    'list of arrays': lambda x: [*x],
    'scaled': lambda x: x * 2.0 ** np.arange(-12, 12)[:, None],
}


@one
@pytest.mark.parametrize('form', FORMS.values(), ids=FORMS)
def test_the_same_numbers_in_another_form_are_the_same_data(new, form):
    x = X.astype(np.float32)
    assert fingerprint(new().fit(form(x), Y)) == fingerprint(new().fit(x, Y))


UNUSABLE = {
    '1-D': X[0],
    '3-D': X[:, :, None],
    'no features': X[:, :0],
    'inf': np.where(X > 3, np.inf, X),
    'nan': np.where(X > 3, np.nan, X),
    'objects': np.where(X > 3, 'a', X.astype(object)),
    'digits': X.astype(str).astype(object),
    'complex': X + 1j,
    'None': None,
    'text': 'text',
    'number': 3.0,
    'ragged': [[1, 2, 3, 4], [3]],
}


@one
@pytest.mark.parametrize('x', [*UNUSABLE.values(), X[:0]], ids=[*UNUSABLE, 'empty'])
def test_what_cannot_be_learned_is_refused(new, x):
    estimator = new()
    with refused():
        estimator.fit(x, Y[: len(x)] if hasattr(x, '__len__') else Y)
    assert not hasattr(estimator, 'statistics_')


@one
def test_what_cannot_be_predicted_is_refused(new):
    estimator = new().fit(X, Y)
    for _ in range(2):  # f_T, then f*
        for x in (*UNUSABLE.values(), X[:, :3]):
            for method in ('predict', 'predict_proba', 'decision_function'):
                with refused():
                    getattr(estimator, method)(x)
        estimator.adapt()


TEXT = np.array(['x', 'yy', 'z'])[Y]


@pytest.mark.parametrize('y, head, strategy', [(TEXT, *case) for case in CASES] + [(Y, *CASES[2])])
def test_shapes_and_dtypes_of_what_comes_out(new, y):
    estimator = new().fit(X, y)
    names = sorted(set(np.asarray(y).tolist()))
    kind = {str: 'U', bool: 'b'}.get(type(names[0]), 'i')
    assert estimator.n_features_in_ == 4
    for _ in range(2):  # f_T, then f*
        assert estimator.classes_.tolist() == names
        assert estimator.classes_.dtype.kind == estimator.predict(X).dtype.kind == kind
        assert estimator.predict(X).shape == (24,)
        for method in ('decision_function', 'predict_proba'):
            out = getattr(estimator, method)(X)
            assert out.shape == (24, len(names))
            assert out.dtype == np.float64
        assert isinstance(estimator.score(X, y), float)
        assert estimator.predict(X[:0]).shape == (0,)
        estimator.adapt()


NAMES = ['a', 'a\0c', 'b', 'b'] * 6


@pytest.mark.parametrize(
    'form',
    [
        list,
        tuple,
        pd.Categorical,
        pd.Series,
        pd.Index,
        lambda y: np.array(y, object),
        lambda y: pd.Series(y, dtype='category'),
        lambda y: pd.Series(y, dtype='string'),
    ],
)
def test_text_of_any_kind_is_text(form, tmp_path):
    labels = form(NAMES)
    estimator, expected = (Scroll(buffer_size=8, keep_keys=True).fit(X, y) for y in (labels, NAMES))
    assert estimator.classes_.tolist() == ['a', 'a\0c', 'b']
    assert fingerprint(estimator) == fingerprint(expected)
    assert estimator.score(X, labels) == expected.score(X, NAMES)
    estimator.save(tmp_path / 'x')
    loaded = Scroll.load(tmp_path / 'x')
    gone = X[1::4]
    assert fingerprint(loaded) == fingerprint(estimator)
    assert loaded.remove(gone, form(['a\0c'] * len(gone))).classes_.tolist() == ['a', 'b']


WRONG = {
    'buffer_size': [2.5, '3', None, -1, True, 10**5000, np.nan, [3]],
    'seed': ['a', None, -1, 2**63],
    'adaptation': ['x', 3, {}, Adaptation],
    'head': ['svm', 'auto', None, 3, ['ridge']],
    'ridge_lambda': [0, -1, '1', 'Auto', None, np.inf, 10**400, [1]],
    'targets': ['x', None],
    'ncc_bias': ['x', 0],
    'shrinkage': [1, -0.1, 'auto', None, np.nan, [0.1]],
    'pooling': [2, 'auto', None],
    'strategy': ['best', None, 3],
    'embedder': ['psi', 3, int],
    'keep_keys': [1, 'yes', None],
}


@pytest.mark.parametrize(
    'name, value',
    [
        pytest.param(name, value, id=f'{name}-{i}')
        for name, values in WRONG.items()
        for i, value in enumerate(values)
    ],
)
def test_an_argument_that_cannot_be_is_refused_before_anything_is_learned(name, value):
    estimator = Scroll(**{name: value})
    learned = Scroll(buffer_size=8).fit(X, Y)
    before = learned.digest()
    changed = learned.set_params(**{name: value})
    for call in (
        lambda: estimator.fit(X, Y),
        lambda: estimator.partial_fit(X, Y),
        lambda: changed.partial_fit(X, Y),
        changed.adapt,
    ):
        with refused(f'^{name.replace("_", "[_ ]")}'):
            call()
    assert not hasattr(estimator, 'statistics_')
    assert learned.digest() == before


@settings(quick, max_examples=40)
@given(st.sampled_from(CASES), st.integers(1, 8), st.integers(1, 4), st.data())
def test_any_finite_data_is_learned(case, count, dim, data):
    x = data.draw(hnp.arrays(np.float64, (count, dim), elements=st.floats(-1e9, 1e9)))
    y = data.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count))
    estimator = Scroll(
        head=case[0],
        strategy=case[1],
        buffer_size=5,
        lift_dim=6,
        adaptation=Adaptation(iterations=1),
    ).fit(x, y)
    assert len(estimator.buffer_) == min(5, count)
    for _ in range(2):  # f_T, then f*
        assert set(estimator.predict(x).tolist()) <= set(y)
        assert np.isfinite(estimator.decision_function(x)).all()
        assert np.isfinite(estimator.predict_proba(x)).all()
        estimator.adapt()


@pytest.mark.parametrize('name', MODULES)
def test_the_examples_in_the_documentation_are_true(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_importing_the_package_imports_no_torch():
    code = 'import scroll, sys; sys.exit("torch" in sys.modules or "numpy" in sys.modules)'
    assert not python('-c', code, cwd=Path(scroll.__path__[0]).parent).returncode


def imports(module: str) -> set:
    """The packages that a module of the library imports, wherever in the file."""
    nodes = list(ast.walk(ast.parse(Path(importlib.import_module(module).__file__).read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split('.')[0] for name in names}


OPTIONAL = {
    'scroll.learners.estimators': {'sklearn'},
    'scroll.learners.learner': {'sklearn'},
    'scroll.learners.regression': {'sklearn'},
    'scroll.files.parquet': {'pyarrow'},
    'scroll.exports.tensors': {'safetensors'},
    'scroll.files.arrays': {'safetensors'},
    'scroll.embedding.libraries': {'timm', 'huggingface_hub'},
    'scroll.files.engines': {'joblib'},
    'scroll.ground.progress': {'tqdm'},
    'scroll.files.images': {'PIL'},
    'scroll.libraries.river': {'pandas', 'river'},
}


def test_the_library_imports_torch_numpy_and_scipy_only():
    always = {*sys.stdlib_module_names, 'torch', 'numpy', 'scipy', 'exact_torch', 'scroll'}
    for module in MODULES:
        assert imports(module) <= always | OPTIONAL.get(module, set()), module


WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder
class WithoutTorch(PathFinder):
    @classmethod
    def find_spec(cls, name, *more):
        return None if name == "torch" else PathFinder.find_spec(name, *more)
sys.meta_path = [WithoutTorch if finder is PathFinder else finder for finder in sys.meta_path]
import numpy as np
import scroll
from scroll import Adaptation, Augmentation, InputError, Preprocessing
from scroll import Scroll, ScrollClassifier, Statistics, make_schedule
from scroll.__main__ import main
X, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
one = Scroll(ridge_lambda="auto", buffer_size=10, adaptation=Adaptation(), keep_keys=True)
for ids in make_schedule("split:3", y).segments():
    one.partial_fit(X[ids], y[ids])
one.merge(Scroll(keep_keys=True).fit(X + 1, y)).score(X, y), one.remove(X[:3], y[:3])
one.save("state.npz"), Scroll.load("state.npz").predict(X)
assert ScrollClassifier("lda", scale="standard").fit(X, y).predict_proba(X).shape == (30, 3)
np.savez("old.npz", features=X[3:5], labels=y[3:5])
assert main(["unlearn", "state.npz", "--samples", "old.npz", "-o", "new.npz"]) == 0
for call in (one.adapt, lambda: scroll.Embedder):
    try:
        call()
    except (InputError, ImportError) as error:
        print(error)
"""


def test_without_torch_feature_vectors_are_learned_and_what_needs_it_says_so(tmp_path):
    env = os.environ | {'PYTHONPATH': str(Path(scroll.__path__[0]).parent)}
    done = python('-c', WITHOUT_TORCH, cwd=tmp_path, env=env)
    says = done.stdout.splitlines()[-2:]
    assert [line.split()[0] for line in says] == ['adaptation', 'scroll.Embedder'], done.stderr
    assert all(
        line.endswith('needs torch, which is not installed: pip install ".[images]" in a checkout')
        for line in says
    )
