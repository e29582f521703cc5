"""The appendix's experiment: herding keeps the class mean better than chance does, a hash buffer knows no schedule."""
from functools import partial

import numpy as np
import pandas as pd
import pytest

from bench.paper import exemplar_means as script
from scroll.grid import GRID, quantise, sample_keys
from scroll.rankings import herding_order

N, B1, B2, SHUFFLES = 120, 15, 20, 12
FEATURES = quantise(np.maximum(np.random.default_rng(0).normal(0.3, 1, (N, 10)), 0))
KEYS = sample_keys(FEATURES)
U = FEATURES / GRID


@pytest.fixture(scope='module')
def table() -> pd.DataFrame:
    return pd.DataFrame(script.scenario(FEATURES, KEYS, B1, B2, SHUFFLES))


@pytest.fixture
def call(on_digits):
    """call(*words): (exit code, stdout, stderr) of the command."""
    return partial(on_digits, script)


def ends(table, strategy: str) -> pd.Series:
    return table[(table.strategy == strategy) & (table.seen == N)].iloc[0]


def test_herding_ends_nearer_to_the_mean_and_varies_less(table):
    herding, random = ends(table, 'herding'), ends(table, 'random')
    assert herding.most < random.least and herding.deviation < random.deviation / 2
    assert herding.least <= herding.distance <= herding.most


def test_random_choice_is_as_far_off_as_theory_says():
    """E |mean of b1 of N - mean|^2 = tr(Cov) / b1 (N - b1) / (N - 1)."""
    rows = pd.DataFrame(script.scenario(FEATURES, KEYS, B1, 60, 200))
    end = ends(rows, 'random')
    expected = U.var(axis=0).sum() / B1 * (N - B1) / (N - 1)
    assert end.distance ** 2 + end.deviation ** 2 == pytest.approx(expected, rel=0.1)


def test_only_the_hash_buffer_is_one_under_every_shuffle_and_only_at_the_end(table):
    hashed = ends(table, 'hash')
    assert hashed.different_buffers == 1 and hashed.deviation == pytest.approx(0, abs=1e-12)
    kept = np.argsort(KEYS)[:B1]
    assert hashed.distance == pytest.approx(np.linalg.norm(U[kept].mean(axis=0) - U.mean(axis=0)))
    assert table[(table.strategy == 'hash') & (table.seen < N)].different_buffers.min() > 1
    assert ends(table, 'herding').different_buffers == ends(table, 'random').different_buffers == SHUFFLES


def test_a_class_that_comes_whole_gets_the_herding_of_all_of_it():
    chosen = herding_order(FEATURES, FEATURES.sum(axis=0), N, B1)
    expected = np.linalg.norm(U[chosen].mean(axis=0) - U.mean(axis=0))
    assert script.whole_class(FEATURES, KEYS, B1) == pytest.approx(expected)
    assert script.whole_class(FEATURES, KEYS, N) == pytest.approx(0, abs=1e-12)


def test_classes_are_averaged_and_deviations_are_those_of_a_sample(table):
    """Two classes by hand, with divisors of one less than there are shuffles."""
    halves = [script.scenario(FEATURES[at], KEYS[at], B1, B2, 3) for at in (slice(0, 60), slice(60, 120))]
    both = pd.DataFrame(script.over_classes(halves))
    for strategy in script.STRATEGIES:
        distances = []
        for at in (slice(0, 60), slice(60, 120)):
            segments = [list(script.make_schedule(f'iid,batch={B2}', np.zeros(60, int), seed).segments()) for seed in range(3)]
            distances.append([script.follow(FEATURES[at], KEYS[at], segments[seed], B1, seed)[-1][1][strategy][0] for seed in range(3)])
        end = both[(both.strategy == strategy) & (both.seen == 60)].iloc[0]
        assert end.distance == pytest.approx(np.mean(distances))
        assert end.deviation == pytest.approx(np.sqrt(np.var(distances, axis=1, ddof=1).mean()))
        assert (end.least, end.most) == (np.min(distances), np.max(distances))
    assert both.seen.tolist() == [seen for seen in (20, 40, 60) for _ in script.STRATEGIES]
    assert script.over_classes([table.to_dict('records')]) == table.to_dict('records')


def test_while_all_fit_the_buffer_is_what_was_seen(table):
    """The first point: no strategy has had to choose."""
    segments = np.split(np.arange(N), range(B2, N, B2))
    points = script.follow(FEATURES, KEYS, segments, B2)
    distance = np.linalg.norm(U[:B2].mean(axis=0) - U.mean(axis=0))
    assert points[0][0] == B2
    assert [held[0] for held in points[0][1].values()] == pytest.approx([distance] * 3)
    assert table.seen.unique().tolist() == list(range(B2, N + 1, B2))


def test_a_long_class_is_looked_at_now_and_then_and_at_its_end():
    segments = np.split(np.arange(N), range(1, N))
    seen = [count for count, _ in script.follow(FEATURES, KEYS, segments, 5)]
    assert len(seen) == script.POINTS and seen[-1] == N and np.diff(seen).max() <= N // script.POINTS + 1


def test_the_command_writes_figure_and_numbers_and_says_the_same_again(call, tmp_path, monkeypatch):
    monkeypatch.setattr(script, 'SCENARIOS', ((20, 40), (50, 50)))
    first, again = (call('--class_id', 3, '--shuffles', 2, '--out', tmp_path / name / 'figure.png') for name in 'ab')
    assert first[0] == again[0] == 0 and first[1].splitlines()[:-2] == again[1].splitlines()[:-2]
    assert (tmp_path / 'a' / 'figure.png').read_bytes().startswith(b'\x89PNG')
    numbers = pd.read_csv(tmp_path / 'a' / 'figure.csv')
    assert numbers.equals(pd.read_csv(tmp_path / 'b' / 'figure.csv')) and tuple(numbers.columns) == script.COLUMNS
    last = numbers[numbers.seen == numbers.seen.max()]
    assert len(last) == 6 and (last[last.strategy == 'hash'].different_buffers == 1).all()
    for line, (b1, b2) in zip(first[1].splitlines()[2:], script.SCENARIOS):
        cells = [cell.strip() for cell in line.strip('|').split('|')]
        rows = last[(last.buffer_size == b1) & (last.batch_size == b2)]
        assert cells[:2] == [str(b1), str(b2)]
        assert cells[2:5] == [f'{r.distance:.4f} +- {r.deviation:.4f}' for r in rows.itertuples()]


@pytest.mark.parametrize('flags, words', [
    (['--class_id', '10'], ['--class_id 10', '0..9']), (['--class_id', '-1'], ['class_id', '-1']),
    (['--shuffles', '1'], ['shuffles', 'at least 2']), (['--out', 'figure.csv'], ['figure.csv', '.png']),
    (['--out', '/dev/null/figure.png'], ['/dev/null/figure.png', 'cannot be written']),
    (['--dataset_size', '3'], ['--dataset_size'])], ids=' '.join)
def test_bad_flags_end_in_one_line_and_exit_code_2(call, flags, words):
    code, _, err = call(*flags)
    assert code == 2 and not [word for word in words if word not in err], err
    assert 'Traceback' not in err


def test_a_class_with_too_few_samples_is_refused(call, monkeypatch):
    monkeypatch.setattr(script, 'SCENARIOS', ((500, 20),))
    code, _, err = call()
    assert code == 2 and 'at least 501' in err and len(err.splitlines()) == 1
