"""Masked statistics: to the server noise, together the merge."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scroll import Statistics, mask_statistics, sum_masked
from scroll.ground.grid import quantise
from scroll.sums.lift import Lift
from tests.scroll.conftest import quick, refused

CLASSES = [0, 1, 2, 7]
NAMES = ['bank', 'clinic', 'mint', 'port']


def secret(*pair) -> bytes:
    return ' '.join(sorted(pair)).encode() * 2


def statistics_of(count: int, seed: int, **kind) -> Statistics:
    r = np.random.default_rng(seed)
    return Statistics(5, **kind).add(
        quantise(r.normal(size=(count, 5))), r.choice(CLASSES, size=count)
    )


def masked(own: dict, round: str = 'one') -> list:
    return [
        mask_statistics(
            s, name, {other: secret(name, other) for other in own if other != name}, CLASSES, round
        )
        for name, s in own.items()
    ]


@pytest.mark.parametrize('kind', [{}, {'by_class': True}, {'lift': Lift('relu', 5, 9)}])
@quick
@given(counts=st.lists(st.integers(0, 20), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_the_sum_is_the_merge_to_the_bit(kind, counts, seed):
    own = {
        name: statistics_of(count, seed + i, **kind)
        for i, (name, count) in enumerate(zip(NAMES, counts))
    }
    expected = Statistics(5, **kind)
    for s in own.values():
        expected.merge(s)
    parts = masked(own)
    empty = Statistics(5, **kind)
    assert sum_masked(parts, CLASSES, empty).digest() == expected.digest()
    assert sum_masked(parts[::-1], CLASSES[::-1], empty) == expected


def test_a_part_is_noise_and_another_in_every_round():
    """Each bit of a part is set half of the time, whatever is counted."""
    own = {name: statistics_of(20, i) for i, name in enumerate(NAMES)}
    parts = np.array([masked(own, str(i)) for i in range(400)])  # rounds, parties, numbers
    bits = np.unpackbits(parts.view(np.uint8), axis=-1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.15  # six deviations
    assert len(np.unique(parts)) == parts.size


def test_a_party_that_drops_out_is_noticed_and_the_others_begin_another_round():
    own = {name: statistics_of(9, i) for i, name in enumerate(NAMES)}
    parts = masked(own)
    with refused('missing'):
        sum_masked(parts[:-1], CLASSES, Statistics(5))
    with refused('missing'):
        sum_masked([*parts[:-1], masked(own, 'two')[-1]], CLASSES, Statistics(5))
    del own[NAMES[-1]]
    left = sum_masked(masked(own, 'one, without port'), CLASSES, Statistics(5))
    assert left.total == 27


def test_others_classes_shapes_and_lifts_are_refused():
    own = {name: statistics_of(9, i) for i, name in enumerate(NAMES[:2])}
    with refused('classes'):
        mask_statistics(own['bank'], 'bank', {'clinic': secret('bank', 'clinic')}, [0, 1], 'one')
    parts = masked(own)
    with refused('numbers'):
        sum_masked(parts, [*CLASSES, 9], Statistics(5))
    with refused('missing'):  # as many classes: their samples would get other labels
        sum_masked(parts, [0, 1, 2, 9], Statistics(5))
    lifted = {name: statistics_of(9, i, lift=Lift('relu', 5, 9)) for i, name in enumerate(own)}
    with refused('lift'):
        sum_masked(masked(lifted), CLASSES, Statistics(5, Lift('relu', 5, 9, seed=1)))
    assert sum_masked(parts, CLASSES, Statistics(5)).total == 18


@pytest.mark.parametrize(
    'secrets', [{}, {'clinic': b'fifteen bytes..'}, {'bank': bytes(16), 'clinic': bytes(16)}]
)
def test_a_part_without_secrets_or_with_short_ones_is_not_made(secrets):
    with refused('16 random bytes'):
        mask_statistics(statistics_of(9, 0), 'bank', secrets, CLASSES, 'one')
