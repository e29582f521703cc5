"""Tuning: the same number of trials for every method, on training samples alone, each once; and who says so."""
import sys

import numpy as np
import pytest
import yaml

from bench.cli.parsing import parse_args
from bench.paper import tune
from core.configs import chosen_by, model_config
from core.plugins import ROOT
from core.rows import read_rows
from datasets.utils.readers import Images, digits
from models import get_model_class
from scroll.adaptation import Adaptation
from tests.conftest import refused


@pytest.fixture
def call(monkeypatch, capsys, tmp_path, tiny_weights):
    """call(*words): stdout of the script on the digits; config files go to tmp_path/models/config."""
    folder = tmp_path / 'models' / 'config'
    folder.mkdir(parents=True)
    monkeypatch.setattr(tune, 'CONFIG', folder)

    def run(*words):
        flags = ('--dataset', 'seq-digits', '--weights', tiny_weights, '--base_path', tmp_path, '--out', tmp_path / 'tuning', *words)
        monkeypatch.setattr(sys, 'argv', ['tune.py', *map(str, flags)])
        tune.main()
        return capsys.readouterr().out
    return run


def _with_black_test_images():
    """The digits with a black test image a class: no classifier has more than a tenth of them right."""
    whole = digits()
    return lambda: Images(whole.train, whole.train_labels, np.zeros_like(whole.test[:10]), np.arange(10), whole.class_names)


def test_rules_come_from_training_data_alone_and_trials_are_made_once(call, tmp_path, monkeypatch, tiny_weights):
    path = tmp_path / 'models' / 'config' / 'er_ace.yaml'
    before = dict(when=dict(dataset='seq-digits'), set=dict(lr=.5)), dict(when=dict(weights='other', dataset='seq-digits', buffer_size=90), set=dict(lr=.3))
    path.write_text('# Said by hand.\n' + yaml.safe_dump(dict(by='the paper', default=dict(lr=.4), best=list(before)), sort_keys=False))
    monkeypatch.setattr('datasets.utils.readers.digits', _with_black_test_images())
    call('--models', 'er-ace', '--trials', 1, '--tasks', 1, '--buffer_size', 25, '--num_threads', 1)
    assert float(read_rows(tmp_path / 'tuning' / 'seq-digits' / 'er-ace.csv')[0]['accuracy']) > 15
    monkeypatch.setattr(tune, 'accuracy_of', lambda words: 20. + len(words) % 7)
    words = '--models', 'er-ace', '--trials', 2, '--tasks', 1, '--buffer_sizes', 100, 25, '--num_threads', 1
    said = call(*words)
    rows = read_rows(tmp_path / 'tuning' / 'seq-digits' / 'er-ace.csv')
    assert len(rows) == 4 and said.count('trial 2 of 2') == 2
    assert ['--buffer_size 5 ' in row['command'] for row in rows] == [True, True, False, False]        # two of ten classes
    assert 'trial' not in call(*words)                                         # every trial has its row
    monkeypatch.setattr('core.configs.ROOT', tmp_path)
    known = dict(model='er-ace', model_config='best', weights=tiny_weights, dataset='seq-digits', buffer_size=90)
    best = max(rows[2:], key=lambda row: float(row['accuracy']))
    assert {k: str(v) for k, v in model_config('er-ace', 'best', known)[0].items()} == {k: best[k] for k in tune.SPACES['er-ace']}
    assert 'tuned with 2 trials' in chosen_by(known) and '|M| = 100' in chosen_by(known)
    assert '|M| = 25' in chosen_by({**known, 'buffer_size': 25}) and chosen_by({**known, 'weights': 'none'}) == 'the paper'
    assert model_config('er-ace', 'best', {**known, 'weights': 'other'})[0] == dict(lr=.3)
    assert path.read_text().startswith('# Said by hand.\nby: the paper\n') and chosen_by({**known, 'model_config': 'base'}) == ''


def test_values_for_a_predictor_or_some_passes_leave_those_for_any_alone(call, tmp_path, monkeypatch, tiny_weights):
    monkeypatch.setattr(tune, 'accuracy_of', lambda words: 50.)
    call('--models', 'scroll', '--trials', 1, '--predictor', 'ncc')
    call('--models', 'er', 'ens', '--trials', 1, '--n_epochs', 2)             # ENS is online, and has no such rule
    assert 'n_epochs' not in (tmp_path / 'models' / 'config' / 'ens.yaml').read_text()
    for model, space in (('scroll', dict(adapt_lr=(.07,))), ('er', dict(lr=(.07,), batch_size=(10,)))):
        monkeypatch.setitem(tune.SPACES, model, space)
        call('--models', model, '--trials', 1)
    monkeypatch.setattr('core.configs.ROOT', tmp_path)
    run = ['--model', 'scroll', '--dataset', 'seq-digits', '--weights', tiny_weights, '--model_config', 'best', '--buffer_size', '20']
    rates = [parse_args([*run, *own]).adapt_lr for own in ([], ['--predictor', 'ncc'], ['--head', 'ncc'], ['--predictor', 'random'])]
    known = dict(model='er', model_config='best', weights=tiny_weights, dataset='seq-digits', buffer_size=20)
    rates += [model_config('er', 'best', known | dict(n_epochs=n))[0]['lr'] for n in (1, 2, 5)]
    assert rates == [.07, .002, .002, .07, .07, .01, .07]


def test_the_best_trials_meet_again_on_more_tasks_and_the_winner_is_decided_there(call, tmp_path, monkeypatch):
    asked = []

    def accuracy(words):
        asked.append(parse_args(words))
        two, five = {10: (80., 20.), 32: (70., 60.), 64: (60., 99.)}[asked[-1].batch_size]
        return two if asked[-1].stop_after == 2 else five
    monkeypatch.setattr(tune, 'accuracy_of', accuracy)
    monkeypatch.setitem(tune.SPACES, 'er-ace', dict(lr=(.1,), batch_size=(64, 10, 32)))
    words = '--models', 'er-ace', '--trials', 3, '--buffer_size', 50, '--finalists', 2, '--final_tasks', 5
    call(*words)
    assert [(args.stop_after, args.buffer_size) for args in asked] == 3 * [(2, 20)] + 2 * [(5, 50)]
    rule, = yaml.safe_load((tmp_path / 'models' / 'config' / 'er_ace.yaml').read_text())['best']
    assert rule['set']['batch_size'] == 32 and 'of 2 finalists on 5 tasks: 60.0 %' in rule['by']
    call(*words)
    assert len(asked) == 5


def test_a_killed_tuning_goes_on_with_the_trials_that_have_no_row(call, monkeypatch):
    asked = []

    def accuracy(words):
        asked.append(words)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return 50.
    monkeypatch.setattr(tune, 'accuracy_of', accuracy)
    words = '--models', 'er-ace', '--trials', 3
    with pytest.raises(KeyboardInterrupt):
        call(*words)
    call(*words)
    assert len(asked) == 4 and asked[1] == asked[2] and asked[0] not in asked[1:]


@pytest.mark.parametrize('model', ['er-ace', 'gdumb'])
def test_no_trial_ends_a_task_in_a_batch_of_fewer_than_four_samples(model, tiny_weights, tmp_path):
    options, flags = tune.parse_options(['--dataset', 'seq-digits', '--weights', tiny_weights, '--base_path', str(tmp_path)])
    tuning, name = tune.Tuning(model, options, flags), 'fitting_batch_size' if model == 'gdumb' else 'batch_size'
    dropped = 0
    for batch in (5, 10, 14, 29, 38):
        args = parse_args(tuning.words(100, {'lr': .1, name: batch} if model != 'gdumb' else {name: batch}, 2))
        sizes = [args.buffer_size] if model == 'gdumb' else tuning.samples(2)
        assert all(size % batch in (0, *range(4, batch)) or args.drop_last for size in sizes)
        dropped += args.drop_last
    assert model == 'gdumb' or 0 < dropped < 5


def test_a_trial_that_diverges_has_no_accuracy(tiny_weights, tmp_path):
    options, flags = tune.parse_options(['--dataset', 'seq-digits', '--weights', tiny_weights, '--base_path', str(tmp_path), '--num_threads', '1'])
    assert tune.accuracy_of(tune.Tuning('er', options, flags).words(20, dict(lr=1e30), 2)) == 0


def test_a_plan_begins_with_the_first_values_repeats_nothing_and_has_flags_of_the_method():
    for model, space in tune.SPACES.items():
        planned = tune.plan(model, 16)
        assert planned[0] == {name: values[0] for name, values in space.items()} and planned == tune.plan(model, 16)
        assert len({tuple(values.items()) for values in planned}) == 16
        assert all(values[name] in space[name] for values in planned for name in space)
        online = get_model_class(model).ONLINE and model not in ('scroll', 'gdumb')
        assert ({'lr', 'batch_size'} <= set(space)) == (model not in ('scroll', 'gdumb')) and ('batch_iterations' in space) == online
    planned, space = tune.plan('derpp', 8), tune.SPACES['derpp']
    assert {values['lr'] for values in planned} == set(space['lr'])
    assert all(sum(values[name] == first for values in planned) == 4 for name, (first, *others) in space.items() if len(others) == 1)
    assert tune.space_of('er', True) == tune.space_of('er-ace') and tune.space_of('gdumb', True) == tune.SPACES['gdumb']


def test_what_is_given_is_not_tuned_and_goes_into_the_rule(call, tmp_path, monkeypatch, tiny_weights):
    monkeypatch.setattr(tune, 'accuracy_of', lambda words: 50.)
    given = '--iterations', 1, '--adapt_select', 'none'
    call('--models', 'scroll', '--trials', 3, '--input_size', 20, *given)
    call('--models', 'scroll', '--trials', 2, *given)
    content = yaml.safe_load((tmp_path / 'models' / 'config' / 'scroll.yaml').read_text())
    assert [rule['when'].get('input_size') for rule in content['best']] == [None, 20]
    assert all(rule['set']['iterations'] == 1 and rule['set']['adapt_select'] == 'none' for rule in content['best'])
    rows = read_rows(tmp_path / 'tuning' / 'seq-digits' / 'scroll.csv')
    assert len(rows) == 5 and len({row['adapt_lr'] + row['classifier_lr'] + row['minibatch_size'] for row in rows[:3]}) > 1
    with refused('--iterations many'):
        call('--models', 'scroll', '--iterations', 'many')


@pytest.mark.parametrize('size, mode', [(500, 'adapters'), (502, 'full')])
def test_trials_of_scroll_adapt_as_the_whole_buffer_will_be(size, mode, monkeypatch, tmp_path, tiny_weights):
    options, flags = tune.parse_options(['--dataset', 'seq-digits', '--weights', tiny_weights, '--base_path', str(tmp_path), '--out', str(tmp_path / 'tuning'),
                                         '--trials', '1'])
    asked = []
    monkeypatch.setattr(tune, 'accuracy_of', lambda words: asked.append(parse_args(words)) or 50.)
    tune.Tuning('scroll', options, flags).tune(size, 0)
    args, = asked
    assert args.buffer_size == round(.4 * size)
    assert Adaptation(args.adaptation, threshold=args.adaptation_threshold).mode_for(args.buffer_size) == mode


@pytest.mark.parametrize('words, said', [(['--models', 'no-such'], 'no-such'), (['--models', 'er', '--trials', '0'], '--trials'),
                                         (['--models', 'er', '--tasks', '9'], '--tasks 9: this stream has 5 tasks'),
                                         (['--models', 'er', '--trials', '2', '--finalists', '2', '--final_tasks', '9'], '--final_tasks 9: this stream'),
                                         (['--models', 'er', '--no_such', '1'], '--no_such'), (['--num_threads'], '--num_threads')])
def test_what_cannot_be_tuned(call, words, said):
    with refused(said):
        call(*words)


def test_every_config_says_how_it_was_chosen():
    for path in (ROOT / 'models' / 'config').glob('*.yaml'):
        assert chosen_by(dict(model=path.stem, model_config='default'))
