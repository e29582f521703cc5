"""Under which schedules a method is certified."""
import argparse

import numpy as np

from bench.cli.flags import whole
from core.plugins import normalise
from scroll.errors import InputError


def plan_specs(options, dataset, seed: int) -> list:
    """Specs of all schedules, each once: label order, reversed, `--specs`, then random class orders."""
    from scroll.randomness import numpy_stream
    classes = np.unique(dataset.train_labels)
    splits = [n for n in range(2, len(classes) + 1) if len(classes) % n == 0] or [1]
    if options.splits is not None:
        try:
            splits = [whole(1, len(classes))(word) for word in options.splits.split(',')]
        except argparse.ArgumentTypeError as error:
            raise InputError(f'--splits {options.splits}: {error}; give numbers of tasks, 1..{len(classes)}, '
                             'as 5,10') from None
    by_default = 'iid;gaussian;blurry' if normalise(options.model) == 'scroll' else ''
    named = (by_default if options.specs is None else options.specs).split(';')
    tasks, generator = dataset.N_TASKS, numpy_stream(seed, 'certificate')
    specs = [f'split:{tasks}', f'split:{tasks},order={_joined(classes[::-1])}',
             *(s.strip() for s in named if s.strip())]
    for spec in specs[2:]:
        schedule_of(spec, dataset, seed)
    specs += [f'split:{generator.choice(splits)},order={_joined(generator.permutation(classes))}'
              for _ in range(options.schedules)]
    return list(dict.fromkeys(specs))


def _joined(classes) -> str:
    return '-'.join(map(str, classes.tolist()))


def schedule_of(spec: str, dataset, seed: int):
    """The schedule; InputError if it does not bring each sample once."""
    from scroll.schedules import make_schedule
    try:
        schedule = make_schedule(spec, dataset.train_labels, seed)
    except InputError as error:
        raise InputError(f'--specs: {error}') from error
    if schedule.covers != 'all':
        what = 'repeats samples' if schedule.covers == 'repeats' else 'leaves out samples'
        raise InputError(f'--specs {spec}: it {what}, and nothing can be invariant to that; give schedules '
                         'of the whole data set')
    return schedule
