"""Orders of classes: every run is a run of main.py, once; SCROLL has one predictor under all;
numbers are those of the rows.
"""

import csv
import sys

import numpy as np
import pytest

from bench.certify import sensitivity
from bench.certify.measures import variance_shares
from bench.run.building import initialize
from bench.run.training import train
from tests.bench.conftest import killed_at
from tests.conftest import refused, words_of

FEW = '--orders 2 --seeds 2 --num_threads 1 --device cpu'
SGD = '--model sgd --lr 0.05 --n_epochs 1 --batch_size 64 --tasks 2'


@pytest.fixture(scope='module')
def call(tiny_weights):
    """call(folder, *words): the rows that are kept, on the digits."""

    def run(folder, *words):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                sys,
                'argv',
                words_of(
                    'orders.py',
                    '--dataset seq-digits --weights',
                    tiny_weights,
                    '--base_path',
                    folder,
                    '--keep',
                    folder / 'kept',
                    *words,
                ),
            )
            sensitivity.main()
        with open(folder / 'kept' / 'seq-digits.csv', newline='') as file:
            return list(csv.DictReader(file))

    return run


@pytest.fixture(scope='module')
def sgd(call, tmp_path_factory):
    """A method that forgets, killed at its fourth run, then continued: (folder, rows)."""
    folder = tmp_path_factory.mktemp('orders')
    with killed_at(4) as ran, pytest.MonkeyPatch.context() as patch:
        patch.setattr('builtins.print', lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            call(folder, SGD, FEW)
        rows = call(folder, SGD, FEW)
    assert ran[4] == ran[3]
    assert len(ran) == 9
    return folder, rows


def test_orders_are_named_and_a_row_is_a_run_of_main(sgd, parse):
    rows = sgd[1]
    assert [row['kind'] for row in rows] == ['easiest', 'hardest', 'random', 'random'] * 2
    assert [row['seed'] for row in rows] == ['0'] * 4 + ['1'] * 4
    assert all(row['schedule'].startswith('split:2,order=') for row in rows)
    assert len({row['schedule'] for row in rows}) == 4
    row = rows[6]
    words = (
        '--lr 0.05 --n_epochs 1 --batch_size 64 --num_threads 1 --schedule',
        row['schedule'],
        '--seed 1',
    )
    model, dataset, args = initialize(parse('sgd', *words))
    assert float(row['final_accuracy']) == pytest.approx(
        train(model, dataset, args)['final_accuracy'], abs=1e-3
    )


def test_scroll_has_one_predictor_under_all_of_them_beside_the_others_rows(sgd, call, capsys):
    folder, before = sgd
    rows = call(folder, FEW, '--tasks 2 --buffer_size 0')
    mine = [row for row in rows if row['model'] == 'scroll']
    assert len(mine) == 8
    assert [row for row in rows if row['model'] == 'sgd'] == before
    assert len({(row['net_digest'], row['final_accuracy']) for row in mine}) == 1
    assert [row['schedule'] for row in mine[:4]] == [row['schedule'] for row in before[:4]]
    assert 'predictors: 1\n' in capsys.readouterr().out


def test_figures_are_those_of_the_rows(sgd):
    rows = sgd[1]
    found = sensitivity.figures(rows)
    accuracy = np.array([float(row['final_accuracy']) for row in rows])
    assert found['mean'] == pytest.approx(accuracy[2:4].mean())
    assert found['deviation'] == pytest.approx(accuracy[2:4].std(ddof=1))
    assert found['easiest'] == pytest.approx(accuracy[[0, 4]].mean())
    assert found['hardest'] == pytest.approx(accuracy[[1, 5]].mean())
    assert found['worst_found'] == accuracy[:4].min()
    assert found['predictors'] == 8
    assert found['variance'] == variance_shares(
        np.stack([accuracy[[2, 3]], accuracy[[6, 7]]], axis=1)
    )
    assert sensitivity.figures([row for row in rows if row['seed'] == '0'])['variance'] is None


@pytest.mark.parametrize(
    'words, said',
    [
        (['--permute_classes=1'], '--permute_classes'),
        (['--tasks 11'], '--tasks 11: expected 2..10'),
    ],
)
def test_what_the_user_can_mend(call, tmp_path, words, said):
    with refused(said):
        call(tmp_path, *words)
