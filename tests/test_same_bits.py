"""Same seed, same bits: whatever the number of threads and loader workers is, and whether features
were kept.

That a method gives the same bits twice, `tests/test_resume.py` says: each run there is made twice.
"""

import os

import numpy as np
import pytest
import torch

from bench.run.building import initialize
from bench.run.training import train
from tests.conftest import ROOT, python
from tests.test_resume import different, the_end

LEARN = """
import numpy as np
from scroll import Scroll
random = np.random.default_rng(0)
X, y = random.standard_normal((2000, 64)), random.integers(0, 20, 2000)
X /= np.linalg.norm(X, axis=1, keepdims=True)
for predictor in ('ridge', 'ncc'):
    learner = Scroll(head=predictor, buffer_size=90)
    for part in np.array_split(np.arange(2000), {pieces}):
        learner.partial_fit(X[part], y[part])
    print(learner.digest(), learner.predictor().digest(), *learner.predict(X[:9]))
"""


def test_threads_and_pieces_change_nothing_in_statistics_and_classifiers():
    """In processes of their own: libraries look at these variables once."""
    said = []
    for threads, pieces in ((1, 1), (2, 7)):
        few = {
            name: str(threads)
            for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'MKL_NUM_THREADS')
        }
        said.append(
            python('-c', LEARN.format(pieces=pieces), cwd=ROOT, env=os.environ | few).stdout
        )
    assert said[0].count('\n') == 2
    assert said[0] == said[1]


@pytest.fixture
def end_of(parse, small_digits, tmp_path):
    """end_of(folder, *flags): all that a run of SCROLL ends with."""

    def run(folder, *flags):
        torch.rand(3), np.random.rand(2)  # the global generators were elsewhere
        model, dataset, args = initialize(
            parse(
                'scroll',
                '--iterations 3 --buffer_size 25 --batch_size 7',
                *flags,
                base_path=tmp_path / folder,
            )
        )
        end = the_end(model, train(model, dataset, args))
        for name in ('feature_cache', 'num_threads'):
            end['row'].pop(name)
        return end

    return run


def test_kept_features_change_nothing(end_of, tmp_path):
    cold = end_of('a')
    assert list(tmp_path.rglob('cache/features/*'))
    assert not different(cold, end_of('a'))
    assert not different(cold, end_of('b', '--feature_cache 0'))


def test_a_run_on_two_threads_counts_the_same(end_of):
    names = 'statistics_digest', 'online_digest', 'buffer_digest', 'online_accuracy'
    one, two = (end_of(folder, '--num_threads', folder, '--adaptation none') for folder in '12')
    torch.set_num_threads(1)
    for name in names:
        assert one['row'][name] == two['row'][name]


def test_loader_workers_change_nothing(arguments, tmp_path):
    ends = []
    for workers in '02':
        model, dataset, args = initialize(
            arguments(
                'picture-digits',
                '--num_workers',
                workers,
                '--buffer_size 20 --n_epochs 1',
                '--base_path',
                str(tmp_path),
                '--disable_log 1',
                model='er',
            )
        )
        ends.append(the_end(model, train(model, dataset, args)))
        ends[-1]['row'].pop('num_workers')
    assert not different(*ends)
