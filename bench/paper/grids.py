"""Grids of `scripts/tune.py` (`spaces.yaml`): the order of trials, values beyond an edge.

Nothing here imports torch.
"""

import itertools
from collections import Counter
from pathlib import Path

import yaml

from scroll.ground.errors import InputError
from scroll.ground.randomness import numpy_stream
from scroll.heads.registry import HEADS

SPACES = yaml.safe_load((Path(__file__).parent / 'spaces.yaml').read_text())
_ONLINE = SPACES['er-ace']


def space_of(model: str, one_pass: bool = False, fixed: dict | None = None) -> dict:
    """The space of a method.

    one_pass: True for values as online methods have them. fixed: flags of main.py, as text, which
    are not tuned; with a head without lambda, SCROLL's is not tried either."""
    fixed = fixed or {}
    online = one_pass and 'lr' in SPACES[model] and model != 'joint'
    space = (_ONLINE if online else {}) | SPACES[model]
    if HEADS.get(fixed.get('predictor'), HEADS['ridge']).sums_for_lambda is None:
        space.pop('ridge_lambda', None)
    for name in space.keys() & fixed.keys():
        usual = _of_norm(space[name], 'train')[0]
        try:
            space[name] = [type(usual)(fixed[name])]
        except ValueError:
            raise InputError(f'--{name} {fixed[name]}: expected a value like {usual}') from None
    return space


def plan(model: str, count: int, space: dict) -> list:
    """Flags of trials in the order in which they are drawn: the first values of all; then random
    points of the space, those whose values were drawn least often with this batch norm first."""

    def values_of(point):
        return [(item, point.get('bn')) for item in point.items()]

    first, *others = _points(space)
    others = [others[i] for i in numpy_stream(0, f'tuning {model}').permutation(len(others))]
    chosen = [first]
    drawn = Counter(values_of(first))
    for _ in range(min(count - 1, len(others))):
        least = min(others, key=lambda point: sum(drawn[value] for value in values_of(point)))
        others.remove(least)
        chosen.append(least)
        drawn.update(values_of(least))
    return chosen


def beyond(space: dict, point: dict, tried: list) -> dict:
    """Flag -> the next value, of flags whose value in `point` is the least or largest of at least
    three that are in the space or were tried: as far from it as the second is from the third, in
    proportion. tried: trials; those with another batch norm do not count."""
    further = {}
    for name, value in point.items():
        values = _of_norm(space[name], point.get('bn'))
        alike = [t.values[name] for t in tried if t.values.get('bn') == point.get('bn')]
        grid = sorted({*values, *alike})
        if len(values) < 3 or isinstance(value, str) or grid[0] <= 0:
            continue
        for outer, second, third in (grid[:3], grid[:-4:-1]):
            if value == outer:
                further[name] = type(value)(float(f'{outer * second / third:.3g}'))
    return further


def _points(space: dict) -> list:
    """All points of a space, in the order of its values."""
    points = []
    for norm in space.get('bn', ('',)):
        grid = {name: _of_norm(values, norm) for name, values in space.items()}
        if norm:
            grid['bn'] = [norm]
        points += [dict(zip(grid, values)) for values in itertools.product(*grid.values())]
    return points


def _of_norm(values, norm: str) -> list:
    """The values of a flag for a batch norm; main.py refuses one that there is not."""
    return values.get(norm, values['train']) if isinstance(values, dict) else values
