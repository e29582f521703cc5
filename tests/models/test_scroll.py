"""SCROLL under the contract: the same predictor whatever the schedule, and
accuracies that others can recompute.

Digests are compared between whole runs on the digits, with a tiny backbone and three updates of
adaptation.
"""

import functools
import json
import re
import subprocess

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from bench.run.building import initialize
from bench.run.training import train
from scroll.ground.grid import GRID
from scroll.heads.predictors import exact_lambda
from tests.conftest import refused

DIGESTS = ('statistics_digest', 'online_digest', 'buffer_digest', 'adapted_digest')
SHORT = {'model_config': 'base', 'iterations': 3, 'minibatch_size': 20, 'buffer_size': 40}


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    return tmp_path_factory.mktemp('scroll')


@pytest.fixture(scope='module')
def ready(parse, base):
    """ready(*flags): model, data set and arguments of a run; features are shared through the
    cache.
    """
    return lambda *flags: initialize(parse('scroll', *flags, base_path=base, **SHORT))


@pytest.fixture(scope='module')
def row(ready):
    """row(*flags): results row of a run, once for each set of flags."""
    return functools.cache(lambda *flags: train(*ready(*flags)))


def test_features_of_a_run_that_stops_early_are_kept(parse, tmp_path):
    train(*initialize(parse('scroll', '--stop_after 1', base_path=tmp_path, **SHORT)))
    assert list(tmp_path.rglob('cache/*/*'))


def digests(row: dict, *names) -> dict:
    return {name: row[name] for name in names or DIGESTS}


@pytest.mark.parametrize(
    'flags',
    [
        '--schedule split:3,order=random',
        '--schedule iid',
        '--permute_classes 1 --n_splits 10 --batch_size 7',
    ],
)
def test_classes_that_arrive_whole_give_one_predictor_to_the_last_bit(row, flags):
    reference = row('--n_splits 5')
    assert all(len(digest) == 64 for digest in digests(reference).values())
    assert digests(row(flags)) == digests(reference)
    assert row(flags)['final_accuracy'] == reference['final_accuracy']


def test_classes_in_pieces_leave_f_t_the_same_and_with_a_hash_buffer_all_of_it(row):
    names = ('statistics_digest', 'online_digest', 'online_accuracy')
    pieces = row('--schedule split:5,batch=7')
    reference = row('--n_splits 5')
    assert digests(pieces, *names) == digests(reference, *names)
    assert pieces['buffered'] == 40
    hashed = row('--n_splits 5 --buffer_strategy hash')
    assert digests(row('--schedule split:5,batch=7 --buffer_strategy hash')) == digests(hashed)
    assert hashed['buffer_digest'] != reference['buffer_digest']


def test_digests_do_change_with_what_they_stand_for(row):
    """Else equal digests would mean nothing."""
    reference = row('--n_splits 5')
    seeded = row('--seed 1')
    shrunk = row('--ridge_lambda 3')
    # nothing there is random
    assert digests(seeded, *DIGESTS[:3]) == digests(reference, *DIGESTS[:3])
    assert seeded['adapted_digest'] != reference['adapted_digest']
    assert shrunk['statistics_digest'] == reference['statistics_digest']
    assert shrunk['online_digest'] != reference['online_digest']
    assert row('--embed_dtype bfloat16')['statistics_digest'] != reference['statistics_digest']


def expected_online(model, dataset) -> np.ndarray:
    """Predicted labels of the test images: scikit-learn's ridge on [u; 1], targets +-1."""

    def inputs(images):
        return np.hstack([model.embedder(images)[0] / GRID, np.ones((len(images), 1))])

    labels = dataset.images.train_labels
    targets = np.where(labels[:, None] == np.arange(10), 1.0, -1.0)
    ridge = Ridge(alpha=0.1, fit_intercept=False, solver='cholesky').fit(
        inputs(dataset.images.train), targets
    )
    return ridge.predict(inputs(dataset.images.test)).argmax(1)


def test_the_online_accuracy_is_that_of_scikit_learns_ridge_on_all_the_data(row, ready):
    model, dataset, _ = ready()
    accuracy = 100 * (expected_online(model, dataset) == dataset.images.test_labels).mean()
    assert accuracy > 40  # even a random backbone beats chance, 10
    assert row('--n_splits 5')['online_accuracy'] == pytest.approx(accuracy, abs=1e-3)
    unadapted = row('--adaptation none')
    assert unadapted['final_accuracy'] == unadapted['online_accuracy']
    assert unadapted['online_accuracy'] == pytest.approx(accuracy, abs=1e-3)
    for name in ('accuracy', 'digest', 'mode'):
        assert unadapted[f'adapted_{name}'] is None
    assert unadapted['buffered'] == 40


def test_columns_of_the_adapted_predictor(row):
    one = row('--n_splits 5')
    assert one['adapted_accuracy'] == one['final_accuracy']
    assert one['adapted_mode'] == 'adapters'
    assert one['buffered'] == 40
    of_both, online = (json.loads(one[f'{name}accuracy_matrix']) for name in ('', 'online_'))
    assert [len(part) for part in of_both] == [1, 2, 3, 4, 5]
    assert of_both[:4] == online[:4]
    assert of_both[4] != online[4]
    assert one['online_average_incremental_accuracy'] == pytest.approx(
        np.mean([np.mean(part) for part in online]), abs=1e-3
    )
    assert one['initial_scale'] > 0
    assert one['final_scale'] != one['initial_scale']
    assert row('--adaptation_threshold 39')['adapted_mode'] == 'full'
    for stage in ('embedding', 'statistics', 'adaptation', 'stream', 'evaluation', 'total'):
        assert one[f'seconds_{stage}'] >= 0
    assert one['schedule_digest'] != row('--n_splits 2')['schedule_digest']


def test_a_row_says_whether_files_of_code_differ_from_its_commit(row, tmp_path, monkeypatch):
    monkeypatch.setattr('bench.results.report.ROOT', tmp_path)
    made = 'git init; git -c user.name=me -c user.email=me commit --allow-empty -m first'
    subprocess.run(made, shell=True, cwd=tmp_path, check=True)
    assert len(row('--iterations 1')['git_commit']) == 40
    (tmp_path / 'new.yaml').touch()
    assert row('--iterations 2')['git_commit'][40:] == '+'


def test_adapting_every_task_shows_in_every_accuracy_and_starts_each_time_from_the_same_network(
    row,
):
    second = row('--adapt_every_task 2 --classifier_lr 1 --precision float32')
    once = row('--classifier_lr 1 --precision float32')
    assert second['adapted_digest'] == once['adapted_digest']
    same = [second[f'task{t}'] == once[f'task{t}'] for t in (1, 2, 3, 4, 5)]
    assert same[::2] == [True] * 3
    assert False in same


@pytest.mark.parametrize(
    'flags, cuts, learned',
    [
        ('', '', '1,442'),
        ('--schedule split:5,order=random,batch=7', '', '1,442'),
        ('--schedule gaussian-resample,batches=20,batch=10', '', '200'),
        ('--start_from 3', ' (2 of 5 tasks)', r'\d+'),
        ('--joint 1', ' (--joint 1)', '1,442'),
        ('--debug_mode 1 --shard 1/2 --batch_size 8', ' (--debug_mode 1, --shard 1/2)', r'1?\d\d'),
    ],
)
def test_the_summary_counts_the_samples_that_came(ready, capsys, flags, cuts, learned):
    row = train(*ready('--adaptation none', flags))
    out = ' '.join(capsys.readouterr().out.split())
    assert re.search(f'the same in any order of these {learned} samples, on ', out)
    mean = [value for name, value in row.items() if re.fullmatch(r'task\d+', name)][-1]
    assert f'l{cuts}: final accuracy {row["final_accuracy"]:.2f} % of all samples tested ' in out
    assert f'(mean over tasks {mean:.2f} %)' in out
    assert row['complete'] == (not cuts and 'resample' not in flags)
    assert re.search(r', stream [\d.]+ \(embedding [\d.]+, statistics [\d.]+, adap', out)


def pass_over(model, dataset, raw=True) -> None:
    """Learn the next task, given as bytes or as floats."""
    loader, _ = dataset.get_data_loaders()
    loader.raw = raw
    model.meta_begin_task(dataset)
    for batch in loader:
        assert model.meta_observe(*batch, epoch=0) == 0
    model.meta_end_task(dataset)


def test_images_as_mammoth_hands_them_out_give_the_same_statistics(ready):
    """Float (B, 3, H, W) in [0, 1] instead of the raw bytes."""
    learned = set()
    for raw in (True, False):
        model, dataset, _ = ready('--n_splits 2 --adaptation none')
        for _ in range(2):
            pass_over(model, dataset, raw)
        learned.add((model.learner.digest(), model.learner.buffer_.content().digest()))
    assert len(learned) == 1


@pytest.mark.parametrize('permute', [0, 1])
def test_logits_are_in_the_labels_of_the_stream_and_minus_infinity_for_unseen_classes(
    ready, permute
):
    model, dataset, _ = ready('--permute_classes', str(permute), '--n_splits 2 --adaptation none')
    pass_over(model, dataset)
    images = torch.from_numpy(dataset.images.test[:60].copy())
    logits = model(images)
    assert logits.shape == (60, 10)
    assert torch.isfinite(logits[:, :5]).all()
    assert (logits[:, 5:] == -torch.inf).all()
    seen = dataset.test_labels[:60] < 5
    assert (logits.argmax(1).numpy()[seen] == dataset.test_labels[:60][seen]).mean() > 0.5
    torch.testing.assert_close(
        model(dataset.preprocessing(images))[:, :5], logits[:, :5], atol=1e-3, rtol=0
    )


def test_the_statistics_choose_the_same_lambda_under_every_schedule(row):
    auto = row('--ridge_lambda auto')
    assert auto['ridge_lambda'] == 'auto'
    assert 2**-20 <= auto['ridge_lambda_used'] <= 2**20
    other = row('--ridge_lambda auto --schedule iid --permute_classes 1')
    assert digests(other) == digests(auto)
    assert other['ridge_lambda_used'] == auto['ridge_lambda_used']
    assert digests(row('--ridge_lambda', str(auto['ridge_lambda_used']))) == digests(auto)
    assert row('--n_splits 5')['ridge_lambda_used'] == exact_lambda(0.1)
    assert row('--predictor ncc')['ridge_lambda_used'] is None


def test_a_network_next_to_another_gives_one_predictor_under_every_schedule(row, tiny_weights):
    both = f'--adaptation none --mirror 1 --more_weights {tiny_weights}@8,{tiny_weights}'
    one = row(f'{both} --n_splits 5')
    other = row(f'{both} --schedule iid --batch_size 7')
    assert one['statistics_digest'] == other['statistics_digest']
    assert one['online_accuracy'] == other['online_accuracy']
    assert one['embedding_digest'] != row('--n_splits 5')['embedding_digest']


@pytest.mark.parametrize(
    'flags, says',
    [
        ('--more_weights tiny@8', '--adaptation none'),
        ('--adaptation none --more_weights tiny@x', '--more_weights'),
        ('--adaptation none --more_weights nothing', 'nothing'),
        ('--adaptation none --export out --more_weights tiny@8', '--export'),
    ],
)
def test_what_cannot_lie_next_to_a_network_is_refused(ready, tiny_weights, flags, says):
    with refused(says):
        ready(flags.replace('tiny', tiny_weights))
