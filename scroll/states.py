"""A learner on disk: settings, exact statistics and buffer, so that `partial_fit`, `remove` and `adapt` go on as if it had
never stopped. psi is not in the file, only its digest; nor is f*, which `adapt` makes again, with the same bits.

The size does not depend on the number of samples: 8 (d + 1)^2 + 8 K (d + 1) bytes of statistics (0.74 MB for d = 256 and 100
classes), and for each sample in the buffer its pixels and 4 d + 16 bytes.
"""
from dataclasses import asdict, dataclass

import numpy as np

from scroll import files
from scroll.adaptation import Adaptation
from scroll.errors import InputError
from scroll.exemplars import ExemplarBuffer
from scroll.images import Augmentation
from scroll.statistics import Statistics

KIND = 'scroll-state-1'


@dataclass
class State:
    """What a learner knows.

    Attributes:
        params: the constructor's arguments but for the embedder. psi: digest of the embedder, '' for feature vectors.
        buffer: None without memory.
    """
    params: dict
    psi: str
    statistics: Statistics
    buffer: ExemplarBuffer = None

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
        files.write(path, KIND, facts, arrays)

    @classmethod
    def read(cls, path) -> 'State':
        """InputError if there is no such file, or it is something else or damaged. Runs no code from it."""
        facts, arrays = files.read(path, KIND)
        try:
            params, buffer = dict(facts['params']), None
            if params.get('adaptation') is not None:
                settings = params['adaptation']
                params['adaptation'] = Adaptation(**{**settings, 'augmentation': Augmentation(**settings['augmentation'])})
            statistics = Statistics.from_arrays(_group(arrays, 'statistics_'))
            if facts['buffer'] is not None:
                buffer = ExemplarBuffer(facts['buffer']['capacity'], facts['buffer']['strategy'])
                buffer.load_state_dict(_checked(_group(arrays, 'buffer_'), statistics) | dict(random=facts['buffer']['random']))
            return cls(params, str(facts['psi']), statistics, buffer)
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
