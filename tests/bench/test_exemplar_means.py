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


def of(found: pd.DataFrame, strategy: str) -> pd.DataFrame:
    return found[found.strategy == strategy]


def test_herding_ends_nearer_and_only_the_hash_buffer_is_one_under_every_shuffle_at_the_end():
    found = script.table([(FEATURES, KEYS)], SHUFFLES, [(B1, B2)])
    herding, random, hashed = (of(found, name).iloc[-1] for name in ('herding', 'random', 'hash'))
    assert {herding.seen, random.seen, hashed.seen} == {N}
    assert herding.distance < random.distance / 2 and herding.deviation < random.deviation / 2
    assert hashed.different_buffers == 1 and hashed.deviation == pytest.approx(0, abs=1e-12)
    assert herding.different_buffers == random.different_buffers == SHUFFLES
    assert of(found, 'hash').different_buffers[:-1].min() > 1
    kept = np.argsort(KEYS)[:B1]
    assert hashed.distance == pytest.approx(np.linalg.norm(U[kept].mean(axis=0) - U.mean(axis=0)))


def test_classes_are_averaged_and_deviations_are_those_of_a_sample():
    """Two classes by hand, with divisors of one less than there are shuffles."""
    parts = [(FEATURES[at], KEYS[at]) for at in (slice(0, 60), slice(60, 120))]
    both = script.table(parts, 3, [(B1, B2)])
    for strategy in script.STRATEGIES:
        distances = [[row[5] for row in script.follow(*part, B1, B2, seed) if row[2] == strategy][-1] for part in parts for seed in range(3)]
        distances = np.reshape(distances, (2, 3))
        end = of(both, strategy).iloc[-1]
        assert end.distance == pytest.approx(distances.mean())
        assert end.deviation == pytest.approx(np.sqrt(np.var(distances, axis=1, ddof=1).mean()))
        assert of(both, strategy).seen.tolist() == [20, 40, 60]


def test_the_command_writes_figure_and_numbers(on_digits, tmp_path):
    code, out, _ = on_digits(script, '--shuffles', 2, '--out', tmp_path / 'figure.png')
    assert code == 0 and (tmp_path / 'figure.png').read_bytes().startswith(b'\x89PNG') and 'figure.csv' in out
    assert set(pd.read_csv(tmp_path / 'figure.csv').columns) >= {'strategy', 'seen', 'distance', 'deviation'}
    for flags, said in ((['--shuffles', '1'], 'at least 2'), (['--out', '/dev/null/figure.png'], '/dev/null')):
        code, _, err = on_digits(script, *flags)
        assert code == 2 and len(err.splitlines()) == 1 and said in err
