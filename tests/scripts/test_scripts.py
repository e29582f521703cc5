"""The scripts run, and what they write is what they say: each on the digits with a tiny psi."""
import sys

import pytest
import yaml

from scripts import bench, show, tune
from utils.args import model_config
from utils.results import append_row, read_rows


@pytest.fixture
def call(monkeypatch, capsys):
    """call(script, *words): stdout of the script's main."""
    def run(script, *words):
        monkeypatch.setattr(sys, 'argv', [script.__name__, *map(str, words)])
        script.main()
        return capsys.readouterr().out
    return run


def test_show_prints_chosen_columns_and_rows(call, tmp_path):
    for n in (1, 2):
        append_row(tmp_path, {'task1': n, 'digest': str(n) * 64, 'note': 'a, b'})
    text = call(show, tmp_path / 'mean_accs.csv', 'note', 'digest', '--where', 'task1=2')
    assert text.splitlines() == ['| note | digest |', '|---|---|', '| a, b | 22222222 |']


def test_tuning_writes_rules_from_training_data_alone_and_goes_on_where_it_was(call, tmp_path, monkeypatch, tiny_weights):
    config = tmp_path / 'models' / 'config' / 'scroll.yaml'
    config.parent.mkdir(parents=True)
    config.write_text(yaml.safe_dump(dict(best=[dict(when=dict(weights='other', dataset='seq-digits'), set=dict(scale=2.0))])))
    monkeypatch.setattr(tune, 'CONFIG', config)
    monkeypatch.setattr(tune, 'LAMBDAS', (0.1, 1.0))
    monkeypatch.setattr(tune, 'GRID', dict(adapters=(((.02, .01),), (1, 2))))
    words = '--dataset', 'seq-digits', '--buffer_sizes', 20, 30, '--weights', tiny_weights, '--base_path', tmp_path
    monkeypatch.setattr('datasets.utils.readers.digits', _without_test_images())
    first = call(tune, *words)
    rows = read_rows(tmp_path / 'tuning' / 'seq-digits.csv')
    assert [r['what'] for r in rows] == ['lambda'] * 2 + ['adaptation'] * 4 and len(first.splitlines()) == 6
    assert call(tune, *words) == ''                                         # every trial has its row
    monkeypatch.setattr('utils.args.ROOT', tmp_path)
    best = max(rows[2:4], key=lambda r: float(r['accuracy']))
    values, _ = model_config('scroll', 'best', dict(weights=tiny_weights, dataset='seq-digits', buffer_size=15))
    assert values['iterations'] == int(best['iterations']) and values['ridge_lambda'] in (0.1, 1.0)
    assert model_config('scroll', 'best', dict(weights='other', dataset='seq-digits', buffer_size=9))[0] == dict(scale=2.0)


def _without_test_images():
    """The digits with test images that would poison every accuracy taken on them: there are none."""
    from datasets.utils.readers import Images, digits
    whole = digits()
    return lambda: Images(whole.train, whole.train_labels, whole.test[:0], whole.test_labels[:0], whole.class_names)


@pytest.mark.slow
def test_the_benchmark_prints_a_row_for_each_stage(call, tiny_weights):
    text = call(bench, '--weights', tiny_weights, '--rounds', 1, '--images', 512)
    assert sum(line.startswith('| ') for line in text.splitlines()) == 9
