"""Orders of classes: distances and chains by hand and compared with numpy; every run is a run of
main.py, once; SCROLL has one predictor under all; the table is that of the rows.
"""

import sys

import numpy as np
import pandas as pd
import pytest

from bench.certify.measures import variance_shares
from bench.run.building import initialize
from bench.run.training import train
from scripts import orders
from scripts.orders import chain, dealt, separations
from scroll.ground.grid import GRID
from scroll.sums.statistics import Statistics
from tests.bench.conftest import killed_at
from tests.conftest import refused, words_of
from tests.scroll.conftest import make_stream

FEW = '--orders 2 --seeds 2 --num_threads 1 --device cpu'
SGD = '--model sgd --lr 0.05 --n_epochs 1 --batch_size 64 --tasks 2'


@pytest.fixture(scope='module')
def call(tiny_weights):
    """call(folder, *words): the rows that are kept, on the digits."""

    def run(folder, *words):
        fixed = ['--dataset seq-digits --weights', tiny_weights, '--base_path', folder]
        with pytest.MonkeyPatch.context() as patch:
            words = words_of('orders.py', *fixed, '--keep', folder / 'kept', *words)
            patch.setattr(sys, 'argv', words)
            orders.main()
        return pd.read_csv(folder / 'kept' / 'seq-digits.csv')

    return run


@pytest.fixture(scope='module')
def sgd(call, tmp_path_factory):
    """A method that forgets, killed at its fourth run, then continued: (folder, rows)."""
    folder = tmp_path_factory.mktemp('orders')
    with killed_at(4) as ran:
        with pytest.raises(KeyboardInterrupt):
            call(folder, SGD, FEW)
        rows = call(folder, SGD, FEW)
    assert ran[4] == ran[3]
    assert len(ran) == 9
    return folder, rows


def test_orders_are_named_and_a_row_is_a_run_of_main(sgd, parse):
    rows = sgd[1]
    assert rows.kind.tolist() == ['easiest', 'hardest', 'random', 'random'] * 2
    assert rows.seed.tolist() == [0] * 4 + [1] * 4
    assert rows.schedule.str.startswith('split:2,order=').all()
    assert rows.schedule.nunique() == 4
    words = [
        '--lr 0.05 --n_epochs 1 --batch_size 64 --num_threads 1 --seed 1 --schedule',
        rows.schedule[6],
    ]
    row = train(*initialize(parse('sgd', *words)))
    assert rows.final_accuracy[6] == pytest.approx(row['final_accuracy'], abs=1e-3)


def test_scroll_has_one_predictor_and_the_table_is_that_of_the_rows(sgd, call, capsys):
    folder, before = sgd
    rows = call(folder, FEW, '--tasks 2 --buffer_size 0')
    mine = rows[rows.model == 'scroll'].reset_index(drop=True)
    others = rows[rows.model == 'sgd'].reset_index(drop=True)
    pd.testing.assert_frame_equal(others, before)
    assert mine.schedule.tolist() == before.schedule.tolist()
    assert (mine.net_digest.nunique(), mine.final_accuracy.nunique()) == (1, 1)
    lines = capsys.readouterr().out.splitlines()
    scroll, other = ([cell.strip() for cell in line.split('|')[2:-1]] for line in lines[2:4])
    accuracy = f'{mine.final_accuracy[0]:.2f}'
    assert scroll[1:3] == [accuracy] * 2
    assert scroll[4:] == [accuracy] * 3 + ['none', '1']
    a = before.final_accuracy
    assert other[0] == f'{a[2:4].mean():.1f} ± {a[2:4].std():.1f} (2)'
    assert other[1] == f'{a[2:4].min():.2f}'
    assert other[-1] == '8'


def test_a_run_that_diverges_counts_as_zero(call, tmp_path, capsys):
    rows = call(tmp_path, SGD.replace('0.05', '1e30'), FEW.replace('seeds 2', 'seeds 1'))
    assert rows.final_accuracy.tolist() == [0] * 4
    assert '0, 4 diverged |' in capsys.readouterr().out


@pytest.mark.parametrize(
    'words, message',
    [
        ('--permute_classes=1', '--permute_classes'),
        ('--seed 3', '--seed'),
        ('--tasks 11', '--tasks 11: expected 2..10'),
    ],
)
def test_what_the_user_can_mend(call, tmp_path, words, message):
    with refused(message):
        call(tmp_path, words)


def summed(features, labels) -> Statistics:
    return Statistics(features.shape[1], by_class=True).add(features, labels)


def test_separations_are_fishers_ratio_and_the_same_in_any_order():
    stream = make_stream(np.random.default_rng(0).integers(0, 4, 90), dim=6)
    distances = separations(summed(stream.features, stream.labels))
    of_class = [stream.features[stream.labels == c] / GRID for c in range(4)]
    means = np.array([features.mean(axis=0) for features in of_class])
    widths = np.array([features.var(axis=0).sum() for features in of_class])
    gaps = ((means[:, None] - means) ** 2).sum(axis=2)
    assert distances == pytest.approx(gaps / np.add.outer(widths, widths))
    assert np.array_equal(distances, distances.T)
    shuffled = np.random.default_rng(1).permutation(90)
    again = separations(summed(stream.features[shuffled], stream.labels[shuffled]))
    assert np.array_equal(distances, again)


def test_classes_without_width_are_finite():
    features = np.eye(3, dtype=np.int32) * GRID
    assert np.isfinite(separations(summed(features, np.arange(3)))).all()


def test_a_chain_goes_to_the_nearest_and_dealing_parts_neighbours():
    line = np.array([0, 10, 1, 11, 2, 12.0])  # two groups on a line
    order = chain(abs(line[:, None] - line))
    assert order.tolist() == [0, 2, 4, 1, 3, 5]
    assert dealt(order, 3).tolist() == [0, 1, 2, 3, 4, 5]
    assert dealt(np.arange(7), 3).tolist() == [0, 3, 6, 1, 4, 2, 5]


def test_a_two_way_layout_by_hand():
    assert variance_shares([[1, 2], [3, 4], [5, 6.0]]) == pytest.approx(
        (100 * 16 / 17.5, 100 * 1.5 / 17.5, 0)
    )
    assert variance_shares(np.full((3, 2), 59.8)) == (0, 0, 0)
    shares = variance_shares(np.random.default_rng(0).normal(50, 5, (4, 3)))
    assert sum(shares) == pytest.approx(100)
    assert min(shares) > 0
