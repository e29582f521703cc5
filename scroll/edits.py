"""Edit what was learned, from file to file: remove samples or classes, rename, merge.

Statistics and f_T get the digests of a learner that saw the stream so edited.

    python -m scroll unlearn state.npz --samples old.npz -o new.npz         # features, labels; keys or images
    python -m scroll unlearn state.npz --minus class-3.npz -o new.npz       # statistics of whole classes
    python -m scroll unlearn state.npz --classes 3 -o new.npz               # where its statistics are known

Sums over all classes do not tell what one class has added. So a class is removed with its samples, or with
the statistics of its samples alone; by its name where there is a Gram matrix for each class (heads `balanced`
and `qda`), or where the buffer has kept all its samples.

The buffer drops the samples; their capacity stays free until new ones come. It is the buffer of a learner
that never saw them wherever its capacity held all samples, or the other classes had their full share;
otherwise it holds a part of that one (`hash`), or samples chosen when the removed ones were still there.

What was never learned is refused as far as sums and buffer show it, and to the last sample by a learner that
keeps its keys (`Scroll(keep_keys=True)`, `main.py --keep_keys 1`).

Only the new file has forgotten. Older states, statistics files and checkpoints of runs
(`<base_path>/unfinished`, --savecheck) still hold what they held; so does the feature cache
(`<base_path>/cache/features`) until --feature_cache FOLDER takes the images out of it, for every backbone
(no run may be at work then: it would write what it has computed).
"""
import re

import numpy as np

from scroll.embedding.cache import cache_keys, remove_from_files
from scroll.errors import InputError, did_you_mean, naming
from scroll.files.statistics import StatisticsFile, samples_of
from scroll.grid import sample_keys
from scroll.parts import counted_twice
from scroll.state import State

_INTEGER = re.compile('-?[0-9]{1,18}')


def without_samples(state: State, paths: list, cache=None, columns: dict = None,
                    repeated: bool = False) -> State:
    """The state without the samples of files (`samples_of`); feature caches below `cache` lose them.
    InputError if they were removed already, unless `repeated`."""
    samples, path = samples_of(paths, columns, state.names, state.precision), paths[0]
    features, keys, images = (samples[name] for name in ('features', 'keys', 'images'))
    if keys is None and not state.psi:
        keys = sample_keys(np.ascontiguousarray(features, np.int32))
    if keys is None and (state.buffer is not None or state.keys is not None):
        raise InputError(f'{path}: the learner knows its samples by their pixels: give their keys or '
                         'images, too')
    if cache is not None and images is None:
        raise InputError(f'{path}: a feature cache knows samples by their pixels: give images, too')
    out = _removed(path, state, lambda: state.without(features, keys, samples['labels']), repeated)
    if cache is not None:
        print(f'{remove_from_files(cache, cache_keys(keys, images))} cached features removed from {cache}')
    return out


def without_classes(state: State, path, repeated: bool = False) -> State:
    """The state without the classes of a statistics file; InputError if it has a part of a class, or they
    were removed already, unless `repeated`."""
    part = StatisticsFile.read(path)
    with naming(path):
        part.check_like(state)
    return _removed(path, state, lambda: state.without_classes(part.statistics, part.parts), repeated)


def _removed(path, state: State, remove, repeated: bool) -> State:
    """What `remove` makes of the state; InputError, naming `path`, if it cannot, or did before."""
    with naming(path):
        out = remove()
    twice = [part for part, times in state.parts.items() if times <= 0 and out.parts.get(part, 0) < times]
    if twice and state.keys is None and not repeated:               # keys know it of each sample
        raise InputError(f'{path}: its part {twice[0][:16]} was removed already (where equal samples were '
                         'learned more than once: --repeated)')
    return out


def class_of(state: State, text: str, path):
    """The class that reads so; InputError, naming `path`, if there is none."""
    classes = {str(label): label for label in state.statistics.classes.tolist()}
    if text not in classes:
        raise InputError(f'{path}: class {text!r} is not among the {len(classes)} that were learned '
                         f'({", ".join(list(classes)[:3])}{", ..." * (len(classes) > 3)})'
                         f'{did_you_mean(text, classes)}')
    return classes[text]


def renamed(state: State, pairs: list, path) -> State:
    """The state with other names of classes, from texts 'old=new'. Labels stay numbers if all of them are
    whole numbers before and after; otherwise all become text. InputError: no learner, no such class, one
    named twice, or invalid names."""
    if not isinstance(state, State):
        raise InputError(f'{path} holds statistics: expected the file of a learner')
    names = {}
    for pair in pairs:
        old, equals, new = pair.rpartition('=')
        label = class_of(state, old, path) if equals else None
        if not equals or not new or label in names:
            raise InputError(f'rename {pair}: expected OLD=NEW, each class once')
        names[label] = new
    whole = {label: names.get(label, str(label)) for label in state.statistics.classes.tolist()}
    if state.statistics.classes.dtype.kind == 'i' and all(map(_INTEGER.fullmatch, whole.values())):
        whole = {label: int(new) for label, new in whole.items()}
    return state.renamed(whole)


def merged(state: State, other: State, path, repeated: bool = False) -> State:
    """What two learners know, with the settings of the first. `path`: of the other, for errors.

    InputError: backbones differ, one keeps keys and the other does not, or, as far as parts, keys or equal
    sums show, they have learned the same samples (unless `repeated`)."""
    again = counted_twice(state.known_parts(), state.statistics, other.known_parts(), other.statistics)
    if state.keys is not None and other.keys is not None:
        own = other.keys.state_dict()
        labels = np.repeat(own['labels'], own['sizes'])
        again = len(state.keys.lacks(own['keys'], labels)) < len(labels)
    if again and not repeated:
        part = f', its part {again}' if isinstance(again, str) else ''
        raise InputError(f'{path}: samples of it{part} are learned already: merged, they would count twice '
                         '(where they are to: --repeated)')
    with naming(path):
        return state.merged(other)
