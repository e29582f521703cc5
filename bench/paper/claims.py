"""Judge what the paper's text says of a table by our rows: supported, contradicted, undecided, not
run yet.

A claim names cells in pairs. `rows` and `columns` take names, headings, or lists of them; where
only the claim itself has them, the cells of a pair share them. Rows named on both sides are
combined, each with each; columns in order. One side may be of another `experiment`.

    higher, lower       the first of each pair has the higher accuracy
    near, to, within    they differ by no more than `within` points
    same, as            seed by seed they are equal: the accuracy, and the digest wherever it can
                        be compared, at least once

    - says: SCROLL (Ridge) is above every online baseline
      higher: {rows: SCROLL (Ridge)}
      lower: {rows: Online}

The first two kinds pair the seeds that both cells have. A pair supports `higher` if a one-sided
t-test of the differences has p < 0.05, and contradicts it if the opposite test has p < 0.05 /
pairs; it supports `near` if two one-sided tests have, and contradicts it if the difference is
beyond the margin likewise. Other test samples would give other differences, of which seeds say
nothing. So p is the larger one of two tests: of the seeds alone, and with the error of two
accuracies on independent samples, an upper bound where both learners err on the same ones (degrees
of freedom: Satterthwaite 1946). A claim needs all of its pairs, which needs no correction, and is
contradicted by one, which needs Bonferroni's.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy import stats

from scroll.ground.arguments import number
from scroll.ground.errors import InputError, prefixed

LEVEL = 0.05
SUPPORTED = 'supported'
CONTRADICTED = 'contradicted'
UNDECIDED = 'undecided'
NOT_RUN = 'not run yet'
VERDICTS = SUPPORTED, CONTRADICTED, UNDECIDED, NOT_RUN
KINDS = {'higher': ['lower'], 'near': ['to', 'within'], 'same': ['as']}
_OF_A_SIDE = {'rows', 'columns', 'experiment'}
# of rows that do not say
TEST_SAMPLES = {
    'seq-cifar10': 10_000,
    'seq-cifar100': 10_000,
    'seq-miniimg': 2_000,
    'seq-digits': 355,
}
_MACHINE = ('torch', 'device', 'num_threads', 'adapted_on')  # last bits of f* depend on it


class Finding(NamedTuple):
    """A claim, what our rows say of it, and why."""

    says: str
    verdict: str
    evidence: str


def pairs(claim: dict, here, get) -> list:
    """The pairs of ((experiment name, Cell), (experiment name, Cell)) that a claim is about.

    here: the experiment of the claim. get: name -> Experiment.

    InputError: the claim cannot be read, or names what is not there."""
    kind = next((kind for kind in KINDS if kind in claim), 'higher')
    required = {'says', kind, *KINDS[kind]}
    sides = [claim.get(kind) or {}, claim.get(KINDS[kind][0]) or {}]
    if not required <= set(claim) <= {*required, 'rows', 'columns'} or not _OF_A_SIDE.issuperset(
        [*sides[0], *sides[1]]
    ):
        raise InputError(
            f'claim {claim!r}: expected {", ".join(sorted(required))}, perhaps rows, columns; '
            f'of each side {", ".join(sorted(_OF_A_SIDE))}'
        )
    with prefixed(f'claim {claim["says"]!r}'):
        number('within', claim.get('within', 0))
    first, second = [
        get(str(side['experiment'])) if 'experiment' in side else here for side in sides
    ]
    rows = _matched(claim, sides, (first, second), 'rows')
    columns = _matched(claim, sides, (first, second), 'columns')
    return [
        ((first.name, first.cells[r1, c1]), (second.name, second.cells[r2, c2]))
        for r1, r2 in rows
        for c1, c2 in columns
    ]


def _matched(claim: dict, sides: list, experiments: tuple, axis: str) -> list:
    """Pairs of row or column names."""
    sides_with = sum(axis in side for side in sides)
    if sides_with == 1 or (sides_with and axis in claim):
        raise InputError(
            f'claim {claim["says"]!r}: {axis}: for both sides, or for the claim as a whole'
        )
    first, second = (
        _names(experiment, axis, side.get(axis, claim.get(axis)))
        for experiment, side in zip(experiments, sides)
    )
    if sides_with and axis == 'rows':
        return list(itertools.product(first, second))
    if len(first) != len(second):
        raise InputError(f'claim {claim["says"]!r}: {len(first)} {axis} against {len(second)}')
    return list(zip(first, second))


def _names(experiment, axis: str, wanted) -> list:
    """Rows or columns of these names or headings; all, if none is wanted."""
    every = getattr(experiment, axis)
    if wanted is None:
        return every

    names = []
    for name in wanted if isinstance(wanted, list) else [wanted]:
        if name in every:
            below = [name]
        elif axis == 'rows':
            below = [row for row in every if experiment.groups[row] == name]
        else:
            below = [column for column in every if name in column.split(', ', 1)]
        if not below:
            raise InputError(
                f'claims: no row, column or heading {name!r}; expected some of: {"; ".join(every)}'
            )
        names += below
    return names


def judge(claim: dict, here, get, runs) -> Finding:
    """Verdict of the rows on a claim. runs: (experiment name, Cell) -> its rows of results."""
    compared = []
    for (name, first), (other, second) in pairs(claim, here, get):
        seeds = _by_seed(first, second, runs(name, first), runs(other, second))
        compared.append((first, second, seeds))
    test, least = next(test for kind, test in _TESTS.items() if kind in claim)
    begun = [seeds for *_, seeds in compared if seeds]
    ready = [pair for pair in compared if len(pair[2]) >= least]
    count = len(compared)
    results = [(*test(seeds, len(ready), claim.get('within')), a, b) for a, b, seeds in ready]
    verdict = UNDECIDED if begun else NOT_RUN
    evidence = f'{len(ready)} of {count} pairs have enough seeds in common'
    if results:
        verdicts = [result[0] for result in results]
        if CONTRADICTED in verdicts:
            verdict = CONTRADICTED
        elif verdicts.count(SUPPORTED) == count:
            verdict = SUPPORTED
        order = CONTRADICTED, UNDECIDED, SUPPORTED
        weakest = min(results, key=lambda result: (order.index(result[0]), result[1]))
        *_, words, first, second = weakest
        row = ' against '.join(dict.fromkeys([first.row, second.row]))
        column = ' against '.join(dict.fromkeys([first.column, second.column]))
        support = verdicts.count(SUPPORTED)
        evidence += f', {support} support it; least so {row} ({column}): {words}'
    if 'higher' in claim and len(ready) < len(begun):
        means = list(map(_mean, begun))
        evidence += (
            f'; the sign is right in {sum(mean > 0 for mean in means)} of {len(means)} pairs that '
            f'have a seed, the least difference is {min(means):+.2f}'
        )
    return Finding(claim['says'], verdict, evidence)


def _by_seed(first, second, rows, others) -> list:
    """(difference of the values, row, row, variance of the difference by test samples) for each
    seed that has both."""
    by_seed = {row['seed']: row for row in others if row.get(second.metric)}
    usual = TEST_SAMPLES.get(first.flags['dataset'], 1)
    seeds = []
    for row in rows:
        other = by_seed.get(row['seed'])
        if other and row.get(first.metric):
            a, b = float(row[first.metric]), float(other[second.metric])
            samples = float(row.get('test_samples') or usual)
            seeds.append((a - b, row, other, (a * (100 - a) + b * (100 - b)) / samples))
    return seeds


def probability(seeds: list, sign: int = 1, beyond: float = 0.0) -> float:
    """p of the one-sided t-test that the mean of sign times two or more differences is above
    `beyond`. seeds: of `_by_seed`."""
    differences, _, _, of_samples = zip(*seeds)
    of_seeds = np.var(differences, ddof=1) / len(seeds) + 1e-18  # where all are equal
    variances = np.array([of_seeds, of_seeds + np.mean(of_samples)])
    freedom = (len(seeds) - 1) * (variances / of_seeds) ** 2
    excess = sign * np.mean(differences) - beyond
    return float(stats.t.sf(excess / variances**0.5, freedom).max())


def _mean(seeds: list) -> float:
    return np.mean([seed[0] for seed in seeds])


# A test of a pair of cells returns (verdict, strength, words); `strength` orders the pairs from the
# least to the most convincing. pairs: how many are tested.


def _higher(seeds: list, pairs: int, _) -> tuple:
    p = probability(seeds)
    alone = probability([(*seed[:3], 0) for seed in seeds])
    words = (
        f'{_mean(seeds):+.2f} over {len(seeds)} seeds, p = {p:.2g} ({alone:.2g} without the test '
        "samples' error)"
    )
    return _decided(p, probability(seeds, -1), pairs), -p, words


def _near(seeds: list, pairs: int, within: float) -> tuple:
    p = max(probability(seeds, sign, -within) for sign in (1, -1))
    outside = min(probability(seeds, sign, within) for sign in (1, -1))
    words = f'{_mean(seeds):+.2f} over {len(seeds)} seeds, within {within:g}: p = {p:.2g}'
    return _decided(p, outside, pairs), -p, words


def _decided(p: float, opposite: float, pairs: int) -> str:
    return SUPPORTED if p < LEVEL else CONTRADICTED if opposite < LEVEL / pairs else UNDECIDED


def _same(every: list, *_) -> tuple:
    seeds = [seed for seed in every if _agree(*seed[1:3], _MACHINE)]
    if not seeds:
        return UNDECIDED, (0, 0, 0), 'no rows of one kind of machine'
    largest = max(abs(difference) for difference, *_ in seeds)
    equal = different = 0
    for _, first, second, _ in seeds:
        digests = {  # of what was evaluated last: f*, or f_T where there is none
            row.get('adapted_digest') or row.get('online_digest') or '' for row in (first, second)
        }
        if '' in digests:
            continue
        if len(digests) == 1:
            equal += 1
        elif _agree(first, second, ['git_commit']):  # commits may differ in what a digest covers
            different += 1
    verdict = SUPPORTED if equal else UNDECIDED
    if largest or different:
        verdict = CONTRADICTED
    words = (
        f'largest difference {largest:g}, digests equal in {equal} of {equal + different}; seeds '
        f'left out, since their two machines differ: {len(every) - len(seeds)}'
    )
    return verdict, (-largest, -different, equal), words


def _agree(first: dict, second: dict, names) -> bool:
    return all((first.get(name) or '') == (second.get(name) or '') for name in names)


# and the seeds that a pair needs
_TESTS = {'higher': (_higher, 2), 'near': (_near, 2), 'same': (_same, 1)}
