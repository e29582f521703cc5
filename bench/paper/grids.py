"""Grids of `scripts/tune.py`: values of each method, the order of trials, values beyond an edge.

A space is flag -> values, the first of them the paper's, Mammoth's or the authors'; or flag ->
{batch norm: values}, for flags whose values depend on `--bn`. With frozen batch norms rates are a
tenth: above .01 most trials end in one class. Nothing here imports torch.
"""

import itertools
from collections import Counter

from scroll.ground.errors import InputError
from scroll.ground.randomness import numpy_stream
from scroll.heads.registry import HEADS

_NORMS = ('train', 'frozen')
_FROZEN = 0.003, 0.0003, 0.001, 0.01  # rates
_STEPS = {
    'bn': _NORMS,
    'lr': {'train': (0.01, 0.003, 0.03, 0.1), 'frozen': _FROZEN},
    'batch_size': (32, 10),
}
_ONLINE = _STEPS | {'batch_iterations': (1, 2)}
_ALPHA = (0.5, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
SPACES = {
    **dict.fromkeys(('er', 'bic', 'joint', 'agem'), _STEPS),
    **dict.fromkeys(('er-ace', 'ssil'), _ONLINE),
    'der': _STEPS | {'alpha': _ALPHA},
    'derpp': _STEPS | {'alpha': _ALPHA, 'beta': (0.5, 1.0)},
    'gem': _STEPS | {'gamma': (0.5, 0.0, 1.0)},
    'icarl': _STEPS | {'opt_wd': (1e-5, 0.0)},
    'lwf': _STEPS | {'alpha': (1.0, 3.0), 'optim_wd': (0.0, 5e-4)},
    'ewc-on': _STEPS | {'e_lambda': (10.0, 1.0, 100.0)},
    'er-aml': _ONLINE | {'supcon_temperature': (0.2, 0.1)},
    'mir': _ONLINE | {'subsample': (50, 100)},
    'ens': {
        'lr': (1e-4, 1e-5, 3e-5, 3e-4, 1e-3, 3e-3),
        'batch_size': (60, 10),
        'batch_iterations': (1, 2),
        'top_k': (32, 8, 128),
        'keys': ('normal', 'data'),
    },
    # as in the paper: SGD without momentum or decay, and a rate that falls to 5e-4
    'gdumb': {
        'bn': _NORMS,
        'maxlr': {'train': (0.03, 0.003, 0.01, 0.1), 'frozen': _FROZEN},
        'minlr': {'train': (5e-4,), 'frozen': (5e-5,)},
        'fitting_epochs': (20, 10, 50),
        'fitting_batch_size': (32, 10),
        'cutmix_alpha': (0.0, 1.0),
        'optim_mom': (0.0,),
        'optim_wd': (0.0,),
    },
    # only what changes f*: with `--adapt_select folds` a trial may measure f_T
    'scroll': {
        'ridge_lambda': (0.001, 0.01, 0.1, 1.0),
        'adapt_lr': (0.002, 0.01, 0.02, 0.1),
        'classifier_lr': (0.5, 0.1, 0.01, 0.001),
        'calibrate_scale': (0, 1),
        'minibatch_size': (50, 100),
        'iterations': (300, 100),
        'adapt_select': ('none',),
    },
}


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
            space[name] = (type(usual)(fixed[name]),)
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
    chosen, drawn = [first], Counter(values_of(first))
    for _ in range(min(count - 1, len(others))):
        least = min(others, key=lambda point: sum(drawn[value] for value in values_of(point)))
        others.remove(least)
        chosen.append(least)
        drawn.update(values_of(least))
    return chosen


def beyond(space: dict, point: dict, tried: list) -> dict:
    """Flag -> the next value, of flags whose value in `point` is the least or largest of at least
    three that are in the space or were tried: as far from it as the second is from the third, in
    proportion. tried: points; those with another batch norm do not count."""
    further = {}
    for name, value in point.items():
        values = _of_norm(space[name], point.get('bn'))
        alike = [other[name] for other in tried if other.get('bn') == point.get('bn')]
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
            grid['bn'] = (norm,)
        points += [dict(zip(grid, values)) for values in itertools.product(*grid.values())]
    return points


def _of_norm(values, norm: str) -> tuple:
    """The values of a flag for a batch norm; main.py refuses one that there is not."""
    return values.get(norm, values['train']) if isinstance(values, dict) else values
