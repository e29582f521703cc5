"""Certificates that travel: made again from the data, line by line; whatever differs is named."""

import json
import sys

import numpy as np
import pytest

from bench import flag_words
from bench.certify import command as certify
from bench.certify import measures
from bench.cli.parsing import parse_args
from core.commands import run_command
from tests.conftest import ROOT, save_tiny_integers, words_of

COMMITTED = ROOT / 'results' / 'certificates'


@pytest.fixture(scope='module')
def tiny(tmp_path_factory) -> list:
    """Two networks of different width, each with its integers."""
    folder = tmp_path_factory.mktemp('integers')
    return [save_tiny_integers(folder / f'{width}.safetensors', width) for width in (4, 5)]


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """call(*words): (exit code, name of a line -> what is said of it, all that was said)."""

    def run(*words):
        flags = [] if '--base_path' in words else ['--base_path', tmp_path]
        monkeypatch.setattr(
            sys, 'argv', ['certify.py', *words_of(*words, *flags, '--device cpu --non_verbose 1')]
        )
        code = run_command(certify.main)
        out, err = capsys.readouterr()
        cells = [[cell for cell in line.strip().split('  ') if cell] for line in out.splitlines()]
        return code, {cell[0]: cell[2].strip() for cell in cells if len(cell) == 3}, out + err

    return run


@pytest.fixture(scope='module')
def made(tiny, tmp_path_factory):
    """made(*flags): the file of a certificate of the digits, made once, and what it says."""
    known = {}

    def make(*flags):
        if flags not in known:
            folder = tmp_path_factory.mktemp('made')
            words = [
                '--dataset seq-digits --weights',
                tiny[0],
                '--schedules 1 --specs iid',
                '--buffers 1 --buffer_size 20 --keep',
                folder / 'kept.json',
                '--base_path',
                folder,
                '--device cpu',
            ]
            assert (
                certify.certify(*certify.parse_options(words_of(*words, '--non_verbose 1', *flags)))
                == 0
            )
            known[flags] = folder / 'kept.json'
        return known[flags], json.loads(known[flags].read_text())

    return make


def changed(path, part: str, *names, value: str = 'f' * 64):
    """A copy of a certificate in which lines say something else."""
    content = json.loads(path.read_text())
    assert set(names) <= set(content[part])
    content[part] |= dict.fromkeys(names, value)
    other = path.with_name('changed.json')
    other.write_text(json.dumps(content))
    return other


INTEGER = '--embedding_dtype integer'


def test_all_lines_but_the_schedules_are_made_again_from_three_of_them(call, made):
    path, content = made(INTEGER)
    assert list(content['anywhere'])[:6] == [
        'data',
        'backbone',
        'schedules',
        'integer network',
        'features of built-in images',
        'statistics',
    ]
    assert 'thread' in content['here']['machine']
    assert list(content['here']) == ['machine']
    assert '--embedding_dtype integer' in content['command']
    assert path.stat().st_size < 10_000
    code, lines, said = call('--check', path, '--feature_cache 0 --embed_chunk 7 --channels_last 0')
    assert code == 0, said
    assert list(lines) == list(content['anywhere']), said
    assert f'it says: {content["verdict"]["sentence"]}\n' in said
    assert lines.pop('schedules').startswith('skipped: 3 were learned')
    assert set(lines.values()) == {'the same'}
    assert said.splitlines()[-1] == f'  the same: {len(lines)} lines; 1 skipped'


def test_lines_that_say_something_else_are_named_alone(call, made):
    names = [
        'data',
        'statistics',
        'predictions, ridge, lambda 0.1',
        'right, ridge, lambda auto',
        'f_T, nearest centroid',
        'buffer, hash, |M| = 200',
    ]
    code, lines, said = call('--check', changed(made(INTEGER)[0], 'anywhere', *names), '--all 1')
    assert code == 1
    assert set(lines.values()) - {'the same'} == {lines[name] for name in names}
    assert [line for line, what in lines.items() if what.startswith('DIFFERS')] == names
    assert (
        said.splitlines()[-1]
        == f'  not the same: data, and what follows from it: {", ".join(names[1:])}'
    )


def test_other_weights_data_and_settings_are_named(call, made, tiny):
    path, _ = made(INTEGER)

    def first(*words):
        code, lines, said = call('--check', path, *words)
        differing = [line for line, what in lines.items() if what.startswith('DIFFERS')]
        assert code == 1
        assert said.splitlines()[-1].startswith(f'  not the same: {differing[0]}')
        return differing

    assert first('--weights', tiny[1])[:3] == [
        'backbone',
        'integer network',
        'features of built-in images',
    ]
    differing = first('--noise_rate 0.01')
    assert differing[:2] == ['data', 'statistics']
    assert 'backbone' not in differing


def test_a_certificate_of_another_head_says_its_settings(call, made):
    path, content = made(
        '--embedding_dtype float32 --predictor lda --shrinkage 0.25 --model_config best'
    )
    assert (content['settings']['predictor'], content['settings']['shrinkage']) == ('lda', 0.25)
    assert content['flags'] == ['--model_config', 'best']
    code, lines, _ = call('--check', path, '--head lda --shrinkage 0.5')
    assert code == 1
    assert lines['f_T, lda'].startswith('DIFFERS')
    assert lines['statistics'] == 'the same'


def test_floating_point_holds_on_its_kind_of_machine_and_the_check_says_so(call, made):
    path, content = made('--embedding_dtype float32')
    assert list(content['anywhere']) == ['data', 'backbone', 'schedules']
    assert {'network', 'statistics'} < set(content['here'])
    code, lines, said = call('--check', changed(path, 'here', 'statistics'))
    assert code == 1, said
    assert [name for name, what in lines.items() if what.startswith('DIFFERS')] == ['statistics'], (
        said
    )
    code, lines, _ = call('--check', changed(path, 'here', 'machine', value='an abacus, 2 threads'))
    assert code == 0
    assert lines['data'] == 'the same'
    assert lines['statistics'].startswith('skipped: holds on an abacus, 2 threads; this is ')


@pytest.mark.slow
def test_adapted_predictors_stand_among_what_holds_here(call, made):
    path, content = made(INTEGER, '--adapt 1 --iterations 2')
    assert list(content['here']) == ['machine', 'f*']
    assert call('--check', path, '--adapt 1')[1]['f*'] == 'the same'


EMPTY = {
    'anywhere': {'data': '', 'backbone': ''},
    'here': {},
    'settings': {},
    'options': {},
    'model': 'scroll',
    'dataset': 'seq-digits',
    'command': '',
    'verdict': {'sentence': ''},
    'flags': [],
}


@pytest.mark.parametrize(
    'content, said',
    [
        (None, 'no such file'),
        ('{', 'damaged'),
        ('{"format": "schedule-certificate-1"}', 'this is schedule-certificate-1'),
        ({'anywhere': {}}, 'damaged'),
        (EMPTY | {'anywhere': {}}, 'damaged'),
        (EMPTY | {'flags': [1]}, 'damaged'),
        (EMPTY | {'model': 'er'}, 'a certificate of er'),
        (EMPTY | {'options': {'dataset': 'seq-digits', 'schedules': -1}}, '--schedules'),
    ],
)
def test_what_is_no_certificate_ends_in_one_line(call, tmp_path, content, said):
    path = tmp_path / 'some.json'
    if content is not None:
        path.write_text(
            content
            if isinstance(content, str)
            else json.dumps({'format': 'schedule-certificate-2'} | content)
        )
    code, _, text = call('--check', path)
    assert code == 2, text
    assert len(text.splitlines()) == 1, text
    assert said in text


def test_a_certificate_of_two_files_of_features_is_made_again_and_flags_replace_its_own(
    call, tmp_path
):
    files = [tmp_path / 'one.npz', tmp_path / 'two.npz']
    for seed, file in enumerate(files):
        X = np.random.default_rng(seed).normal(size=(60, 5))
        np.savez(file, X=X, y=np.arange(60) % 4, split=['train'] * 40 + ['test'] * 20)
    kept = tmp_path / 'kept.json'
    words = ['--dataset seq-features --features', *files]
    code, _, said = call(*words, '--schedules 1 --buffer_size 0 --ridge_lambda 0.5 --keep', kept)
    assert code == 0, said
    code, lines, said = call('--check', kept)
    assert code == 0, said
    assert lines['data'] == 'the same'
    code, lines, said = call('--check', kept, '--features', files[0])
    assert code == 1, said
    assert lines['data'] != 'the same'


def test_the_committed_certificate_of_the_digits_holds_here(call):
    """The shipped network in integers; under AVX2, too (`make test-avx2`)."""
    code, lines, said = call(
        '--check', COMMITTED / 'seq-digits.json', '--num_threads 1 --feature_cache 0'
    )
    assert code == 0, said
    assert np.sum([what == 'the same' for what in lines.values()]) >= 20, said


@pytest.mark.parametrize('path', sorted(COMMITTED.glob('*.json')), ids=lambda path: path.stem)
def test_what_a_committed_certificate_says_is_made_today(path, call, tiny, tmp_path):
    """Many schedules, the shipped integers, its settings; for one file a line of each of its names,
    of the digits and a tiny network, whose values are others."""
    content = json.loads(path.read_text())
    digits = json.loads((COMMITTED / 'seq-digits.json').read_text())
    assert content['verdict']['identical']
    assert content['verdict']['schedules'] >= 100
    assert path.stat().st_size < 10_000
    # of the file's name, where it is not ridge
    head = path.stem.removeprefix(content['dataset']).split('-')[1:2]
    named = (
        'f*'
        if path.stem.endswith('f-star')
        else f'f_T, {head[0].replace("ncc", "nearest centroid")}'
        if head
        else 'data'
    )
    assert path.stem.startswith(content['dataset'])
    assert named in content['anywhere']
    if not content['settings'].get('stages'):
        assert content['anywhere']['integer network'] == digits['anywhere']['integer network']
    words = ['--model', content['model'], '--dataset', content['dataset'], *content['flags']]
    read = measures.read(path)
    args = parse_args([*words, *flag_words(**read['settings'])])
    flags = {
        option: action.dest
        for action in parse_args(words, return_parser_only=True)._actions
        for option in action.option_strings
    }
    taken = {name: getattr(args, flags[f'--{name}']) for name in read['settings']}
    # which was the default
    assert taken == read['settings']
    if path.stem != 'seq-cifar100-lda-square':
        return
    other = tmp_path / 'digits.json'
    other.write_text(
        json.dumps(
            content
            | {'dataset': 'seq-digits', 'options': content['options'] | {'dataset': 'seq-digits'}}
        )
    )
    code, lines, said = call('--check', other, '--weights', tiny[0])
    assert code == 1
    assert list(lines) == [
        *content['anywhere'],
        *(name for name in content['here'] if name != 'machine'),
    ]
    assert 'nothing here' not in said, said
