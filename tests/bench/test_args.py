"""How a run's arguments are put together, and what is refused."""

import argparse
import itertools
import re
from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

import core.configs
import datasets
import models
from bench.cli.parsing import parse_args
from core.arguments import AFFECTS, add_rehearsal_args, real, whole
from datasets.seq_digits import SequentialDigits
from models.sgd import Sgd
from tests.conftest import quick, refused, words_of, written


class ProbeData(SequentialDigits):
    """Digits that ask for 3 epochs and have a flag of their own, through the signature."""

    NAME = 'probe-data'

    def __init__(self, args, shade: float = 0.5, inverted: bool = False, origin: str | None = None):
        super().__init__(args)

    @staticmethod
    def get_epochs():
        return 3


class ProbeModel(Sgd):
    """SGD with a buffer and defaults that a test sets."""

    NAME = 'probe-model'
    wanted = {}

    @staticmethod
    def get_parser(parser):
        add_rehearsal_args(parser)
        parser.set_defaults(**ProbeModel.wanted)
        parser.add_argument('--strength', type=real(0), default=0.1, help='how strongly')
        parser.add_argument('--strategy', default='first')
        parser.add_argument('--prompt', type=bool, default=True)  # as L2P of Mammoth
        return parser


@pytest.fixture
def probe(monkeypatch, tmp_path):
    """probe(*flags, config=, data_config=, defaults=): arguments under these config files and model
    defaults.
    """
    monkeypatch.setitem(models.PLUGINS.registered, 'probe-model', ProbeModel)
    monkeypatch.setitem(datasets.PLUGINS.registered, 'probe-data', ProbeData)
    monkeypatch.setattr(core.configs, 'ROOT', tmp_path)

    def arguments(
        *flags,
        config=None,
        data_config=None,
        defaults=None,
        buffer='--buffer_size=7',
        dataset='probe-data',
        lr='--lr=0.5',
    ):
        written(
            tmp_path,
            {
                'models/config/probe_model.yaml': config or '',
                'datasets/configs/probe-data/default.yaml': data_config or '',
            },
        )
        monkeypatch.setattr(ProbeModel, 'wanted', defaults or {})
        return parse_args(
            words_of('--model probe-model --dataset', dataset, '--weights none', buffer, lr, *flags)
        )

    return arguments


@pytest.mark.parametrize(
    'layers',
    [layers for layers in itertools.product((0, 1), repeat=4) if sum(layers) != 2],
    ids=str,
)
def test_the_strongest_source_of_a_value_wins(probe, layers):
    """Data set's own 3 < its config 4 < the model's set_defaults 5 < model config 6 < command line
    7.
    """
    data, model, config, line = layers
    args = probe(
        *['--n_epochs=7'] * line,
        config='default: {n_epochs: 6}' if config else None,
        data_config='n_epochs: 4' if data else None,
        defaults={'n_epochs': 5} if model else None,
    )
    assert args.n_epochs == max(value for value, on in zip((3, 4, 5, 6, 7), (1, *layers)) if on)


def test_where_nothing_is_said(probe):
    """Defaults of the flags, of a signature, of the model: --strength comes after `set_defaults`,
    the other before.
    """
    args = probe('--shade 0.25 --inverted yes --batch_size 16')
    expected = {
        'optimizer': 'sgd',
        'seed': 0,
        'lr_milestones': [],
        'strength': 0.1,
        'minibatch_size': 16,
        'backbone': 'resnet18-md',
        'width': 64,
        'shade': 0.25,
        'inverted': True,
        'origin': None,
    }
    assert vars(args).items() >= expected.items()
    args = probe(defaults={'strength': 0.3, 'minibatch_size': 5})
    assert (args.strength, args.minibatch_size) == (0.3, 5)


def test_what_a_config_gives_is_no_longer_required(probe):
    with refused('required: --lr'):
        probe(lr='')
    with refused('required: --buffer_size'):
        probe(buffer='')
    assert probe(lr='', config='default: {lr: 0.25}').lr == 0.25
    assert probe(lr='', defaults={'lr': 0}).lr == 0  # zero is a value
    assert probe(buffer='', data_config='buffer_size: 0').buffer_size == 0
    assert probe(data_config='notes: 5').notes == '5'
    args = probe(config='default: {prompt: false, strategy: 0.5}')
    assert (args.prompt, args.strategy) == (False, 0.5)
    assert probe(data_config='backbone: {type: linear, args: }').backbone == 'linear'


RULES = """
default: {strength: 1}
best:
  - {when: {dataset: probe-data}, set: {strength: 2, optim_wd: 0.5}}
  - {when: {buffer_size: {max: 100}}, set: {strength: 3}}
  - {when: {buffer_size: {min: 500, max: 999}}, set: {strength: 4}}
  - {when: {dataset: probe-data, buffer_size: {min: 2000}}, set: {strength: 5}}
  - {when: {dataset: other}, set: {strength: 6}}
"""


@pytest.mark.parametrize('buffer, strength', [(100, 3), (101, 2), (500, 4), (999, 4), (2000, 5)])
def test_of_the_rules_of_best_the_last_that_holds_wins(probe, buffer, strength):
    args = probe('--model_config=best', buffer=f'--buffer_size={buffer}', config=RULES)
    assert (args.strength, args.optim_wd) == (strength, 0.5)


@pytest.mark.parametrize(
    'text, word',
    [
        ('strenth: 1', 'did you mean strength'),
        ('lr: .nan', 'nan'),
        ('batch_size: ' + '9' * 5000, 'damaged'),
        ('lr: [0.1, 0.2]', '[0.1, 0.2]'),
        ('optimizer: sgdd', 'adamw'),
        ('lr_milestones: 35', '35'),
        ('lr: "open', 'damaged'),
        ('lr: !!timestamp abc', 'damaged'),
    ],
    ids=lambda value: value[:40],
)
@pytest.mark.parametrize('where', ['model', 'data set'])
def test_nonsense_in_a_config_file_is_refused(probe, where, text, word):
    files = {'data_config': text}
    if where == 'model':
        files = {'config': f'default:\n  {text}'}
    with refused(word, text.partition(':')[0] if word != 'damaged' else ''):
        probe(**files)


@pytest.mark.parametrize(
    'text, word',
    [
        ('default: 3', 'default'),
        ('lr: 3', 'default'),
        ('best: 3', 'when'),
        ('best: [{set: {strength: 1}}]', 'when'),
        ('best: [{when: {}, set: 3}]', 'when'),
        ('best: [{when: {dataset: {min: 1}}, set: {}}]', 'when'),
        ('probe-data: 3', 'flags'),
        ('best: {probe-data: {7: 3}}', 'not a flag'),
        ('probe-data: {small: {lr: 1}}', 'buffer size'),
        ('probe-data: {7: {speed: 1}}', 'not a flag'),
        ('a: &a {lr: 1}\nb: *a', 'aliases'),
        ('default: {lr: 1}\ndefault: {}', 'twice'),
    ],
)
def test_a_model_config_of_another_shape_is_refused(probe, text, word):
    with refused('models/config/probe_model.yaml', word):
        probe('--model_config=best', config=text)


@pytest.mark.parametrize(
    'text, name, value',
    [
        ('lr_scheduler: None', 'lr_scheduler', None),
        ('drop_last: no', 'drop_last', False),
        ('lr_milestones: [35, 45]', 'lr_milestones', [35, 45]),
        ('validation: 20', 'validation', 20),
        ('non_verbose: true', 'non_verbose', True),
        ('joint: 1', 'joint', 1),
    ],
)
def test_values_in_a_config_have_the_types_of_their_flags(probe, text, name, value):
    """Also those of flags that may stand bare or have other names on the command line."""
    assert getattr(probe(data_config=text), name) == value
    assert getattr(probe(config=f'default: {{{text}}}'), name) == value


@pytest.mark.parametrize(
    'flags, words',
    [
        ('--seed=1 --seed 1', '2 times'),
        ('--batch-size=3', 'did you mean --batch_size?'),
        ('--optim sgd', '--optim:'),
        ('stray', ''),
        ('--seed', 'expected one argument'),
        ('--seed 1.5', 'whole number'),
        ('--optim_wd nan', 'nan'),
        ('--lr_milestones 3 x', 'x'),
        ('--lr_scheduler cosin', 'did you mean cosine?'),
        ('--schedule gaussian:sgima=.5', 'did you mean sigma?'),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_refused(probe, flags, words):
    with refused(re.split('[ =]', flags)[0], words):
        probe(*flags.split())


@quick
@given(st.integers(-(10**20), 10**20), st.integers(-5, 5), st.floats(), st.booleans())
def test_numbers_keep_their_value_or_are_refused(value, least, other, positive):
    with nullcontext() if value >= least else pytest.raises(argparse.ArgumentTypeError):
        assert whole(least)(str(value)) == value
    fine = abs(other) < float('inf') and (other > 0 if positive else other >= -3)
    with nullcontext() if fine else pytest.raises(argparse.ArgumentTypeError):
        assert (real(positive=True) if positive else real(-3))(repr(other)) == other


SECTIONS = """
default: {strength: 1, optim_wd: 0.125}
probe_data:
  strength: 2
  n_epochs: 9
  default: {optim_mom: 0.5}
  7: {strength: 3}
  500: {strength: 4}
other: {strength: 5}
none-yet:
"""


@pytest.mark.parametrize(
    'dataset, buffer, strength, epochs',
    [
        ('probe-data', 7, 3, 9),
        ('Probe_Data', 500, 4, 9),
        ('probe-data', 200, 2, 9),
        ('seq-digits', 7, 1, 5),
    ],
)
def test_sections_as_mammoth_has_them(probe, dataset, buffer, strength, epochs):
    """Data set and buffer size over data set over default; what is not there is not missed."""
    run = {'config': SECTIONS, 'dataset': dataset, 'buffer': f'--buffer_size={buffer}'}
    args = probe('--model_config=best', **run)
    assert (args.strength, args.n_epochs, args.optim_wd) == (strength, epochs, 0.125)
    assert args.optim_mom == (0.5 if epochs == 9 else 0)
    assert probe(**run).strength == 1
    assert probe('--load_best_args', **run).strength == strength


@pytest.mark.parametrize(
    'flags, data_config, splits',
    [
        ('--n_splits 2', None, 2),
        ('--schedule split:3,order=random', None, 3),
        ('--schedule iid', None, None),
        ('--joint 1', None, 1),
        ('', 'N_CLASSES_PER_TASK: 5', 2),
        ('--n_splits 3', 'N_TASKS: 4', 3),
    ],
)
def test_rules_know_the_number_of_splits_whoever_says_it(probe, flags, data_config, splits):
    rules = ''.join(
        f'\n  - {{when: {{n_splits: {n}}}, set: {{strength: {n}}}}}' for n in range(1, 6)
    )
    args = probe(
        '--model_config=best',
        flags,
        config=f'default: {{strength: 9}}\nbest:{rules}',
        data_config=data_config,
    )
    assert args.strength == (splits or 9)


class Clash(Sgd):
    """Wants a flag that is there, for something else."""

    NAME = 'clash'

    @staticmethod
    def get_parser(parser):
        parser.add_argument('--seed', type=str)


def test_a_flag_that_clashes_is_told(parse, monkeypatch):
    monkeypatch.setitem(models.PLUGINS.registered, 'clash', Clash)
    with refused('--model clash', '--seed'):
        parse('clash', '--lr 1')


@pytest.mark.parametrize('dataset', ['seq-digits', 'seq-features'])
def test_groups_of_flags_have_an_example_that_can_be_given(dataset):
    parser = parse_args(['--model', 'scroll', '--dataset', dataset], return_parser_only=True)
    examples = {group.title: group.description for group in parser._action_groups}
    examples = {title: text for title, text in examples.items() if text}
    assert len(examples) >= 9
    for title, text in examples.items():
        words = text.removeprefix('example: ').split()
        _, unknown = parser.parse_known_args(words)
        assert (text.startswith('example: --'), unknown) == (True, []), title
        actions = [action for action in parser._actions if action.container.title == title]
        flags = {flag for action in actions for flag in action.option_strings}
        assert {word for word in words if word.startswith('--')} <= flags


@pytest.mark.parametrize('method', ['bic', 'scroll'])
def test_every_flag_says_what_it_affects(method):
    words = words_of('--model', method, '--dataset seq-digits --weights none')
    affects = parse_args(words, return_parser_only=True).affects()
    assert set(affects.values()) <= set(AFFECTS)
    for word, flags in {
        'place': 'base_path checkpoint_path results_path checkpoint_every',
        'speed': 'device num_threads num_workers disable_noisy_labels_cache',
        'display': 'notes non_verbose',
    }.items():
        assert {affects[flag] for flag in flags.split()} == {word}


@pytest.mark.parametrize(
    'words, same',
    [
        ('--num_workers 2 --notes x --seed 3 --eval_epochs 9 --savecheck last', True),
        ('--bn frozen', False),
        ('--n_splits 2', False),
        ('--start_from 1', False),
    ],
)
def test_what_tells_runs_apart_is_in_their_keys(parse, words, same):
    flags = '--lr 1 --buffer_size 5'
    assert (parse('er', flags, words).key == parse('er', flags).key) == same


def test_explain_prints_each_value_with_its_source(probe, capsys):
    with pytest.raises(SystemExit) as end:
        probe('--model_config=best --explain', config=SECTIONS, data_config='batch_size: 9')
    lines = capsys.readouterr().out.splitlines()
    assert not end.value.code
    file = 'models/config/probe_model.yaml'
    expected = [
        'lr 0.5 from the command line',
        'n_epochs 9 from models/config/probe_model.yaml: probe-data',
        'batch_size 9 from datasets/configs/probe-data/default.yaml',
        f'strength 3.0 from {file}: probe-data, 7 samples',
        f'optim_wd 0.125 from {file}: default',
        'weights none from the command line',
        'backbone resnet18-md from data set probe-data',
        'shade 0.5 from default',
        'minibatch_size 9 from default: None',
    ]
    assert not set(expected) - set(lines)
    assert lines[-1].endswith('from default')
    with pytest.raises(SystemExit):
        probe('--model_config=best --explain', config=RULES, defaults={'optim_mom': 0.25})
    lines = capsys.readouterr().out.splitlines()
    assert f"optim_wd 0.5 from {file}: best, {{'dataset': 'probe-data'}}" in lines
    assert f"strength 3.0 from {file}: best, {{'buffer_size': {{'max': 100}}}}" in lines
    assert 'optim_mom 0.25 from method probe-model' in lines
    with refused('--lr', 'fast'):  # an invalid run has no explanation
        probe('--explain', lr='--lr=fast')


def test_a_method_may_have_a_flag_that_is_a_newer_name_of_ours(probe):
    assert probe(config='default: {strategy: last}').strategy == 'last'


def test_flags_have_older_names_which_rows_keep(parse, monkeypatch, tmp_path):
    new = parse('scroll', '--head qda --targets onehot --strategy hash --dtype float32')
    older = (
        '--predictor qda --ridge_targets onehot --buffer_strategy hash --embedding_dtype float32'
    )
    old = parse('scroll', older)
    assert (vars(new), new.key) == (vars(old), old.key)
    assert (old.predictor, old.ridge_targets, old.embed_dtype) == ('qda', 'onehot', 'float32')
    monkeypatch.setattr(core.configs, 'ROOT', tmp_path)
    for head, strategy in (('head', 'buffer_strategy'), ('predictor', 'strategy')):
        rules = f'best: [{{when: {{{head}: ncc}}, set: {{{strategy}: hash}}}}]'
        written(tmp_path, {'models/config/scroll.yaml': rules})
        assert parse('scroll', '--head ncc --model_config best').buffer_strategy == 'hash'
