"""Tuning: the same number of trials for every method, on training samples alone, each once; and who
says so.
"""

import sys

import numpy as np
import pytest
import yaml

from bench import flag_words
from bench.cli.parsing import parse_args
from bench.paper import tune
from bench.paper.grids import SPACES, plan, space_of
from core.configs import chosen_by
from core.plugins import ROOT
from core.rows import read_rows
from datasets.utils.readers import Images, digits
from scroll.adaptation import Adaptation
from tests.conftest import refused, words_of


@pytest.fixture
def line(tiny_weights, tmp_path) -> str:
    """Flags of the script on the digits; rows go to tmp_path/tuning."""
    return (
        f'--dataset seq-digits --weights {tiny_weights} --base_path {tmp_path} '
        f'--out {tmp_path}/tuning'
    )


@pytest.fixture
def call(monkeypatch, capsys, tmp_path, line):
    """call(words): stdout of the script; config files go to tmp_path/models/config."""
    folder = tmp_path / 'models' / 'config'
    folder.mkdir(parents=True)
    monkeypatch.setattr(tune, 'CONFIG', folder)

    def run(words):
        monkeypatch.setattr(sys, 'argv', ['tune.py', *words_of(line, words)])
        tune.main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def tuning(line):
    """tuning(model, words): the `Tuning` of a method on the digits."""

    def make(model, words):
        return tune.Tuning(model, *tune.parse_options(words_of(line, words)))

    return make


@pytest.fixture
def trials(monkeypatch):
    """trials(f): the arguments of all trials from now on; f: of these, instead of a run, to the
    accuracy.
    """

    def answer(accuracy):
        asked = []

        def accuracy_of(words):
            asked.append(parse_args(words))
            return accuracy(asked[-1])

        monkeypatch.setattr(tune, 'accuracy_of', accuracy_of)
        return asked

    return answer


def rules_of(folder, model) -> list:
    return yaml.safe_load((folder / 'models' / 'config' / f'{model}.yaml').read_text())['best']


def test_trials_see_training_data_alone(call, tmp_path, monkeypatch):
    """No classifier has more than a tenth of the test images right: they are black."""
    whole = digits()
    black = Images(
        whole.train,
        whole.train_labels,
        np.zeros_like(whole.test[:10]),
        np.arange(10),
        whole.class_names,
    )
    monkeypatch.setattr('datasets.utils.readers.digits', lambda: black)
    call('--models er-ace --trials 1 --buffer_size 25 --num_threads 1')
    first, *_ = read_rows(tmp_path / 'tuning' / 'seq-digits' / 'er-ace.csv')
    assert float(first['accuracy']) > 15


def test_rules_replace_older_ones_and_trials_are_made_once(
    call, trials, tmp_path, monkeypatch, tiny_weights
):
    path = tmp_path / 'models' / 'config' / 'er_ace.yaml'
    other = {'weights': 'other', 'dataset': 'seq-digits', 'buffer_size': 90}
    before = [
        {'when': {'dataset': 'seq-digits'}, 'set': {'lr': 0.5}},
        {'when': other, 'set': {'lr': 0.3}},
    ]
    content = {'by': 'the paper', 'default': {'lr': 0.4}, 'best': before}
    path.write_text('# Said by hand.\n' + yaml.safe_dump(content, sort_keys=False))

    def accuracy(args):
        if len(asked) == 2:
            raise KeyboardInterrupt
        return 80.0 + args.batch_size

    asked = trials(accuracy)
    words = '--models er-ace --trials 2 --tasks 1 --finalists 1 --buffer_size 100 --num_threads 1'
    with pytest.raises(KeyboardInterrupt):
        call(words)
    call(words)
    assert ', order ' not in call(words)
    first, killed, again = map(vars, asked)
    assert first != killed == again
    # two of ten classes
    assert all(args.buffer_size == 20 and args.stop_after == 1 for args in asked)
    assert all(args.permute_classes and args.validation for args in asked)
    monkeypatch.setattr('core.configs.ROOT', tmp_path)
    known = {'model': 'er-ace', 'model_config': 'best', **other, 'weights': tiny_weights}
    assert 'tuned with 2 trials' in chosen_by(known)
    assert chosen_by({**known, 'weights': 'none'}) == 'the paper'
    first, new, last = rules_of(tmp_path, 'er_ace')  # the more special, the later
    assert new['set'] == {name: getattr(asked[0], name) for name in SPACES['er-ace']}
    assert [first, last] == before
    assert path.read_text().startswith('# Said by hand.\nby: the paper\n')


def test_values_for_a_predictor_or_some_passes_leave_those_for_any_alone(
    call, trials, tmp_path, monkeypatch, tiny_weights
):
    trials(lambda args: 50.0)
    monkeypatch.setitem(SPACES, 'scroll', {'adapt_lr': (0.002,)})
    call('--models scroll --trials 1 --head ncc')
    # ENS is online, and has no such rule
    call('--models er ens --trials 1 --n_epochs 2')
    assert 'n_epochs' not in (tmp_path / 'models' / 'config' / 'ens.yaml').read_text()
    for model, space in (
        ('scroll', {'adapt_lr': (0.07,)}),
        ('er', {'lr': (0.07,), 'batch_size': (10,)}),
    ):
        monkeypatch.setitem(SPACES, model, space)
        call(f'--models {model} --trials 1')
    monkeypatch.setattr('core.configs.ROOT', tmp_path)

    def best(words):
        flags = f'--dataset seq-digits --weights {tiny_weights} --model_config best'
        return parse_args(words_of(flags, '--buffer_size 20', words))

    heads = '', '--predictor ncc', '--head ncc', '--predictor random'
    assert [best(f'--model scroll {head}').adapt_lr for head in heads] == [0.07, 0.002, 0.002, 0.07]
    assert [best(f'--model er --n_epochs {n}').lr for n in (1, 2, 5)] == [0.07, 0.01, 0.07]


def test_the_best_trials_meet_again_on_more_tasks_in_three_orders_and_the_winner_is_decided_there(
    call, trials, tmp_path, monkeypatch
):
    found = {(10, 1): (80, 20), (10, 2): (70, 60), (32, 1): (60, 99), (32, 2): (50, 99)}

    def accuracy(args):
        two, five = found[args.batch_size, args.batch_iterations]
        return two if args.stop_after == 2 else five + args.seed % 3

    asked = trials(accuracy)
    space = {'lr': (0.1,), 'batch_size': (32, 10), 'batch_iterations': (1, 2)}
    monkeypatch.setitem(SPACES, 'er-ace', space)
    words = '--models er-ace --trials 4 --buffer_size 50'
    call(words)
    assert [(args.stop_after, args.buffer_size) for args in asked] == 4 * [(2, 20)] + 6 * [(5, 50)]
    finals = [(args.batch_iterations, args.seed) for args in asked[4:]]
    assert finals == [(number, seed) for number in (1, 2) for seed in (100, 101, 102)]
    assert {args.seed for args in asked[:4]} == {100}
    (rule,) = rules_of(tmp_path, 'er_ace')
    assert rule['set']['batch_iterations'] == 2
    assert rule['by'] == (
        'tuned with 4 trials on held-out training samples of 2 tasks, |M| = 50: 80.0 %; with the '
        'values of the first trial 60.0 %; the best of 2 finalists on 5 tasks in 3 orders of '
        'classes: 61.0 %; on 2 tasks it has 70.0 %'
    )
    call(words)
    assert len(asked) == 10


def test_a_void_trial_is_shown_and_drawn_again_and_old_rows_are_not_read(call, trials, tmp_path):
    path = tmp_path / 'tuning' / 'seq-digits' / 'er-ace.csv'
    words = '--models er-ace --trials 4 --finalists 1'
    # a quarter is guessing
    asked = trials(lambda args: {'train': 60.0, 'frozen': 28.0}[args.bn] + (args.lr == 0.01))
    assert call(words).count(' %, void\n') == len(asked) - 4
    rows = read_rows(path)
    valid = [row['void'] for row in rows].count('0')
    assert [args.bn for args in asked].count('train') == valid == 4 < len(rows)
    (rule,) = rules_of(tmp_path, 'er_ace')
    assert 'tuned with 4 trials' in rule['by']
    path.write_text(path.read_text().replace('space', 'before'))  # rows of other rules
    again = trials(lambda args: 24.0)
    said = call(words)
    assert len(again) == 8
    assert 'no rule, since all trials are void' in said
    assert rules_of(tmp_path, 'er_ace') == [rule]
    assert len(read_rows(path)) == len(rows) + 8


@pytest.mark.parametrize(
    'model, peak, name, tried, at_edge',
    [
        ('er', 0.0001, 'lr', [0.0001, 3e-5], False),
        ('er', 1e-9, 'lr', [0.0001, 3e-5, 1e-5], True),
        ('gdumb', 1e-9, 'maxlr', [0.0001], True),
    ],
)
def test_an_edge_of_the_grid_is_followed_as_far_as_main_py_goes_and_named(
    model, peak, name, tried, at_edge, call, trials, tmp_path
):
    def far(value):
        return abs(np.log10(value / peak))

    asked = trials(
        lambda args: (
            90 * (getattr(args, name) >= peak)
            - far(getattr(args, name))
            - 20 * (args.bn == 'train')
            - (model == 'gdumb' and args.fitting_epochs != 20)
        )
    )
    call(f'--models {model} --trials 8 --finalists 1')
    assert list(dict.fromkeys(getattr(args, name) for args in asked[8:])) == tried
    (rule,) = rules_of(tmp_path, model)
    assert rule['set'][name] == min(tried, key=far)
    assert f'({len(asked) - 8 - sum(value < peak for value in tried)} beyond' in rule['by']
    assert (f'at an edge of what was tried: {name}' in rule['by']) == at_edge


@pytest.mark.parametrize(
    'model, splits, condition', [('er-ace', 5, None), ('er-ace', 2, 2), ('joint', 2, None)]
)
def test_values_for_an_unusual_number_of_tasks_are_for_this_number_alone(
    model, splits, condition, call, trials, tmp_path
):
    asked = trials(lambda args: 90.0)
    call(f'--models {model} --trials 1 --tasks 1 --n_splits {splits}')
    (rule,) = rules_of(tmp_path, model.replace('-', '_'))
    assert rule['when'].get('n_splits') == condition
    assert asked[0].n_splits == splits


@pytest.mark.parametrize('model, name', [('er-ace', 'batch_size'), ('gdumb', 'fitting_batch_size')])
def test_no_trial_ends_a_task_in_a_batch_of_fewer_than_four_samples(model, name, tuning):
    method = tuning(model, '--buffer_size 100')
    dropped = 0
    for batch in (5, 10, 14, 29, 38):
        rate = {'lr': 0.1} if model == 'er-ace' else {}
        args = parse_args(flag_words(**method.words({**rate, name: batch}, 2)))
        sizes = [args.buffer_size] if model == 'gdumb' else method.samples(2, args.seed)[0]
        assert all(size % batch in (0, *range(4, batch)) or args.drop_last for size in sizes)
        dropped += args.drop_last
    assert model == 'gdumb' or 0 < dropped < 5


def test_a_trial_that_diverges_has_no_accuracy(tuning):
    words = tuning('er', '--num_threads 1 --buffer_size 20').words({'lr': 1e30}, 2)
    assert tune.accuracy_of(flag_words(**words)) == 0


def test_a_plan_begins_with_the_first_values_and_has_each_rate_that_suits_the_norm():
    rates = {'frozen': {0.0003, 0.001, 0.003, 0.01}, 'train': {0.003, 0.01, 0.03, 0.1}}
    for model in SPACES:
        space = space_of(model)
        planned = plan(model, 16, space)
        assert planned == plan(model, 16, space)
        points = 4 if model == 'scroll' else 16
        assert len({tuple(values.items()) for values in planned}) == points
        if 'bn' in space:
            rate = 'lr' if 'lr' in space else 'maxlr'
            assert planned[0]['bn'] == 'train'
            for norm, expected in rates.items():
                assert {v[rate] for v in planned[:8] if v['bn'] == norm} == expected
            assert all(values.get('minlr', 0) < values[rate] for values in planned)
    assert space_of('er', True).keys() == SPACES['er-ace'].keys()
    assert space_of('gdumb', True) == SPACES['gdumb']
    assert 'ridge_lambda' not in space_of('scroll', fixed={'predictor': 'ncc'})


def test_what_is_given_is_not_tuned_and_goes_into_the_rule(call, trials, tmp_path, monkeypatch):
    trials(lambda args: 50.0)
    monkeypatch.setitem(SPACES, 'scroll', SPACES['scroll'] | {'iterations': (300, 100)})
    given = '--models scroll --iterations 1 --finalists 1'
    call(f'{given} --trials 3 --input_size 20')
    call(f'{given} --trials 2')
    rules = rules_of(tmp_path, 'scroll')
    assert [rule['when'].get('input_size') for rule in rules] == [None, 20]
    for rule in rules:
        assert rule['set']['iterations'] == 1
    rows = read_rows(tmp_path / 'tuning' / 'seq-digits' / 'scroll.csv')[:3]
    assert len({row['ridge_lambda'] for row in rows}) > 1


@pytest.mark.parametrize('size, mode', [(500, 'adapters'), (502, 'full')])
def test_trials_of_scroll_adapt_as_the_whole_buffer_will_be(size, mode, call, trials):
    asked = trials(lambda args: 50.0)
    call(f'--models scroll --trials 1 --buffer_size {size}')
    args = asked[0]
    assert args.buffer_size == round(0.4 * size)
    adaptation = Adaptation(args.adaptation, threshold=args.adaptation_threshold)
    assert adaptation.mode_for(args.buffer_size) == mode


@pytest.mark.parametrize(
    'words, said',
    [
        ('--models no-such', 'no-such'),
        ('--models er --trials 0', '--trials'),
        ('--models er --tasks 9', '--tasks 9: this stream has 5 tasks'),
        ('--models er --trials 2 --final_tasks 9', '--final_tasks 9: this stream'),
        ('--models er --trials 2 --tasks 3 --final_tasks 2', '--final_tasks 2: expected'),
        ('--models er --no_such 1', '--no_such'),
        ('--n_splits=2 --batch_size=20', 'one value each'),
        ('--models scroll --ridge_lambda many', '--ridge_lambda many'),
        ('--seed 3', '--seed'),
        ('--num_threads', '--num_threads'),
    ],
)
def test_what_cannot_be_tuned(call, words, said):
    with refused(said):
        call(words)


def test_every_config_says_how_it_was_chosen():
    for path in (ROOT / 'models' / 'config').glob('*.yaml'):
        assert chosen_by({'model': path.stem, 'dataset': '', 'model_config': 'default'})
