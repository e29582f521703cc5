"""Make a saved learner forget: statistics as if it had never seen the samples, and a buffer without them.

    python -m scroll.unlearn state.npz --samples old.npz -o new.npz          # labels, features, and keys or images
    python -m scroll.unlearn state.npz --minus class-3.npz -o new.npz        # statistics of whole classes

Statistics and f_T get the digests of a learner that never saw the samples. What a class has added to the Gram matrix is not
kept by itself (it would take K matrices: 53 MB for d = 256 and 100 classes), so a class is forgotten with its samples, or with
its statistics, if they were saved (`main.py --save_statistics FOLDER --by_class 1`).

The buffer lets go of the samples; their places stay empty until new samples come, since those that were once passed over are
gone. It is therefore the buffer of never having seen them wherever it had room for all samples, or classes of the others had
their full share; otherwise it holds a part of that one (`hash`), or samples chosen when the forgotten ones were still there
(herding's target was then the old mean). Offered once more, the remaining samples fill a `hash` buffer to the same digest.
"""
import argparse

import numpy as np

from scroll.errors import InputError
from scroll.states import State
from scroll.statistics import check_labels
from scroll.statistics_files import LineParser, StatisticsFile, part_of, run_line, samples_of


def without_samples(state: State, path) -> None:
    """Forget the samples of an npz file (`statistics_files.samples_of`), in place."""
    samples = samples_of(path, state.statistics.dim)
    if state.buffer is not None and samples['keys'] is None:
        if state.psi:
            raise InputError(f'{path}: the buffer knows its samples by their pixels: give their keys or images, too')
        from scroll.embedding import sample_keys
        samples['keys'] = sample_keys(np.ascontiguousarray(samples['features'], np.int32))
    part = part_of(path, samples, state.psi, state.statistics.dim)
    _subtract(state, part)
    if state.buffer is not None:
        state.buffer.remove(samples['keys'], check_labels(samples['labels'], len(samples['keys'])))


def without_classes(state: State, path) -> None:
    """Forget the classes of a statistics file, in place; InputError if it holds only some of the samples of one."""
    part = StatisticsFile.read(path)
    if part.psi != state.psi:
        raise InputError(f'{path}: made with another psi than the state')
    _subtract(state, part)
    left = np.intersect1d(part.statistics.classes, state.statistics.classes)
    if state.buffer is not None:
        if len(left):
            raise InputError(f'{path}: holds some of the samples of class {left[0]}, and the buffer cannot tell which of its own '
                             'they are: give --samples')
        state.buffer.drop(part.statistics.classes)


def _subtract(state: State, part: StatisticsFile) -> None:
    try:
        state.statistics.subtract(part.statistics)
    except InputError as error:
        raise InputError(f'{part.path}: {error}') from error


def _run(words) -> None:
    parser = LineParser(prog='python -m scroll.unlearn', description=__doc__, allow_abbrev=False,
                        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('state', help='file of Scroll.save, or of main.py --save_state')
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--samples', metavar='FILE', help='npz file: labels (N,), quantised or features (N, d), and keys '
                                                                   '(N,) or images (N, H, W, C)')
    what.add_argument('--minus', nargs='+', metavar='FILE', help='statistics files of whole classes')
    parser.add_argument('-o', '--out', required=True, help='file to write')
    args = parser.parse_args(words)
    state = State.read(args.state)
    if args.samples:
        without_samples(state, args.samples)
    else:
        for path in args.minus:
            without_classes(state, path)
    state.write(args.out)
    print(state.statistics.digest())


def main(words=None) -> int:
    """`python -m scroll.unlearn`."""
    return run_line('scroll.unlearn', lambda: _run(words))


if __name__ == '__main__':
    raise SystemExit(main())
