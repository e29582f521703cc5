"""Judge what the paper's text says of a table by our rows: supported, contradicted, undecided, not
run yet.

A claim names cells in pairs. `rows` and `columns` take names, headings, or lists of them; where
only the claim itself has them, the cells of a pair share them. Rows named on both sides are
combined, each with each; columns in order. One side may be of another `experiment`.

    higher, lower       the first of each pair has the higher accuracy
    near, to, within    they differ by no more than `within` points
    same, as            seed by seed they are equal: the accuracy, and the digest wherever it can be compared,
                        at least once

    - says: SCROLL (Ridge) is above every online baseline
      higher: {rows: SCROLL (Ridge)}
      lower: {rows: Online}

The first two kinds pair the seeds that both cells have. A pair supports `higher` if a one-sided
t-test of the differences has p < 0.05, and contradicts it if the opposite test has p < 0.05 /
pairs; it supports `near` if two one-sided tests have, and contradicts it if the difference is
beyond the margin likewise. A claim needs all of its pairs, which needs no correction, and is
contradicted by one, which needs Bonferroni's. `of: most` needs more than half of them, each with p
< 0.05 / (half of the pairs), as otherwise one false pair on top of a true half would do (Benjamini
and Heller 2008); half of them contradict it. Wilcoxon's signed-rank test is reported as well; of
five seeds its p is 0.031 at best.
"""

import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np
from scipy import stats

from bench.paper.experiments import lower, upper
from scroll.ground.errors import InputError

LEVEL = 0.05
SUPPORTED, CONTRADICTED, UNDECIDED, NOT_RUN = (
    'supported',
    'contradicted',
    'undecided',
    'not run yet',
)
VERDICTS = SUPPORTED, CONTRADICTED, UNDECIDED, NOT_RUN
KINDS = {'higher': 'lower', 'near': 'to', 'same': 'as'}
_OF_A_SIDE = {'rows', 'columns', 'experiment'}
_MACHINE = ('torch', 'device', 'num_threads')  # what else the last bits of f* depend on


@dataclass(frozen=True)
class Finding:
    """A claim, what our rows say of it, and why."""

    says: str
    verdict: str
    evidence: str


def pairs(claim: dict, here, get) -> list:
    """The pairs of ((experiment name, Cell), (experiment name, Cell)) that a claim is about. here:
    the experiment of the claim. get: name -> Experiment. InputError: the claim cannot be read, or
    names what is not there."""
    kind = next((kind for kind in KINDS if kind in claim), 'higher')
    expected = ['says', kind, KINDS[kind]] + ['within'] * (kind == 'near')
    sides = [claim.get(kind, {}), claim.get(KINDS[kind], {})]
    if (
        not set(expected) <= set(claim) <= {*expected, 'rows', 'columns', 'of'}
        or claim.get('of', 'most') != 'most'
        or {*sides[0], *sides[1]} - _OF_A_SIDE
    ):
        raise InputError(
            f'claim {claim!r}: expected {", ".join(expected)}, perhaps rows, columns, of: most; '
            f'of each side {", ".join(sorted(_OF_A_SIDE))}'
        )
    first, second = experiments = [
        get(s['experiment']) if 'experiment' in s else here for s in sides
    ]
    rows, columns = (_matched(claim, sides, experiments, what) for what in ('rows', 'columns'))
    return [
        ((first.name, first.cell(r1, c1)), (second.name, second.cell(r2, c2)))
        for r1, r2 in rows
        for c1, c2 in columns
    ]


def _matched(claim: dict, sides: list, experiments: list, what: str) -> list:
    """Pairs of row or column names."""
    own = [what in side for side in sides]
    if any(own) != all(own) or (any(own) and what in claim):
        raise InputError(
            f'claim {claim["says"]!r}: {what}: for both sides, or for the claim as a whole'
        )
    first, second = (
        _names(experiment, what, side.get(what, claim.get(what)))
        for experiment, side in zip(experiments, sides)
    )
    if any(own) and what == 'rows':
        return list(itertools.product(first, second))
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second):
        raise InputError(f'claim {claim["says"]!r}: {len(first)} {what} against {len(second)}')
    return list(zip(first, second))


def _names(experiment, what: str, wanted) -> list:
    """Rows or columns of these names or headings; all, if none is wanted."""
    have, found = getattr(experiment, what), []
    for name in have if wanted is None else [wanted] if isinstance(wanted, str) else wanted:
        headed = [
            entry
            for entry in have
            if name
            in ([experiment.groups.get(entry)] if what == 'rows' else [upper(entry), lower(entry)])
        ]
        found += [name] if name in have else headed
        if name not in have and not headed:
            raise InputError(
                f'claims: no row, column or heading {name!r}; expected some of: {"; ".join(have)}'
            )
    return found


def judge(claim: dict, here, get, runs) -> Finding:
    """What rows say of a claim. runs: (experiment name, Cell) -> its rows of results."""
    test, least = next(test for kind, test in _TESTS.items() if kind in claim)
    compared = [
        (first[1], second[1], _by_seed(first[1], second[1], runs(*first), runs(*second)))
        for first, second in pairs(claim, here, get)
    ]
    count, ready = len(compared), [pair for pair in compared if len(pair[2]) >= least]
    needed = count // 2 + 1 if 'of' in claim else count
    levels = LEVEL / (count - needed + 1), LEVEL / max(1, len(ready))
    results = [(*test(seeds, levels, claim.get('within')), a, b) for a, b, seeds in ready]
    begun = [seeds for *_, seeds in compared if seeds]
    verdicts = Counter(result[0] for result in results)
    verdict = UNDECIDED if begun else NOT_RUN
    evidence = f'{len(ready)} of {count} pairs have {("a seed", "two seeds")[least - 1]} in common'
    if results:
        if verdicts[CONTRADICTED] > count - needed:  # the others are too few
            verdict = CONTRADICTED
        elif verdicts[SUPPORTED] >= needed:
            verdict = SUPPORTED
        order = CONTRADICTED, UNDECIDED, SUPPORTED
        *_, words, first, second = min(
            results, key=lambda result: (order.index(result[0]), result[1])
        )
        row, column = (
            ' against '.join(dict.fromkeys(names))
            for names in ((first.row, second.row), (first.column, second.column))
        )
        evidence += f', {verdicts[SUPPORTED]} support it; least so {row} ({column}): {words}'
    if 'higher' in claim and len(ready) < len(begun):
        means = [np.mean([a - b for a, b, *_ in seeds]) for seeds in begun]
        evidence += (
            f'; the sign is right in {sum(mean > 0 for mean in means)} of {len(means)} pairs that '
            f'have a seed, the least difference is {min(means):+.2f}'
        )
    return Finding(claim['says'], verdict, evidence)


def _by_seed(first, second, rows, others) -> list:
    """(value, value, row, row) for each seed that has both."""
    found = {row['seed']: row for row in others if row.get(second.metric)}
    return [
        (float(row[first.metric]), float(other[second.metric]), row, other)
        for row in rows
        if row.get(first.metric) and (other := found.get(row['seed']))
    ]


def probability(differences, beyond: float = 0.0) -> float:
    """p of the one-sided t-test that a mean of two or more differences is above `beyond`; equal: 0
    or 1.
    """
    differences = np.asarray(differences, float) - beyond
    if np.ptp(differences) < 1e-9:
        return 0.0 if differences.mean() > 1e-9 else 1.0
    return float(stats.ttest_1samp(differences, 0.0, alternative='greater').pvalue)


def _higher(seeds: list, levels: tuple, _) -> tuple:
    """(verdict, what orders pairs from the least to the most convincing, words). levels: of p, for
    support and for contradiction."""
    differences = np.array([a - b for a, b, *_ in seeds])
    p = probability(differences)
    ranks = stats.wilcoxon(differences, alternative='greater').pvalue if differences.any() else 1
    words = f'{differences.mean():+.2f} over {len(seeds)} seeds, p = {p:.2g} (Wilcoxon {ranks:.2g})'
    return _decided(p, probability(-differences), levels), -p, words


def _near(seeds: list, levels: tuple, within: float) -> tuple:
    differences = np.array([a - b for a, b, *_ in seeds])
    p = max(probability(differences, -within), probability(-differences, -within))
    outside = min(probability(differences, within), probability(-differences, within))
    words = f'{differences.mean():+.2f} over {len(seeds)} seeds, within {within:g}: p = {p:.2g}'
    return _decided(p, outside, levels), -p, words


def _decided(p: float, opposite: float, levels: tuple) -> str:
    return SUPPORTED if p < levels[0] else CONTRADICTED if opposite < levels[1] else UNDECIDED


def _same(seeds: list, *_) -> tuple:
    alike = [pair for pair in seeds if _agree(*pair[2:], _MACHINE)]
    if not alike:
        return UNDECIDED, (0, 0, 0), 'no rows of one kind of machine'
    largest = max(abs(a - b) for a, b, *_ in alike)
    comparable = [
        (a, b)
        for *_, first, second in alike
        if all((a := _digest(first), b := _digest(second)))
        # commits may differ in what a digest covers
        and (a == b or _agree(first, second, ['git_commit']))
    ]
    equal = sum(a == b for a, b in comparable)
    verdict = (
        CONTRADICTED if largest or equal < len(comparable) else SUPPORTED if equal else UNDECIDED
    )
    words = (
        f'largest difference {largest:g} over {len(alike)} seed{"s" * (len(alike) > 1)}, '
        f'digests equal in {equal} of {len(comparable)}'
    )
    return verdict, (-largest, equal - len(comparable), equal), words


def _agree(first: dict, second: dict, names) -> bool:
    return all((first.get(name) or '') == (second.get(name) or '') for name in names)


def _digest(row: dict) -> str:
    """Of what was evaluated last: f*, or f_T where there is none."""
    return row.get('adapted_digest') or row.get('online_digest') or ''


# and the seeds that a pair needs
_TESTS = {'higher': (_higher, 2), 'near': (_near, 2), 'same': (_same, 1)}
