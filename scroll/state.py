"""A learner on disk: settings, exact statistics and buffer, so that `partial_fit`, `remove` and `adapt` go on
as if it had never stopped. The backbone is not in the file, only its digest; nor is f*, which `adapt` makes
again, with the same bits.

The size does not depend on the number of samples: 8 (d + 1)^2 + 8 K (d + 1) bytes of statistics (0.74 MB for
d = 256 and 100 classes), and for each sample in the buffer its pixels and 4 d + 16 bytes. With `keep_keys` it
does: 8 bytes a sample.
"""
import copy
from dataclasses import asdict, dataclass, replace

import numpy as np

from scroll import archive
from scroll.adaptation.settings import Adaptation
from scroll.arguments import MOST_SEED, instance, number, on_off, one_of, shown, whole
from scroll.embedding.images import Augmentation, check_images
from scroll.errors import InputError
from scroll.exemplars import STRATEGIES, ExemplarBuffer
from scroll.files.parts import accounted, list_parts, one_part
from scroll.files.statistics import show
from scroll.grid import FLOAT32, FLOAT64, PRECISIONS, check_quantised
from scroll.heads.choice import AUTOMATIC
from scroll.heads.lda import OAS, exact_share
from scroll.heads.predictors import NCC_BIASES, TARGETS, exact_lambda
from scroll.heads.quadratic import exact_pooling
from scroll.heads.registry import HEADS
from scroll.heads.ridge_lambda import AUTO
from scroll.labels import check_labels, label_array
from scroll.learned_keys import LearnedKeys
from scroll.lift import LIFTS, MOST_WIDTH, Lift
from scroll.statistics import Statistics
from scroll.tables import check_names

KIND = 'scroll-state-1'
CLASSIFIERS = (*HEADS, AUTOMATIC)


@dataclass
class State:
    """What a learner knows.

    Attributes:
        params: the constructor's arguments but for the embedder. psi: digest of the embedder, '' for feature
            vectors.
        buffer: None without memory. keys: of all samples that the statistics count, or None where they were
            not kept.
        parts: what `counted` is made of (`scroll.files.parts`); None: of one part. counted: the statistics as
            of when they were read or merged; None: these.
        names: of the columns of features, in the order in which they were counted; None where they had none.
        precision: 'float32' where features were rounded to that on intake (`scroll.grid.intake`); 'float64'
            in files of versions before 0.3.
    """
    params: dict
    psi: str
    statistics: Statistics
    buffer: ExemplarBuffer = None
    keys: LearnedKeys = None
    parts: dict = None
    counted: Statistics = None
    names: tuple = None
    precision: str = FLOAT32

    def with_samples(self, samples, features, keys, labels) -> 'State':
        """What is known when these samples have been learned, too; this state stays as it is.

        Args:
            samples: what the buffer stores, (N, ...). features: int32 (N, d), on the grid. keys: uint64 (N,).
            labels: (N,).

        Raises:
            InputError: samples of another shape, or other bad input.
        """
        statistics, buffer, known = copy.copy(self.statistics), copy.copy(self.buffer), copy.copy(self.keys)
        if buffer is not None:
            buffer.check(samples)
        statistics.add(features, labels)
        if buffer is not None:
            buffer.update(keys, features, samples, labels, statistics)
        if known is not None:
            known.add(keys, labels)
        return replace(self, statistics=statistics, buffer=buffer, keys=known, counted=self.accounted_for())

    def refilled(self, samples, features, keys, labels) -> 'State':
        """What is known when samples that are counted have been offered to the buffer again; arguments as
        `with_samples`.

        Raises:
            InputError: there is no buffer, or they cannot all have been learned, with those that it holds.
        """
        if self.buffer is None:
            raise InputError('there is no buffer to refill: buffer_size is 0')
        self.buffer.check(samples)
        new = self.buffer.keys().lacks(keys, labels)
        try:                            # these and what is kept, together, must be part of what was learned
            rest = replace(self, buffer=None).without(features[new], keys[new], labels[new])
            replace(rest, buffer=self.buffer).checked()
        except InputError as error:
            raise InputError(f'only samples that were learned can refill the buffer: {error}') from error
        buffer = copy.copy(self.buffer)
        buffer.refill(keys, features, samples, labels, self.statistics)
        return replace(self, buffer=buffer)

    def merged(self, other: 'State', of_parts: bool = True) -> 'State':
        """What is known when another learner's samples have been learned, too; both states stay as they are.
        `of_parts`: it says which parts it is made of.

        Raises:
            InputError: their features are of different backbones, columns or precision, samples of different
                shapes, or the other keeps no keys.
        """
        if self.psi != other.psi:
            raise InputError('cannot merge learners with different backbones: their features do not mean '
                             'the same')
        check_names(other.names, self.names, 'cannot merge: the other learner')
        if not self.psi and self.precision != other.precision:
            raise InputError(f'cannot merge: features of one were taken in as {self.precision}, of the other '
                             f'as {other.precision} (before version 0.3): learn one of them again')
        if self.buffer is not None and other.buffer is not None and len(other.buffer):
            self.buffer.check(other.buffer.content().samples)
        if self.keys is not None and other.keys is None:
            raise InputError('cannot merge a learner that keeps no keys into one that does: make both with '
                             'keep_keys=True, or both without')
        parts = accounted(self.known_parts(), other.known_parts()) if of_parts else None
        statistics = copy.copy(self.statistics).merge(other.statistics)
        buffer, known = copy.copy(self.buffer), copy.copy(self.keys)
        if buffer is not None:
            buffer.merge(other.buffer, statistics)
        if known is not None:
            known.merge(other.keys)
        return replace(self, statistics=statistics, buffer=buffer, keys=known, counted=None, parts=parts,
                       names=self.names or other.names)

    def without(self, features, keys, labels) -> 'State':
        """What would be known had these samples never been learned; this state stays as it is.

        Args:
            features: int32 (N, d), on the grid. keys: uint64 (N,), or None if neither a buffer nor keys are
                kept. labels: (N,).

        Raises:
            InputError: they cannot all have been learned, by what the statistics, the buffer and the keys
                show.
        """
        known = self.keys if self.keys is None else copy.copy(self.keys).remove(keys, labels)
        removed, buffer = self.statistics.like().add(features, labels), copy.copy(self.buffer)
        statistics = copy.copy(self.statistics).subtract(removed)
        if buffer is not None:
            buffer.remove(keys, labels)
        return replace(self, statistics=statistics, buffer=buffer, keys=known, counted=None,
                       parts=self._parts_without(removed)).checked()

    def without_classes(self, part: Statistics, parts: dict = None) -> 'State':
        """As `without`, of all samples of some classes, which are known by their statistics, made of `parts`.

        Raises:
            InputError: they cannot have been learned, or are not whole classes and there are a buffer or
                keys.
        """
        statistics = copy.copy(self.statistics).subtract(part)
        buffer, known = copy.copy(self.buffer), copy.copy(self.keys)
        left = np.intersect1d(part.classes, statistics.classes)
        for kept in filter(lambda kept: kept is not None, (buffer, known)):
            if len(left):
                raise InputError(f'holds some of the samples of class {left[0]}, and the learner cannot '
                                 'tell which of those '
                                 'it keeps, or knows by their keys, they are: give --samples')
            kept.drop(part.classes)
        return replace(self, statistics=statistics, buffer=buffer, keys=known, counted=None,
                       parts=self._parts_without(part, parts)).checked()

    def _parts_without(self, removed: Statistics, parts: dict = None) -> dict | None:
        if self.parts is None:
            return None
        return accounted(self.known_parts(), one_part(removed) if parts is None else parts, -1)

    def without_class(self, label) -> 'State':
        """As `without`, of all samples of a class that was learned, if what it has added is known: from its
        own Gram matrix, or from a buffer that has kept every sample of it; InputError if not."""
        if self.statistics.by_class:
            return self.without_classes(self.statistics.of_class(label))
        count = int(self.statistics.counts[self.statistics.classes.tolist().index(label)])
        _, features, keys = self.kept_of(label)
        if len(keys) != count:
            raise InputError(f'{len(keys)} of {count} samples of class {label!r} are in the buffer: give '
                             'all, or their statistics, since sums of all classes do not tell what one has '
                             'added')
        return self.without(features, keys, label_array([label] * count))

    def kept_of(self, label) -> tuple:
        """Samples, features and keys of a class in the buffer."""
        if self.buffer is None or not len(self.buffer):
            return (np.zeros(0),) * 3
        held = self.buffer.content()
        own = [kept == label for kept in held.labels.tolist()]
        return held.samples[own], held.features[own], held.keys[own]

    def renamed(self, names: dict) -> 'State':
        """What would be known had classes had other names, {name: new name}, and the others their own; this
        state stays as it is. InputError: no such class, or names that cannot be."""
        classes = self.statistics.classes.tolist()
        unknown = [label for label in names if label not in classes]
        if unknown:
            raise InputError(f'rename: class {shown(unknown[0])} is not among those learned')
        new = [names.get(label, label) for label in classes]
        statistics = self.statistics.relabel(dict(zip(classes, new)))
        names = dict(zip(classes, check_labels(new, len(new)).tolist()))
        buffer, keys = copy.copy(self.buffer), copy.copy(self.keys)
        if buffer is not None:
            buffer.rename(names, statistics)
        if keys is not None:
            keys.rename(names)
        return replace(self, statistics=statistics, buffer=buffer, keys=keys, counted=None,
                       parts=None if self.parts is None else self.known_parts())

    def checked(self) -> 'State':
        """This state; InputError if its buffer holds samples that cannot all have been learned."""
        if self.buffer is not None and len(self.buffer):
            held = self.buffer.content()
            try:
                replace(self, buffer=None).without(held.features, held.keys, held.labels)
            except InputError as error:
                raise InputError('the buffer would hold samples that are not among those learned '
                                 f'({error})') from error
        return self

    def show(self) -> None:
        """Print what is known of the learner."""
        buffer = self.buffer
        kept = '0' if buffer is None else f'{len(buffer)} of {buffer.capacity}, {buffer.strategy}'
        show(self.statistics, self.psi, buffer=kept, keys='not kept' if self.keys is None else 'kept',
             parts=list_parts(self.known_parts()),
             learner=', '.join(f'{name}={value!r}' for name, value in self.params.items()))

    def known_parts(self) -> dict:
        """The parts of all that is known: what was learned since `counted` is one."""
        if self.parts is None:
            return one_part(self.statistics)
        if self.counted is None:
            return self.parts
        return accounted(self.parts, one_part(copy.copy(self.statistics).subtract(self.counted)))

    def accounted_for(self) -> Statistics | None:
        """What the parts are those of."""
        return self.statistics if self.counted is None and self.parts is not None else self.counted

    def write(self, path) -> str:
        """Returns its `archive.stamp_of`. InputError if it cannot be written; what was there is as it was."""
        params = dict(self.params)
        if params.get('adaptation') is not None:
            params['adaptation'] = asdict(params['adaptation'])
        arrays = {f'statistics_{name}': array for name, array in self.statistics.state_dict().items()}
        facts = dict(params=params, psi=self.psi, buffer=None, parts=self.known_parts(),
                     precision=self.precision)
        if self.names is not None:
            facts['names'] = list(self.names)
        if self.statistics.lift is not None:
            facts['lift'] = self.statistics.lift.facts()
        if self.buffer is not None:
            kept = self.buffer.state_dict()
            facts['buffer'] = dict(capacity=self.buffer.capacity, strategy=self.buffer.strategy,
                                   random=kept.pop('random'))
            arrays |= {f'buffer_{name}': array for name, array in kept.items()}
        if self.keys is not None:
            arrays |= {f'keys_{name}': array for name, array in self.keys.state_dict().items()}
        return archive.write(path, KIND, facts, arrays)

    @classmethod
    def read(cls, path) -> 'State':
        """InputError if there is no such file, or it is something else or damaged. Runs no code from it."""
        facts, arrays = archive.read(path, KIND)
        try:
            params, psi, buffer, keys = dict(facts['params']), facts['psi'], None, None
            if 'classifier' in params:                                  # files of version 0.2
                params['head'] = params.pop('classifier')
            kept, known = _group(arrays, 'buffer_'), _group(arrays, 'keys_')
            if params.get('adaptation') is not None:
                settings = {'select': 'none', **params['adaptation']}           # as files of version 0.2
                augmentation = Augmentation(**settings['augmentation'])
                params['adaptation'] = Adaptation(**{**settings, 'augmentation': augmentation})
            check_params(params)
            lift = Lift(**facts['lift']) if 'lift' in facts else None
            statistics = Statistics.from_arrays(_group(arrays, 'statistics_'), lift)
            whole_file = len(arrays) == 4 + len(kept) + len(known) and not (kept and facts['buffer'] is None)
            if not (whole_file and isinstance(psi, str)):
                raise ValueError('it holds something else, too')
            if facts['buffer'] is not None:
                buffer = ExemplarBuffer(facts['buffer']['capacity'], facts['buffer']['strategy'])
                buffer.load_state_dict(_checked(kept, facts['buffer'], statistics, psi))
                buffer.check_quotas(statistics)
            if known:
                keys = LearnedKeys()
                keys.load_state_dict(_checked_keys(known, statistics))
            parts = facts.get('parts', facts.get('blocks'))             # files of version 0.2 have the latter
            parts = one_part(statistics) if parts is None else parts
            if not all(type(times) is int for times in parts.values()) or (
                    statistics.total and max(parts.values(), default=0) < 1):
                raise ValueError('its parts are not as they are written')
            precision, names = facts.get('precision', FLOAT64), facts.get('names')
            if precision not in PRECISIONS or names is not None and not (
                    len(names) == statistics.dim and all(isinstance(name, str) for name in names)):
                raise ValueError('its columns are not as they are written')
            return cls(params, psi, statistics, buffer, keys, parts, None, names and tuple(names),
                       precision).checked()
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise InputError(f'{path}: damaged ({" ".join(str(error).split())})') from error


PARAMS = dict(
    head=lambda value: one_of('head', value, CLASSIFIERS),
    ridge_lambda=lambda value: (isinstance(value, str) and value == AUTO
                                or number('ridge lambda', value, positive=True, also=f" or '{AUTO}'")
                                or exact_lambda(value)),
    targets=lambda value: one_of('targets', value, TARGETS),
    ncc_bias=lambda value: one_of('ncc_bias', value, NCC_BIASES),
    shrinkage=lambda value: isinstance(value, str) and value == OAS or exact_share(value),
    pooling=exact_pooling,
    lift=lambda value: one_of('lift', value, ('auto', 'none', *LIFTS)),
    lift_dim=lambda value: whole('lift_dim', value, 1, MOST_WIDTH),
    lift_seed=lambda value: whole('lift_seed', value, 0, MOST_SEED),
    lift_bandwidth=lambda value: number('lift_bandwidth', value, positive=True),
    buffer_size=lambda value: whole('buffer_size', value),
    strategy=lambda value: one_of('strategy', value, STRATEGIES),
    adaptation=lambda value: value is None or instance('adaptation', value, Adaptation),
    seed=lambda value: whole('seed', value, 0, MOST_SEED),
    keep_keys=lambda value: on_off('keep_keys', value))


def lift_of(params: dict, dim: int) -> Lift | None:
    """The lift that the arguments of `Scroll` ask for, of features of `dim` numbers."""
    by_head = 'relu' if params['head'] == AUTOMATIC else HEADS[params['head']].lift
    kind = by_head if params['lift'] == 'auto' else params['lift']
    if kind in ('none', None):
        return None
    return Lift(kind, dim, params['lift_dim'], params['lift_seed'], params['lift_bandwidth'])


def check_params(params: dict) -> None:
    """InputError for an argument of `Scroll`'s constructor, but for the embedder, that cannot be."""
    for name, value in params.items():
        if name in PARAMS:
            PARAMS[name](value)


def check_samples(samples: np.ndarray, dim: int, images: bool) -> None:
    """InputError unless a buffer can store these: uint8 images, or quantised features (N, dim)."""
    if images:
        check_images(samples, 'samples')
    else:
        check_quantised(samples, dim)


def _group(arrays: dict, prefix: str) -> dict:
    return {name[len(prefix):]: array for name, array in arrays.items() if name.startswith(prefix)}


def _checked(kept: dict, facts: dict, statistics: Statistics, backbone: str) -> dict:
    """The state of a buffer; ValueError if it is none that a buffer can have beside these statistics."""
    labels, sizes = check_labels(kept['labels'].tolist(), len(kept['labels'])), kept['sizes']
    if sizes.shape != labels.shape or sizes.dtype != np.int64 or not (sizes > 0).all():
        raise ValueError('the buffer has classes without samples')
    if not set(labels.tolist()) <= set(statistics.classes.tolist()) or not (labels[1:] > labels[:-1]).all():
        raise ValueError('the buffer has classes that the statistics lack')
    names = ('keys', 'features', 'samples', 'coins') if len(sizes) else ()
    if kept.keys() != {'labels', 'sizes', *names}:
        raise ValueError('the arrays of the buffer are not those that a buffer has')
    if len(sizes):
        keys, features, samples, coins = (kept[name] for name in names)
        if {len(kept[name]) for name in names} != {sum(sizes.tolist())} or keys.ndim != 1 or coins.ndim != 1:
            raise ValueError('the arrays of the buffer do not go together')
        if [a.dtype for a in (keys, features, coins)] != [np.uint64, np.int32, np.float64]:
            raise ValueError('the arrays of the buffer are of other types')
        if not ((coins >= 0) & (coins < 1)).all():
            raise ValueError('the coins of the buffer are not in [0, 1)')
        check_quantised(features, statistics.dim)
        check_samples(samples, statistics.dim, images=bool(backbone))
        order = dict(hash=keys, random=coins).get(facts['strategy'])
        parts = [] if order is None else np.split(order, np.cumsum(sizes)[:-1])
        if any((part[1:] < part[:-1]).any() for part in parts):
            raise ValueError(f"the buffer is not in the order of its strategy, {facts['strategy']}")
    return {**kept, 'labels': labels, 'random': _checked_random(facts['random'])}


def _checked_random(state: dict) -> dict:
    """The state of numpy's PCG64: two numbers of 128 bits, of which the increment is odd, and half of one of
    64 bits that is left over; ValueError if it is something else."""
    numbers = state['state']
    for name, value, bits in (('state', numbers['state'], 128), ('increment', numbers['inc'], 128),
                              ('has_uint32', state['has_uint32'], 1), ('uinteger', state['uinteger'], 32)):
        whole(f'random state: {name}', value, 0, 2 ** bits - 1)
    if state['bit_generator'] != 'PCG64' or numbers['inc'] % 2 == 0 or len(state) != 4 or len(numbers) != 2:
        raise ValueError('the random state is none of PCG64')
    return state


def _checked_keys(known: dict, statistics: Statistics) -> dict:
    """The arrays of `LearnedKeys`; ValueError unless they are keys of what the statistics count."""
    fit = known['keys'].dtype == np.uint64 and known['keys'].shape == (statistics.total,) and len(known) == 3
    fit = fit and known['labels'].dtype.kind == statistics.classes.dtype.kind
    if not (fit and known['labels'].tolist() == statistics.classes.tolist()
            and known['sizes'].dtype == np.int64 and np.array_equal(known['sizes'], statistics.counts)):
        raise ValueError('the keys are not those of the samples that the statistics count')
    return known
