"""What was learned, changed afterwards: samples and classes unlearned, renamed, merged, offered once more."""
from dataclasses import replace
from typing import TypeVar

import numpy as np

from scroll.arguments import instance, shown
from scroll.errors import InputError
from scroll.labels import check_labels, label_array
from scroll.state import State
from scroll.statistics import Statistics

Learner = TypeVar('Learner', bound='Revisable')


class Revisable:
    """The part of `Scroll` that changes what was learned. Each method does all that it says, or nothing."""
    _KEEPS_PARTS = True                 # says which parts it is made of, when it is saved

    def remove(self: Learner, X, y) -> Learner:
        """Unlearn samples that were learned, each once: the statistics are those of never having seen them,
        the buffer drops them (their capacity stays free until new samples come), f* is dropped, and the
        embedder's cache loses their features. Files that were written before still hold what they held.

        Raises:
            InputError: they cannot all have been learned, or other bad input. Nothing is changed then.
                (Without `keep_keys`, samples that were never learned and are much like those that were may
                pass.)
        """
        self._learned()
        _, features, keys = self._embed(X, keep=False, learned=True)
        labels = check_labels(y, len(features))
        return self._edit(lambda state: self._forgotten(state.without(features, keys, labels), X))

    def _forgotten(self, rest: State, samples) -> State:
        """A state without these samples, of which the embedder's cache loses the features."""
        if self.embedder is not None:
            self.embedder.forget(samples)
        return rest

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
        self._learned()
        name = check_labels([label], 1).tolist()[0]
        if X is not None and statistics is not None:
            raise InputError('remove_class takes X or statistics, not both')
        if statistics is not None:
            instance('statistics', statistics, Statistics)
        given = None if X is None else self._embed(X, keep=False)[1:]

        def without_it(state: State) -> State:
            classes = state.statistics.classes.tolist()
            if name not in classes:
                raise InputError(f'class {shown(label)} is not among those learned')
            count = int(state.statistics.counts[classes.index(name)])
            if statistics is not None:
                if statistics.classes.tolist() != [name] or statistics.total != count:
                    raise InputError(f'the statistics given are of {statistics.total} samples of class '
                                     f'{shown(statistics.classes.tolist())}: expected all {count} of '
                                     f'{name!r}')
                return state.without_classes(statistics)
            if given is None:
                return self._forgotten(state.without_class(name), state.kept_of(name)[0])
            if len(given[1]) != count:
                raise InputError(f'{len(given[1])} of {count} samples of class {name!r} are given: expected '
                                 'all')
            return self._forgotten(state.without(*given, label_array([name] * count)), X)
        return self._edit(without_it)

    def rename(self: Learner, mapping: dict) -> Learner:
        """Call classes by other names: {name: new name}; those left out keep theirs. Two may swap theirs.

        What was learned is that of a stream with these names; so is the buffer, where its capacity is shared
        evenly (what is left over goes to the first classes: one that is now later may lose a sample).

        Raises:
            InputError: a class that was never learned, a name that is no label or that two would have.
                Nothing is changed then.
        """
        self._learned()
        instance('mapping', mapping, dict)
        return self._edit(lambda state: state.renamed(mapping))

    def learned(self, X, y) -> np.ndarray:
        """bool (N,): which samples were learned with these labels; given twice, it must be there twice.

        Raises:
            InputError: the learner keeps no keys, or other bad input.
        """
        known = self._learned().state.keys
        if known is None:
            raise InputError('which samples were learned is known with keep_keys=True alone')
        _, features, keys = self._embed(X, keep=False)
        out = np.ones(len(features), bool)
        out[known.lacks(keys, check_labels(y, len(features)))] = False
        return out

    def refill(self: Learner, X, y) -> Learner:
        """Offer samples that were learned, and are counted, to the buffer again, after `remove`.

        With all that remain, given at once, it becomes the buffer of never having seen what was removed
        (`random`: drawn anew).

        Raises:
            InputError: they cannot all have been learned, with those that the buffer holds, or other bad
                input. Nothing is changed then.
        """
        self._learned()
        samples, features, keys = self._embed(X)
        labels = check_labels(y, len(features))
        return self._edit(lambda state: state.refilled(samples, features, keys, labels))

    def merge(self: Learner, other: Learner) -> Learner:
        """Add what another learner, with the same backbone, has learned from another part of the data."""
        self._learned()
        given = other._state()
        return self._edit(lambda state: replace(state, psi=self._backbone()).merged(given, self._KEEPS_PARTS))
