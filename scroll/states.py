"""A learner on disk: settings, exact statistics and buffer, so that `partial_fit`, `remove` and `adapt` go on as if it had
never stopped. psi is not in the file, only its digest; nor is f*, which `adapt` makes again, with the same bits.

The size does not depend on the number of samples: 8 (d + 1)^2 + 8 K (d + 1) bytes of statistics (0.74 MB for d = 256 and 100
classes), and for each sample in the buffer its pixels and 4 d + 16 bytes. With `keep_keys` it does: 8 bytes a sample.
"""
import copy
from dataclasses import asdict, dataclass, replace

import numpy as np

from scroll import files
from scroll.adaptation import Adaptation
from scroll.errors import InputError
from scroll.exemplars import ExemplarBuffer
from scroll.images import Augmentation
from scroll.learned_keys import LearnedKeys
from scroll.statistics import Statistics

KIND = 'scroll-state-1'


@dataclass
class State:
    """What a learner knows.

    Attributes:
        params: the constructor's arguments but for the embedder. psi: digest of the embedder, '' for feature vectors.
        buffer: None without memory. keys: of all samples that the statistics count, or None where they were not kept.
    """
    params: dict
    psi: str
    statistics: Statistics
    buffer: ExemplarBuffer = None
    keys: LearnedKeys = None

    def without(self, features, keys, labels) -> 'State':
        """What would be known had these samples never been learned; this state stays as it is.

        Args:
            features: int32 (N, d), on the grid. keys: uint64 (N,), or None if neither a buffer nor keys are kept. labels: (N,).

        Raises:
            InputError: they cannot all have been learned, by what the statistics, the buffer and the keys show.
        """
        known = self.keys if self.keys is None else copy.copy(self.keys).remove(keys, labels)
        statistics, buffer = copy.copy(self.statistics).remove(features, labels), copy.copy(self.buffer)
        if buffer is not None:
            buffer.remove(keys, labels)
        return replace(self, statistics=statistics, buffer=buffer, keys=known).checked()

    def without_classes(self, part: Statistics) -> 'State':
        """As `without`, of all samples of some classes, which are known by their statistics.

        Raises:
            InputError: they cannot have been learned, or are not whole classes and there are a buffer or keys.
        """
        statistics, buffer, known = copy.copy(self.statistics).subtract(part), copy.copy(self.buffer), copy.copy(self.keys)
        left = np.intersect1d(part.classes, statistics.classes)
        for kept in filter(lambda kept: kept is not None, (buffer, known)):
            if len(left):
                raise InputError(f'holds some of the samples of class {left[0]}, and the learner cannot tell which of those '
                                 'it keeps, or knows by their keys, they are: give --samples')
            kept.drop(part.classes)
        return replace(self, statistics=statistics, buffer=buffer, keys=known).checked()

    def checked(self) -> 'State':
        """This state; InputError if its buffer holds samples that cannot all be among those that were learned."""
        if self.buffer is not None and len(self.buffer):
            held = self.buffer.content()
            try:
                replace(self, buffer=None).without(held.features, held.keys, held.labels)
            except InputError as error:
                raise InputError(f'the buffer would hold samples that are not among those learned ({error})') from error
        return self

    def write(self, path) -> None:
        """InputError if it cannot be written; whatever was there is as it was."""
        params = dict(self.params)
        if params.get('adaptation') is not None:
            params['adaptation'] = asdict(params['adaptation'])
        arrays = {f'statistics_{name}': array for name, array in self.statistics.state_dict().items()}
        facts = dict(params=params, psi=self.psi, buffer=None)
        if self.buffer is not None:
            kept = self.buffer.state_dict()
            facts['buffer'] = dict(capacity=self.buffer.capacity, strategy=self.buffer.strategy, random=kept.pop('random'))
            arrays |= {f'buffer_{name}': array for name, array in kept.items()}
        if self.keys is not None:
            arrays |= {f'keys_{name}': array for name, array in self.keys.state_dict().items()}
        files.write(path, KIND, facts, arrays)

    @classmethod
    def read(cls, path) -> 'State':
        """InputError if there is no such file, or it is something else or damaged. Runs no code from it."""
        facts, arrays = files.read(path, KIND)
        try:
            params, buffer, keys = dict(facts['params']), None, None
            if params.get('adaptation') is not None:
                settings = params['adaptation']
                params['adaptation'] = Adaptation(**{**settings, 'augmentation': Augmentation(**settings['augmentation'])})
            statistics = Statistics.from_arrays(_group(arrays, 'statistics_'))
            if facts['buffer'] is not None:
                buffer = ExemplarBuffer(facts['buffer']['capacity'], facts['buffer']['strategy'])
                buffer.load_state_dict(_checked(_group(arrays, 'buffer_'), statistics) | dict(random=facts['buffer']['random']))
            if 'keys_keys' in arrays:
                keys = LearnedKeys()
                keys.load_state_dict(_checked_keys(_group(arrays, 'keys_'), statistics))
            return cls(params, str(facts['psi']), statistics, buffer, keys).checked()
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise InputError(f'{path}: damaged ({" ".join(str(error).split())})') from error


def _group(arrays: dict, prefix: str) -> dict:
    return {name[len(prefix):]: array for name, array in arrays.items() if name.startswith(prefix)}


def _checked(kept: dict, statistics: Statistics) -> dict:
    """The arrays of a buffer; ValueError if they do not go together, or hold what the statistics do not count."""
    sizes = kept['sizes']
    if kept['labels'].shape != sizes.shape or not np.isin(kept['labels'], statistics.classes).all():
        raise ValueError('the buffer has classes that the statistics lack')
    counts = dict(zip(statistics.classes.tolist(), statistics.counts.tolist()))
    if any(not 0 < size <= counts[label] for label, size in zip(kept['labels'].tolist(), sizes.tolist())):
        raise ValueError('the buffer has more samples of a class than the statistics')
    if len(sizes):
        wrong = [name for name in ('keys', 'features', 'samples', 'coins') if len(kept[name]) != sizes.sum()]
        if wrong or kept['keys'].dtype != np.uint64 or kept['features'].shape[1:] != (statistics.dim,):
            raise ValueError('the arrays of the buffer do not go together')
    return kept


def _checked_keys(known: dict, statistics: Statistics) -> dict:
    """The arrays of `LearnedKeys`; ValueError unless they are the keys of as many samples as the statistics count."""
    whole = known['keys'].dtype == np.uint64 and known['keys'].shape == (statistics.total,)
    if not (whole and np.array_equal(known['labels'], statistics.classes) and np.array_equal(known['sizes'], statistics.counts)):
        raise ValueError('the keys are not those of the samples that the statistics count')
    return known
