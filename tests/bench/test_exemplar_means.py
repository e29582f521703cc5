"""The appendix's experiment: herding keeps the class mean better than chance does, a hash buffer knows no schedule."""
import numpy as np
import pandas as pd
import pytest

from bench.paper import exemplar_means as script
from scroll.grid import GRID, quantise, sample_keys

N, B1, B2, SHUFFLES = 120, 15, 20, 12
FEATURES = quantise(np.maximum(np.random.default_rng(0).normal(0.3, 1, (N, 10)), 0))
KEYS = sample_keys(FEATURES)
U = FEATURES / GRID


@pytest.fixture(scope='module')
def table() -> pd.DataFrame:
    return script.scenario(FEATURES, KEYS, B1, B2, SHUFFLES)


def ends(table, strategy: str) -> pd.Series:
    return table[(table.strategy == strategy) & (table.seen == N)].iloc[0]


def test_herding_ends_nearer_to_the_mean_and_varies_less(table):
    herding, random = ends(table, 'herding'), ends(table, 'random')
    assert herding.most < random.least and herding.deviation < random.deviation / 2
    assert herding.least <= herding.distance <= herding.most


def test_random_choice_is_as_far_off_as_theory_says():
    """E |mean of b1 of N - mean|^2 = tr(Cov) / b1 (N - b1) / (N - 1)."""
    end = ends(script.scenario(FEATURES, KEYS, B1, 60, 200), 'random')
    expected = U.var(axis=0).sum() / B1 * (N - B1) / (N - 1)
    assert end.distance ** 2 + end.deviation ** 2 == pytest.approx(expected, rel=0.1)


def test_only_the_hash_buffer_is_one_under_every_shuffle_and_only_at_the_end(table):
    hashed = ends(table, 'hash')
    assert hashed.different_buffers == 1 and hashed.deviation == pytest.approx(0, abs=1e-12)
    kept = np.argsort(KEYS)[:B1]
    assert hashed.distance == pytest.approx(np.linalg.norm(U[kept].mean(axis=0) - U.mean(axis=0)))
    assert table[(table.strategy == 'hash') & (table.seen < N)].different_buffers.min() > 1
    assert ends(table, 'herding').different_buffers == ends(table, 'random').different_buffers == SHUFFLES


def test_classes_are_averaged_and_deviations_are_those_of_a_sample():
    """Two classes by hand, with divisors of one less than there are shuffles."""
    parts = slice(0, 60), slice(60, 120)
    both = script.over_classes([script.scenario(FEATURES[at], KEYS[at], B1, B2, 3) for at in parts])
    for strategy in script.STRATEGIES:
        distances = []
        for at in parts:
            cuts = [list(script.make_schedule(f'iid,batch={B2}', np.zeros(60, int), seed).segments()) for seed in range(3)]
            distances.append([next(row[2] for row in script.follow(FEATURES[at], KEYS[at], cuts[seed], B1, seed)[::-1] if row[0] == strategy)
                              for seed in range(3)])
        end = both[(both.strategy == strategy) & (both.seen == 60)].iloc[0]
        assert end.distance == pytest.approx(np.mean(distances))
        assert end.deviation == pytest.approx(np.sqrt(np.var(distances, axis=1, ddof=1).mean()))
        assert (end.least, end.most) == (np.min(distances), np.max(distances))
    assert both.seen.tolist() == [seen for seen in (20, 40, 60) for _ in script.STRATEGIES]


def test_a_long_class_is_looked_at_now_and_then_and_at_its_end():
    seen = [row[1] for row in script.follow(FEATURES, KEYS, np.split(np.arange(N), range(1, N)), 5) if row[0] == 'hash']
    assert len(seen) == script.POINTS and seen[-1] == N and np.diff(seen).max() <= N // script.POINTS + 1


def test_the_command_writes_figure_and_numbers(on_digits, tmp_path, monkeypatch):
    monkeypatch.setattr(script, 'SCENARIOS', ((20, 40), (50, 50)))
    code, out, _ = on_digits(script, '--shuffles', 2, '--out', tmp_path / 'figure.png')
    assert code == 0 and (tmp_path / 'figure.png').read_bytes().startswith(b'\x89PNG') and 'herding' in out
    numbers = pd.read_csv(tmp_path / 'figure.csv')
    last = numbers[numbers.seen == numbers.seen.max()]
    assert list(numbers) == script.COLUMNS and len(last) == 6 and (last[last.strategy == 'hash'].different_buffers == 1).all()


@pytest.mark.parametrize('flags, words', [
    (['--shuffles', '1'], ['shuffles', 'at least 2']), (['--out', 'figure.csv'], ['figure.csv', '.png']),
    (['--out', '/dev/null/figure.png'], ['/dev/null/figure.png'])], ids=' '.join)
def test_bad_flags_end_in_one_line_and_exit_code_2(on_digits, flags, words):
    code, _, err = on_digits(script, *flags)
    assert code == 2 and len(err.splitlines()) == 1 and not [word for word in words if word not in err], err
