"""The key of a run: all flags that affect its result, as they were when the run was made; of files
their names.

It is the row's `run_key`: JSON with the values of the flags that were asked for (`given`: on the
command line, and unlike the default of then), of the others (`default`), and `seed`, `schedule` and
`psi_digest`.
"""

import json

from core.arguments import KEY, affects
from scroll.ground.errors import InputError

_APART = ('seed', 'n_splits', 'schedule', 'inc', 'b')


def run_key(args, given: set, schedule: str) -> dict:
    """The key of a run with these `Arguments`, but for its seed.

    given: flags that were asked for. schedule: the spec of the stream."""
    values = {
        name: text_of(value)
        for name, value in sorted(vars(args).items())
        if affects(args, name) in KEY and name not in _APART
    }
    return {
        'given': {name: value for name, value in values.items() if name in given},
        'default': {name: value for name, value in values.items() if name not in given},
        'schedule': schedule,
    }


def key_text(key: dict, seed, psi_digest: str) -> str:
    """The key as a row has it."""
    return as_text({**key, 'seed': text_of(seed), 'psi_digest': psi_digest})


def read_key(text: str) -> dict:
    """Inverse of `key_text`; InputError if the text is something else."""
    try:
        key = json.loads(text)
        key['given'] | key['default']
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f'run_key {text[:80]!r}: not the key of a run') from error
    return key


def as_text(key: dict) -> str:
    """JSON; equal for equal keys."""
    return json.dumps(key, sort_keys=True, separators=(',', ':'))


def text_of(value) -> str:
    """Text of a value, as a results file has it."""
    return '' if value is None else str(value)
