"""Edit what was learned, from file to file: merge learners or statistics, remove samples or
classes.

A merged file has the digest, and the f_T, of one learner that saw all; a file after a removal has
those of a learner that never saw the rest. A buffer cannot bring back what it had let go: `remove`
and `show` say where it lacks samples (`ExemplarBuffer.complete`), since f* may then be another.
Samples that would count twice are noticed, by parts (`scroll.sums.parts`), but for parts that
overlap in some samples: cut shares that cannot (`main.py --shard 1/4` goes by the samples' pixels).

    python -m scroll remove state.npz --samples old.npz -o new.npz    # features and labels
    python -m scroll remove state.npz --minus class-3.npz -o new.npz  # statistics of whole classes
    python -m scroll remove state.npz --classes 3 -o new.npz          # with known statistics

A class is removed with its samples, or with the statistics of its samples alone; by its name where
there is a Gram matrix for each class (heads `balanced` and `qda`), or the buffer has kept all its
samples. Samples that were never learned are refused as far as sums, buffer and keys show it. Only
the new file has forgotten: older files and the feature cache (`<base_path>/cache/features`) still
hold what they held (docs/merging.md).
"""

import numpy as np

from scroll.files.features import open_files, read_blocks
from scroll.ground import archive
from scroll.ground.errors import InputError, prefixed
from scroll.ground.grid import check_quantised, quantise, sample_keys
from scroll.ground.labels import check_kind, check_labels, normal
from scroll.ground.tables import warn_of_half
from scroll.learners.state import KIND, State
from scroll.sums.parts import counted_twice
from scroll.sums.statistics import Statistics


def read(path) -> State:
    """Read a file of a learner, or of statistics, whose `params` are then None."""
    if archive.kind_of(path) == KIND:
        return State.read(path)
    statistics, psi, parts = Statistics.load_with_facts(path)
    return State(None, psi, statistics, parts=parts)


def write(state: State, path) -> None:
    """Write a file as `read` reads it, whole or not at all; InputError if it cannot be written."""
    if state.params is None:
        state.statistics.save(path, state.psi, state.known_parts())
    else:
        state.write(path)


def merged(
    state: State, other: State, path, repeated: bool = False, source: str = 'the first'
) -> State:
    """Add two learners, with the settings of the first, or two files of statistics.

    `path`: the file of the other, `source`: that of the first, for errors. InputError: backbones
    differ, one keeps keys and the other does not, or, as far as parts, keys or equal sums show,
    they have learned the same samples (unless `repeated`)."""
    if (state.params is None) != (other.params is None):
        raise InputError(
            f'{path}: expected files of one kind, all of learners or all of statistics'
        )
    twice = counted_twice(
        state.known_parts(), state.statistics, other.known_parts(), other.statistics
    )
    if state.keys is not None and other.keys is not None:
        keys, labels = other.keys.samples()
        twice = len(state.keys.lacks(keys, labels)) < len(keys)
    if twice and not repeated:
        part = f', its part {twice[:16]}' if isinstance(twice, str) else ''
        raise InputError(
            f'{path}: samples of it{part} are learned already: merged, they would count twice '
            '(where they are to: --repeated)'
        )
    with prefixed(path):
        if state.statistics.total and other.statistics.total:
            check_kind(other.classes, state.classes, f'in {source}')
        return state.merged(other)


def without_samples(state: State, paths: list, columns: dict | None, repeated: bool) -> State:
    """Return the state without the samples of files of features and labels
    (`scroll.files.features`), those to train; or of one npz file of embedded images: `quantised`
    (N, d), integers on the grid, `labels` (N,), and `keys`, uint64 (N,), by which buffer and keys
    know them. InputError if they were removed already, unless `repeated`."""
    path = paths[0]
    keys = None
    if state.psi:
        if paths[1:]:
            raise InputError(f'{paths[1]}: expected one file of embedded images')
        arrays = archive.arrays_of(path)
        if not arrays.keys() >= {'quantised', 'labels'}:
            raise InputError(
                f'{path}: the learner knows embedded images: expected arrays quantised, labels, '
                'keys'
            )
        features = arrays['quantised']
        labels = arrays['labels'].tolist()
        keys = arrays.get('keys')
    else:
        files = open_files(paths, columns, ('X', 'y'), state.names)
        parts = []
        labels = []
        for _, block in read_blocks(files):
            warn_of_half(block.X)
            parts.append(quantise(block.X, as_float32=True))
            labels += block.y.tolist()
        if not parts:
            raise InputError(f'{path}: there are no samples to train, so none to remove')
        features = np.concatenate(parts)
        keys = sample_keys(features)
    with prefixed(path):
        check_quantised(features)
        labels = check_labels(labels, len(features))
    return _removed(path, state, lambda: state.without(features, keys, labels), repeated)


def without_statistics(state: State, path, repeated: bool) -> State:
    """Return the state without the samples that a file counts; where a buffer or keys are kept,
    whole classes. InputError if they were removed already, unless `repeated`."""
    part = read(path)
    with prefixed(path):
        state.check_compatible(part)
    return _removed(
        path, state, lambda: state.without_classes(part.statistics, part.known_parts()), repeated
    )


def _removed(path, state: State, remove, repeated: bool) -> State:
    """Return `remove()`; InputError, naming `path`, if it fails, or has removed a part before."""
    with prefixed(path):
        out = remove()
    before = state.parts or {}
    after = out.parts or {}
    twice = [part for part, times in before.items() if times <= 0 and after.get(part, 0) < times]
    if twice and state.keys is None and not repeated:  # keys know it of each sample
        raise InputError(
            f'{path}: its part {twice[0][:16]} was removed already (where equal samples were '
            'learned more than once: --repeated)'
        )
    return out


def without_class(state: State, text: str, path) -> State:
    """Return the state without the class of this name; InputError, naming `path`, if it cannot be
    removed."""
    classes = {str(label): label for label in state.classes.tolist()}
    with prefixed(path):
        return state.without_class(classes.get(normal(text), text))
