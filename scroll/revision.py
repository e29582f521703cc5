"""What was learned, changed afterwards: samples and classes unlearned, renamed, merged, offered once more."""
from dataclasses import replace
from typing import TypeVar

import numpy as np

from scroll.arguments import instance, shown
from scroll.errors import InputError
from scroll.io.parts import accounted
from scroll.labels import check_labels, label_array
from scroll.statistics import Statistics

Learner = TypeVar('Learner', bound='Revisable')


class Revisable:
    """The part of `Scroll` that changes what was learned. Each method does all that it says, or nothing."""

    def remove(self: Learner, X, y) -> Learner:
        """Unlearn samples that were learned, each once: the statistics are those of never having seen them,
        the buffer drops them (their capacity stays free until new samples come), f* is dropped, and the
        embedder's cache loses their features. Files that were written before still hold what they held
        (`python -m scroll unlearn --find`).

        Raises:
            InputError: they cannot all have been learned, or other bad input. Nothing is changed then.
                (Without `keep_keys`, samples that were never learned and are much like those that were may
                pass.)
        """
        self._check_begun()
        _, features, keys = self._embed(X, keep=False)
        rest = self._state().without(features, keys, check_labels(y, len(features)))
        if self.embedder is not None:
            self.embedder.forget(X)
        return self.take(rest)

    def remove_class(self: Learner, label, X=None, statistics: Statistics = None) -> Learner:
        """Unlearn a whole class: as `remove`, of all its samples.

        What it has added to the Gram matrix must be known, and the matrix of all classes does not tell: give
        its samples or its statistics; neither where there is a matrix a class (the heads `balanced`, `qda`),
        or the buffer has kept every sample of the class.

        Args:
            X: all samples of the class, as for `partial_fit`. statistics: of all samples of the class; they
                do not tell which features an embedder's cache should lose.

        Raises:
            InputError: no such class, or not all of it. Nothing is changed then.
        """
        self._check_begun()
        name, classes = check_labels([label], 1).tolist()[0], self.classes_.tolist()
        if name not in classes:
            raise InputError(f'class {shown(label)} is not among those learned')
        if X is not None and statistics is not None:
            raise InputError('remove_class takes X or statistics, not both')
        count, state = int(self.statistics_.counts[classes.index(name)]), self._state()
        if statistics is not None:
            instance('statistics', statistics, Statistics)
            if statistics.classes.tolist() != [name] or statistics.total != count:
                raise InputError(f'the statistics given are of {statistics.total} samples of class '
                                 f'{shown(statistics.classes.tolist())}: expected all {count} of {name!r}')
            return self.take(state.without_classes(statistics))
        if X is None:
            samples, rest = state.kept_of(name)[0], state.without_class(name)
        else:
            samples, features, keys = self._embed(X, keep=False)
            if len(keys) != count:
                raise InputError(f'{len(keys)} of {count} samples of class {name!r} are given: expected all')
            rest = state.without(features, keys, label_array([name] * count))
        if self.embedder is not None:
            self.embedder.forget(samples)
        return self.take(rest)

    def rename(self: Learner, mapping: dict) -> Learner:
        """Call classes by other names: {name: new name}; those left out keep theirs. Two may swap theirs.

        What was learned is that of a stream with these names; so is the buffer, where its capacity is shared
        evenly (what is left over goes to the first classes: one that is now later may lose a sample).

        Raises:
            InputError: a class that was never learned, a name that is no label or that two would have.
                Nothing is changed then.
        """
        self._check_begun()
        instance('mapping', mapping, dict)
        return self.take(self._state().renamed(mapping))

    def learned(self, X, y) -> np.ndarray:
        """bool (N,): which samples were learned with these labels; given twice, it must be there twice.

        Raises:
            InputError: the learner keeps no keys, or other bad input.
        """
        self._check_begun()
        if self.keys_ is None:
            raise InputError('which samples were learned is known with keep_keys=True alone')
        _, features, keys = self._embed(X, keep=False)
        out = np.ones(len(features), bool)
        out[self.keys_.lacks(keys, check_labels(y, len(features)))] = False
        return out

    def refill(self: Learner, X, y) -> Learner:
        """Offer samples that were learned, and are counted, to the buffer again, after `remove`.

        With all that remain, given at once, it becomes the buffer of never having seen what was removed
        (`random`: drawn anew).

        Raises:
            InputError: they cannot all have been learned, with those that the buffer holds, or other bad
                input. Nothing is changed then.
        """
        self._check_begun()
        samples, features, keys = self._embed(X)
        labels = check_labels(y, len(features))
        if self.buffer_ is None:
            raise InputError('there is no buffer to refill: buffer_size is 0')
        self.buffer_.check(samples)
        new = self.buffer_.keys().lacks(keys, labels)
        try:                            # these and what is kept, together, must be part of what was learned
            rest = replace(self._state(), buffer=None).without(features[new], keys[new], labels[new])
            replace(rest, buffer=self.buffer_).checked()
        except InputError as error:
            raise InputError(f'only samples that were learned can refill the buffer: {error}') from error
        self.buffer_.refill(keys, features, samples, labels, self.statistics_)
        return self._changed()

    def merge(self: Learner, other: Learner) -> Learner:
        """Add what another learner, with the same backbone, has learned from another part of the data."""
        self._check_begun()
        other._check_begun()
        if self._backbone() != other._backbone():
            raise InputError('cannot merge learners with different backbones: their features do not mean '
                             'the same')
        if self.buffer_ is not None and other.buffer_ is not None and len(other.buffer_):
            self.buffer_.check(other.buffer_.content().samples)
        if self.keys_ is not None and other.keys_ is None:
            raise InputError('cannot merge a learner that keeps no keys into one that does: make both with '
                             'keep_keys=True')
        parts = accounted(self._state().known_parts(), other._state().known_parts())
        self.statistics_.merge(other.statistics_)
        if self.buffer_ is not None:
            self.buffer_.merge(other.buffer_, self.statistics_)
        if self.keys_ is not None:
            self.keys_.merge(other.keys_)
        return self._set_origin(parts)._changed()
