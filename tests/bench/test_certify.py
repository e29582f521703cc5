"""Certificates: what they say is what runs of main.py do; they find a difference where there is
one; they go on where they were.
"""

import itertools
import json

import numpy as np
import pytest
import torch

from bench.certify import command as certify
from bench.certify import measures, trials
from bench.run.building import initialize
from bench.run.training import train
from tests.bench.conftest import killed_at
from tests.conftest import refused, words_of

SCROLL = '--schedules 4 --specs iid;split:5,batch=200 --stream_check 1 --buffers 3'
SGD = '--model sgd --lr 0.05 --n_epochs 1 --batch_size 64 --schedules 1 --num_threads 1'


@pytest.fixture(scope='module')
def call(tiny_weights):
    """call(folder, *words): (exit code, certificate, its rows) on the digits."""

    def run(folder, *words):
        words = words_of(
            '--dataset seq-digits --weights',
            tiny_weights,
            '--out',
            folder,
            '--base_path',
            folder,
            '--device cpu',
            *words,
        )
        options, flags = certify.parse_options(words)
        flags += [] if '--model' in words else ['--feature_cache', '0']
        code = certify.certify(options, flags)
        path = max(folder.glob('certificate-*.json'), key=lambda p: p.stat().st_mtime_ns)
        certificate = json.loads(path.read_text())
        return code, certificate, certificate['schedules']

    return run


def runs_in(folder) -> int:
    return len((folder / 'runs.jsonl').read_text().strip().splitlines())


@pytest.fixture(scope='module')
def scroll(call, tmp_path_factory):
    """The certificate of SCROLL that several tests look at: (folder, exit code, certificate,
    rows).
    """
    folder = tmp_path_factory.mktemp('scroll')
    return folder, *call(folder, SCROLL)


def test_scroll_is_certified_identical(scroll):
    _, code, certificate, rows = scroll
    verdict = certificate['verdict']
    assert certify.parse_options(['--dataset', 'x', '--model', 'SCROLL'])[0].model == 'scroll'
    assert code == 0
    assert verdict['identical']
    assert verdict['schedules'] == len(rows) == 8
    names = ('statistics', 'f_T', 'weights and predictions', 'buffer')
    assert verdict['distinct'] == {**dict.fromkeys(names, 1), 'f*': 0}
    assert verdict['disagreement'] == verdict['weight_difference'] == verdict['final']['range'] == 0
    assert [row['spec'] for row in rows][:4] == [
        'split:5',
        'split:5,order=9-8-7-6-5-4-3-2-1-0',
        'iid',
        'split:5,batch=200',
    ]
    assert len({row['schedule_digest'] for row in rows}) == 8
    assert [bool(row['buffer_digest']) for row in rows] == [True] * 3 + [False] * 5
    assert [bool(row['streamed_digest']) for row in rows] == [True] * 4 + [False] * 3 + [True]
    assert [row['whole_classes'] for row in rows] == [True] * 3 + [False] + [True] * 4
    assert certificate['inputs']['data_digest']
    assert certificate['inputs']['seed'] == 0


def test_a_row_is_what_main_finds_under_that_schedule(scroll, parse):
    row = scroll[3][1]
    model, dataset, args = initialize(
        parse('scroll', '--schedule', row['spec'], '--adaptation none --feature_cache 0')
    )
    measured = train(model, dataset, args)
    for ours, theirs in (
        ('statistics_digest', 'statistics_digest'),
        ('net_digest', 'online_digest'),
        ('buffer_digest', 'buffer_digest'),
        ('schedule_digest', 'schedule_digest'),
    ):
        assert row[ours] in (None, measured[theirs])
    assert row['final_accuracy'] == pytest.approx(measured['final_accuracy'], abs=1e-3)
    assert row['average_incremental_accuracy'] == pytest.approx(
        measured['average_incremental_accuracy'], abs=1e-3
    )


def test_what_was_run_is_not_run_again(scroll, call, monkeypatch):
    folder, _, certificate, rows = scroll
    with open(folder / 'runs.jsonl', 'ab') as file:
        file.write(b'\n\xff\n{"key": "killed while wri')
    monkeypatch.setattr(trials.ScrollTrials, 'run', lambda *_: pytest.fail('it had a row'))
    again = call(folder, SCROLL)
    assert again[0] == 0
    assert again[2] == rows
    assert again[1]['id'] == certificate['id']
    assert again[1]['verdict'] == certificate['verdict']


def test_other_arguments_other_code_or_a_lost_outcome_are_run(call, tmp_path, monkeypatch):
    words = ['--schedules 0 --specs= --buffers 0']
    first = call(tmp_path, *words)[1]
    assert runs_in(tmp_path) == 2
    other = call(tmp_path, *words, '--ridge_lambda 7')[1]
    assert runs_in(tmp_path) == 4
    assert other['schedules'][0]['net_digest'] != first['schedules'][0]['net_digest']
    assert other['id'] != first['id']
    for path in (tmp_path / 'outcomes').iterdir():
        path.write_bytes(path.read_bytes()[:100])
    call(tmp_path, *words)
    assert runs_in(tmp_path) == 5  # the second has the same outcome as the first, again
    monkeypatch.setattr(certify, 'project_digest', lambda: 'other')
    call(tmp_path, *words)
    assert runs_in(tmp_path) == 7


def test_a_short_cut_that_is_wrong_is_found_by_streaming(call, tmp_path, monkeypatch):
    """The sums of one class are counted for another."""
    sums = measures.summed_stream
    monkeypatch.setattr(
        measures,
        'summed_stream',
        lambda learner, parts, *given: sums(learner, [parts[0], *parts[:1], *parts[2:]], *given),
    )
    words = ['--schedules 1 --specs= --buffers 0 --stream_check']
    code, certificate, _ = call(tmp_path, *words, 1)
    assert code == 1
    assert not certificate['verdict']['identical']
    assert certificate['verdict']['distinct']['statistics'] == 2


def test_buffers_are_claimed_where_classes_arrive_whole_and_hashed_ones_everywhere(call, tmp_path):
    words = '--schedules 0 --specs split:5,batch=60 --buffers 9 --buffer_size 20 --buffer_strategy'
    code, certificate, rows = call(tmp_path, words, 'herding')
    assert code == 0
    assert certificate['verdict']['distinct']['buffer'] == 2
    assert rows[0]['buffer_digest'] == rows[1]['buffer_digest']
    code, certificate, _ = call(tmp_path, words, 'hash')
    assert code == 0
    assert certificate['verdict']['distinct']['buffer'] == 1


@pytest.mark.parametrize(
    'words, said',
    [
        (['--specs imbalanced:5'], ['imbalanced:5', 'leaves out samples']),
        (['--specs split:0'], ['split:0']),
        (['--schedule iid'], ['--schedule:']),
        (['--model icarl --buffer_size 20 --specs gaussian'], ['icarl', 'no tasks']),
        (['--eval_every 9'], ['--eval_every', 'no effect']),
        (['--load_state x --keep x'], ['be lost']),
        (['--load_state=x --keep x'], ['be lost']),
    ],
)
def test_what_the_user_can_mend_ends_in_one_line(call, tmp_path, words, said):
    with refused(*said):
        call(tmp_path, *words)
    assert not (tmp_path / 'runs.jsonl').exists() or not (tmp_path / 'runs.jsonl').read_text()


@pytest.fixture(scope='module')
def sgd(call, tmp_path_factory):
    """A method that forgets, stopped before its third schedule, then continued: (folder, exit code,
    certificate, rows).
    """
    folder = tmp_path_factory.mktemp('sgd')
    with killed_at(3) as ran:
        with pytest.raises(KeyboardInterrupt):
            call(folder, SGD)
        assert runs_in(folder) == 2
        result = call(folder, SGD)
    assert len(ran) == 4
    assert ran[3] == ran[2]
    return folder, *result


def test_another_method_is_found_to_differ(sgd):
    folder, code, certificate, rows = sgd
    verdict = certificate['verdict']
    assert code == 1
    assert not verdict['identical']
    assert len(rows) == 3
    assert verdict['distinct'] == {'net': 3, 'weights and predictions': 3}
    assert verdict['weight_difference'] > 0
    assert verdict['disagreement'] > 10
    kept = [np.load(folder / 'outcomes' / f'{row["outcome"][:32]}.npz') for row in rows]
    pairs = list(itertools.combinations(kept, 2))
    far = max(np.abs(a['weights'].astype(float) - b['weights']).max() for a, b in pairs)
    differ = np.mean([(a['predictions'] != b['predictions']).mean() for a, b in pairs])
    assert verdict['weight_difference'] == far
    assert verdict['disagreement'] == pytest.approx(100 * differ)


def test_what_a_method_learned_beside_its_network_differs_too(call, tmp_path):
    words = '--model ens --lr 0.05 --n_classifiers 8 --top_k 2 --specs= --schedules 2'
    _, certificate, _ = call(tmp_path, words)
    assert certificate['verdict']['distinct']['net'] == 4
    assert certificate['verdict']['weight_difference'] > 0


def test_runs_of_a_file_that_has_changed_are_made_again(call, parse, tmp_path):
    train(*initialize(parse('sgd', '--n_epochs 0 --savecheck last', checkpoint_path=tmp_path)))
    file = next(tmp_path.glob('*.pt'))
    words = '--model sgd --n_epochs 0 --schedules 0 --specs= --loadcheck', file
    certificates = []
    for runs in (2, 2, 4):
        certificates.append(call(tmp_path, *words)[1])
        assert runs_in(tmp_path) == runs
        if len(certificates) == 2:
            content = torch.load(file, weights_only=True)
            content['model']['net.classifier.bias'] += 1
            torch.save(content, file)
    assert len({certificate['id'] for certificate in certificates}) == 2


def test_a_row_of_another_method_is_its_run(sgd, parse):
    row = sgd[3][1]
    model, dataset, args = initialize(
        parse(
            'sgd', '--lr 0.05 --n_epochs 1 --batch_size 64 --num_threads 1 --schedule', row['spec']
        )
    )
    measured = train(model, dataset, args)
    assert row['final_accuracy'] == pytest.approx(measured['final_accuracy'], abs=1e-3)
    weights = np.load(sgd[0] / 'outcomes' / f'{row["outcome"][:32]}.npz')['weights']
    learned = [
        value.numpy().ravel()
        for _, value in sorted(model.net.state_dict().items())
        if value.is_floating_point()
    ]
    assert np.array_equal(weights, np.concatenate(learned))
    assert row['schedule_digest'] == measured['schedule_digest']
    average = measured['average_incremental_accuracy']
    assert row['average_incremental_accuracy'] == pytest.approx(average, abs=1e-3)
