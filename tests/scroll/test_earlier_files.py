"""Files that earlier versions wrote (`earlier/`) are read, and go on to the digests that those versions came to (`digests.json`).

0.1-early is before keys were kept; 0.1 the last of that version; then, on the way to 0.2: `classifier` for `head`, heads with
Gram matrices by class or a lift, blocks, and selection by folds. An early f_T was not yet rounded exactly: it has no digest there.
"""
import json
from pathlib import Path

import numpy as np
import pytest

from scroll import Scroll
from scroll.grid import quantise
from scroll.statistics import Statistics

FOLDER = Path(__file__).parent / 'earlier'
DIGESTS = json.loads((FOLDER / 'digests.json').read_text())
STATES = [name for name in DIGESTS if name.startswith('state')]


def samples(start: int, stop: int, names: list) -> tuple:
    """Features (n, 6), one of which another grid point is next to when it is rounded to float32; labels."""
    rows, columns = np.arange(start, stop)[:, None], np.arange(6)
    X = (rows * 37 + columns * 11 + rows * columns % 7 * 13) % 101 / 103.0 - 0.4
    return X, np.array([names[i % 3] for i in range(start, stop)])


def names_of(classes) -> list:
    return ['ant', 'bee', 'cé'] if 'ant' in classes.tolist() else [7, -2, 30]


def test_the_files_are_those_of_the_list():
    assert {path.stem for path in FOLDER.glob('*.npz')} == set(DIGESTS)
    assert (quantise(samples(12, 112, [0] * 3)[0]) != quantise(samples(12, 112, [0] * 3)[0].astype('f4'))).any()


@pytest.mark.parametrize('name', STATES)
def test_a_state_is_read_and_goes_on_as_the_version_that_wrote_it(name):
    learner, expected = Scroll.load(FOLDER / f'{name}.npz'), DIGESTS[name]
    assert learner.statistics_.digest() == expected['learned']
    learner.partial_fit(*samples(12, 112, names_of(learner.classes_)))
    found = dict(learned=expected['learned'], after=learner.statistics_.digest())
    found |= {'f_T': learner.predictor().digest()} if 'f_T' in expected else {}
    found |= dict(buffer=learner.buffer_.content().digest()) if learner.buffer_ is not None else {}
    assert found == expected


@pytest.mark.parametrize('name', [name for name in DIGESTS if name not in STATES])
def test_statistics_are_read_and_go_on(name):
    statistics, expected = Statistics.load(FOLDER / f'{name}.npz'), DIGESTS[name]
    assert statistics.digest() == expected['learned']
    X, y = samples(12, 112, names_of(statistics.classes))
    assert statistics.add(quantise(X), y).digest() == expected['after']
