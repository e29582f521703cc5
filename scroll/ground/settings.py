"""Every setting of a learner, once: default, what it may be, what it is for, which heads look at
it.

The checks of `Scroll` and `ScrollClassifier`, the flags of `main.py` and of `python -m scroll
learn`, and the settings in state files all derive from `SETTINGS`; a test holds the constructors to
it.

    >>> SETTINGS['pooling'].default, SETTINGS['pooling'].heads
    (0.5, ('qda',))
    >>> check_settings(dict(pooling=2))
    Traceback (most recent call last):
    scroll.ground.errors.InputError: pooling 2: expected a number from 0 to 1
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real

from scroll.ground.arguments import MAX_SEED, number, on_off, one_of, shown, whole
from scroll.ground.errors import InputError

# in the place of a value: chosen from what was learned
AUTO = 'auto'
OAS = 'oas'
# see heads/registry.py
HEAD_NAMES = ('ridge', 'ncc', 'lda', 'rp', 'rff', 'balanced', 'qda', 'random')
PUBLISHED = {  # names of papers: head, lift
    'slda': ('lda', None),
    'klda': ('lda', 'fourier'),
    'randumb': ('lda', 'fourier'),
    'ranpac': ('rp', 'relu'),
    'acil': ('ridge', 'relu'),
    'air': ('balanced', None),
    'fecam': ('qda', None),
}
TARGETS = ('pm1', 'onehot')
NCC_BIASES = ('exact', 'paper', 'zero')
LIFTS = ('relu', 'square', 'fourier')
MAX_LIFT_WIDTH = 1 << 15
STRATEGIES = ('herding', 'random', 'nearest', 'outlier', 'hash')
_RIDGES = ('ridge', 'rp', 'rff', 'balanced')


@dataclass(frozen=True)
class Setting:
    """A setting of a learner.

    Attributes:
        check: (name, value) -> InputError if the value is invalid. choices: of text; (): whatever
        `check`
            takes. heads: that look at it; (): it is not one of a head."""

    default: object
    help: str
    check: Callable
    choices: tuple = ()
    heads: tuple = ()


def _choice(default: str, choices: tuple, help: str, heads: tuple = ()) -> Setting:
    return Setting(default, help, lambda name, value: one_of(name, value, choices), choices, heads)


def _number(expected: str, takes: Callable, word: str | None = None) -> Callable:
    """A check for numbers that `takes` accepts, or this word."""

    def check(name: str, value) -> None:
        is_number = isinstance(value, Real) and not isinstance(value, bool) and takes(value)
        if not is_number and not (word and isinstance(value, str) and value == word):
            raise InputError(
                f'{name} {shown(value)}: expected a number {expected}'
                + (f", or '{word}'" if word else '')
            )

    return check


def _whole(least: int, most: int) -> Callable:
    return lambda name, value: whole(name, value, least, most)


def _adaptation(name: str, value) -> None:
    if value is not None and not hasattr(type(value), 'mode_for'):
        raise InputError(f'adaptation {shown(value)}: expected an instance of Adaptation')


SETTINGS = {  # in the order of `Scroll`'s arguments
    'head': _choice(
        'ridge',
        (*HEAD_NAMES, *PUBLISHED),
        'classifier of f_T; rp, rff: ridge on lifted '
        'features; slda and those behind it: what papers call the others',
    ),
    'ridge_lambda': Setting(
        0.1,
        f"added to the Gram matrix (sum, not mean); '{AUTO}': chosen from the "
        'statistics (generalised cross-validation)',
        _number(
            'from 1.5e-11 (it is rounded to a multiple of 2^-36) to 2^63',
            lambda value: 0 < value <= 2**63 and round(float(value) * 2**36) > 0,
            AUTO,
        ),
        heads=_RIDGES,
    ),
    'targets': _choice('pm1', TARGETS, 'of ridge: +-1 or one-hot', _RIDGES),
    'ncc_bias': _choice(
        'exact', NCC_BIASES, "of ncc: -|c|^2/2, the paper's -|c|^2, or none", ('ncc',)
    ),
    'buffer_size': Setting(500, 'samples to keep; 0: none', whole),
    'strategy': _choice('herding', STRATEGIES, 'which samples of a class are kept'),
    'adaptation': Setting(None, 'how f* is made: an `Adaptation`', _adaptation),
    'seed': Setting(
        0, 'of buffer, adaptation and the random classifier', _whole(0, MAX_SEED), heads=('random',)
    ),
    'keep_keys': Setting(
        False, 'keep the key of every sample learned, 8 bytes each, to unlearn by', on_off
    ),
    'shrinkage': Setting(
        OAS,
        'of lda and qda: share of the identity in the covariance, below 1; '
        f"'{OAS}': chosen from the statistics",
        _number('from 0 up to below 1', lambda value: 0 <= value < 1, OAS),
        heads=('lda', 'qda'),
    ),
    'pooling': Setting(
        0.5,
        'of qda: share of the common covariance in that of each class',
        _number('from 0 to 1', lambda value: 0 <= value <= 1),
        heads=('qda',),
    ),
    'lift': _choice(
        AUTO,
        (AUTO, 'none', *LIFTS),
        'integer random features, made before samples are counted; auto: as the head says',
    ),
    'lift_dim': Setting(2000, 'random features', _whole(1, MAX_LIFT_WIDTH)),
    'lift_seed': Setting(0, "of the lift's random matrix", _whole(0, MAX_SEED)),
    'lift_bandwidth': Setting(
        1.0,
        'of fourier: length scale of its kernel',
        lambda name, value: number(name, value, positive=True),
    ),
}
DEFAULTS = {name: setting.default for name, setting in SETTINGS.items()}


def check_settings(values: dict) -> None:
    """InputError for the first invalid value; names that are no settings are ignored."""
    for name, value in values.items():
        if name in SETTINGS:
            SETTINGS[name].check(name, value)


def parse(text):
    """A number, or else the text: a value as it is written on a command line. A number stays as it
    is.
    """
    if not isinstance(text, str):
        return text
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def class_weight_hint(names) -> str:
    """Advice in place of `class_weight`, if it is among the names of arguments; else ''."""
    return "; head='balanced' counts each class alike" if 'class_weight' in names else ''
