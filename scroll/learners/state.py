"""What a learner knows: exact statistics, buffer and keys, and what changes of them give; as a
file, too.

A `State` is never changed: each edit gives a new one, which shares what it can with the old. The
file (npz, no pickles) holds settings, too, but neither the backbone, only its digest, nor f*, which
`adapt` makes again with the same bits. Its size: 8 (d + 1)^2 + 8 K (d + 1) bytes of statistics; for
each sample in the buffer its
pixels and 4 d + 16 bytes; with `keep_keys` 8 bytes a sample that was learned.
"""

import copy
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from scroll.adaptation.settings import Adaptation
from scroll.embedding.images import Augmentation, check_images
from scroll.ground import archive
from scroll.ground.arguments import shown
from scroll.ground.errors import InputError, prefixed
from scroll.ground.grid import check_quantised
from scroll.ground.labels import check_labels, normal, typed_labels
from scroll.ground.settings import SETTINGS, check_settings
from scroll.ground.tables import check_names
from scroll.sums.exemplars import ExemplarBuffer, Exemplars
from scroll.sums.learned_keys import LearnedKeys
from scroll.sums.parts import accounted, one_part
from scroll.sums.statistics import Statistics

KIND = 'scroll-state-1'


@dataclass
class State:
    """What a learner knows.

    Attributes:
        params: settings, in a file; None where it is of statistics alone. psi: digest of the
        embedder, '' for
            feature vectors.
        buffer: None without memory. keys: of all samples that are counted; None where they were not
        kept.
        parts: what `whole` is made of (`scroll.sums.parts`); None: of one part. whole: the statistics as
        of when
            they were read or merged; None: these.
        names: of the columns of features, in the order in which they were counted; None where they
        had none.
        boolean: all labels that were learned are True or False, which `statistics` counts as 1 and
        0.
        adapted, selection: f* that was made of exactly this, and what cross-validation said of it;
        gone after
            any edit. derived: what a learner has made of it last (settings, `Derived`)."""

    params: dict
    psi: str
    statistics: Statistics
    buffer: ExemplarBuffer = None
    keys: LearnedKeys = None
    parts: dict = None
    whole: Statistics = None
    names: tuple = None
    boolean: bool = False
    adapted: object = field(default=None, init=False, repr=False)
    selection: list = field(default=None, init=False, repr=False)
    derived: object = field(default=None, init=False, repr=False)

    def __getstate__(self) -> dict:
        return dict(vars(self))  # as of now: another thread may make a head of it meanwhile

    def with_adapted(self, adapted, selection: list | None = None, **changes) -> 'State':
        """The same, with this f*; `changes`: of whatever f* does not depend on."""
        out = replace(self, **changes)
        out.adapted, out.selection, out.derived = adapted, selection, self.derived
        return out

    def named_columns(self) -> np.ndarray:
        """(d,) names of columns; an AttributeError where there are none."""
        if self.names is None:
            raise AttributeError('feature_names_in_: what was learned has no names of columns')
        return np.array(self.names, object)

    @property
    def classes(self) -> np.ndarray:
        """(K,) labels learned, sorted: int64, text or bool."""
        classes = self.statistics.classes
        return classes.astype(bool) if self.boolean else classes

    def _copy(self, **changes) -> 'State':
        """A state to be edited: statistics, buffer and keys share what they hold with these."""
        return replace(
            self,
            statistics=copy.copy(self.statistics),
            buffer=copy.copy(self.buffer),
            keys=copy.copy(self.keys),
            **changes,
        )

    def with_samples(self, samples, features, keys, labels) -> 'State':
        """When these samples have been learned, too. samples: what the buffer stores, (N, ...).
        features: int32 (N, d), on the grid. keys: uint64 (N,). labels: (N,), as `typed_labels`
        gives them."""
        out = self._copy(whole=self._accounted(), boolean=self.boolean and labels.dtype.kind == 'b')
        labels = check_labels(labels)
        self._check_keys(keys, len(labels))
        if len(samples) != len(features):
            raise InputError(f'there are {len(samples)} samples and {len(features)} features')
        if out.buffer is not None:
            out.buffer.check(samples)
        out.statistics.add(features, labels)
        if out.buffer is not None:
            out.buffer.update(keys, features, samples, labels, out.statistics)
        if out.keys is not None:
            out.keys.add(keys, labels)
        return out

    def with_statistics(self, statistics: Statistics) -> 'State':
        """When samples have been learned of which the statistics alone are known; InputError where
        there are a buffer or keys."""
        if self.buffer is not None or self.keys is not None:
            raise InputError(
                'statistics alone can be learned with buffer_size=0 and keep_keys=False'
            )
        out = self._copy(whole=self._accounted(), boolean=False)
        out.statistics.merge(statistics)
        return out

    def check_backbone(self, psi: str) -> None:
        """InputError unless what made the features has this digest."""
        if self.psi != psi:
            own, given = (digest[:16] or 'none, but features' for digest in (self.psi, psi))
            raise InputError(
                f'made with another backbone or grid ({own}) than is given ({given}): weights, '
                'input and dtype must be equal, in floating point machine and torch, too'
            )

    def check_alike(self, other: 'State') -> None:
        """InputError unless features of the other mean what features of this one mean."""
        self.check_backbone(other.psi)
        check_names(other.names, self.names, 'the other')

    def merged(self, other: 'State', of_parts: bool = True) -> 'State':
        """When another learner's samples have been learned, too. `of_parts`: keep account of the
        parts. InputError if backbones, columns or shapes of samples differ, or it keeps no keys."""
        self.check_alike(other)
        if self.buffer is not None and other.buffer is not None and len(other.buffer):
            self.buffer.check(other.buffer.content().samples)
        if self.keys is not None and other.keys is None:
            raise InputError(
                'cannot merge a learner that keeps no keys into one that does: make both with '
                'keep_keys=True, or both without'
            )
        parts = accounted(self.known_parts(), other.known_parts()) if of_parts else None
        out = self._copy(
            whole=None,
            parts=parts,
            names=self.names or other.names,
            boolean=self.boolean and other.boolean,
        )
        out.statistics.merge(other.statistics)
        if out.buffer is not None:
            out.buffer.merge(other.buffer, out.statistics)
        if out.keys is not None:
            out.keys.merge(other.keys)
        return out

    def without(self, features, keys, labels) -> 'State':
        """As if these samples had never been learned (a buffer: while it is `complete`); InputError
        if statistics, buffer or keys show that they cannot all have been. Arguments as
        `with_samples`; keys: None without buffer and keys."""
        self._check_keys(keys, len(labels))
        removed = self.statistics.empty_like().add(features, labels)
        out = self._copy(whole=None)
        if out.keys is not None:
            out.keys.remove(keys, labels)
        out.statistics.subtract(removed)
        if out.buffer is not None:
            out.buffer.remove(keys, labels, out.statistics)
        out.parts = self._parts_without(removed)
        return out.checked()

    def _check_keys(self, keys, count: int) -> None:
        """InputError unless samples have a key each, where a buffer or keys are kept."""
        wanted = keys is not None or self.buffer is not None or self.keys is not None
        if wanted and (np.shape(keys) != (count,) or keys.dtype.newbyteorder('=') != np.uint64):
            raise InputError(
                f'the learner knows its samples by their keys: give keys, uint64 ({count},)'
            )

    def without_classes(self, part: Statistics, parts: dict | None = None) -> 'State':
        """As `without`, of all samples of some classes, which are known by their statistics, made
        of `parts`. Where there are a buffer or keys, they must be whole classes."""
        out = self._copy(whole=None)
        out.statistics.subtract(part)
        left = np.intersect1d(part.classes, out.statistics.classes)
        if len(left) and (out.buffer is not None or out.keys is not None):
            raise InputError(
                f'holds some of the samples of class {left[0]}, and the learner cannot tell '
                'which of those it keeps, or knows by their keys, they are: give --samples'
            )
        if out.buffer is not None:
            out.buffer.drop(part.classes, out.statistics)
        if out.keys is not None:
            out.keys.drop(part.classes)
        out.parts = self._parts_without(part, parts)
        return out.checked()

    def without_class(self, label) -> 'State':
        """As `without`, of all samples of a class that was learned, if what it has added is known:
        from its own Gram matrix, or from a buffer that has kept every sample of it; InputError if
        not."""
        count, held = self.count_of(label), self.kept_of(label)
        if self.statistics.by_class:
            return self.without_classes(self.statistics.of_class(label))
        kept = 0 if held is None else len(held)
        if kept != count:
            raise InputError(
                f'{kept} of {count} samples of class {label!r} are in the buffer: give all, or '
                'their statistics, since sums of all classes do not tell what one has added'
            )
        return self.without(held.features, held.keys, held.labels)

    def count_of(self, label) -> int:
        """Samples of a class; InputError if it was not learned."""
        classes = self.statistics.classes.tolist()
        if label not in classes:
            raise InputError(f'class {shown(label)} is not among those learned')
        return int(self.statistics.counts[classes.index(label)])

    def kept_of(self, label) -> Exemplars | None:
        """What the buffer keeps of a class; None if it is empty."""
        if self.buffer is None or not len(self.buffer):
            return None
        held = self.buffer.content()
        return held.at([kept == label for kept in held.labels.tolist()])

    def renamed(self, names: dict) -> 'State':
        """As if classes had other names (a buffer: while it is `complete`), {name: new name}; the
        others keep theirs. InputError: no such class, or names that cannot be."""
        classes = self.classes.tolist()
        names = {normal(label): name for label, name in names.items()}
        unknown = [label for label in names if label not in classes]
        if unknown:
            raise InputError(f'rename: class {shown(unknown[0])} is not among those learned')
        new = [names.get(label, label) for label in classes]
        new = typed_labels(new, len(new))
        out = self._copy(
            whole=None,
            parts=None if self.parts is None else self.known_parts(),
            boolean=new.dtype.kind == 'b',
        )
        names = dict(zip(classes, check_labels(new).tolist()))
        out.statistics = self.statistics.relabel(names)
        if out.buffer is not None:
            out.buffer.rename(names, out.statistics)
        if out.keys is not None:
            out.keys.rename(names)
        return out

    def checked(self) -> 'State':
        """This state; InputError if its buffer holds samples that cannot all have been learned."""
        if self.buffer is not None and len(self.buffer):
            held = self.buffer.content()
            with prefixed('the buffer would hold samples that are not among those learned'):
                replace(self, buffer=None).without(held.features, held.keys, held.labels)
        return self

    def known_parts(self) -> dict:
        """The parts of all that is known: what was learned since `whole` is one."""
        if self.parts is None:
            return one_part(self.statistics)
        if self.whole is None:
            return dict(self.parts)
        return accounted(self.parts, one_part(copy.copy(self.statistics).subtract(self.whole)))

    def _parts_without(self, removed: Statistics, parts: dict | None = None) -> dict | None:
        if self.parts is None:
            return None
        return accounted(self.known_parts(), one_part(removed) if parts is None else parts, -1)

    def _accounted(self) -> Statistics | None:
        """What the parts are those of."""
        return self.statistics if self.whole is None and self.parts is not None else self.whole

    def content(self) -> tuple:
        """(facts, arrays by name): plain values and arrays, of which files and checkpoints are
        made; `of` reads them."""
        params = dict(self.params)
        if params.get('adaptation') is not None:
            params['adaptation'] = asdict(params['adaptation'])
        facts = dict(
            params=params, buffer=None, **self.statistics.facts(self.psi, self.known_parts())
        )
        if self.names is not None:
            facts['names'] = list(self.names)
        if self.boolean:
            facts['labels'] = 'bool'
        groups = {'statistics': self.statistics.state_dict()}
        if self.buffer is not None:
            groups['buffer'] = self.buffer.state_dict()
            facts['buffer'] = {
                'capacity': self.buffer.capacity,
                'strategy': self.buffer.strategy,
                'random': groups['buffer'].pop('random'),
            }
            if not self.buffer.complete:
                facts['buffer']['complete'] = False
        if self.keys is not None:
            groups['keys'] = self.keys.state_dict()
        return facts, {
            f'{group}_{name}': array
            for group, arrays in groups.items()
            for name, array in arrays.items()
        }

    def write(self, path) -> str:
        """Returns its `archive.stamp_of`. InputError if it cannot be written; what was there is as
        it was.
        """
        return archive.write(path, KIND, *self.content())

    @classmethod
    def read(cls, path) -> 'State':
        """InputError if there is no such file, or it is something else or damaged. Runs no code
        from it.
        """
        facts, arrays = archive.read(path, KIND)
        with archive.read_errors(path):
            return cls.of(facts, arrays)

    @classmethod
    def of(cls, facts: dict, arrays: dict) -> 'State':
        """What `content` gave; one of many errors if it did not."""
        params, buffer, keys, names = dict(facts['params']), None, None, facts.get('names')
        if params.get('adaptation') is not None:
            given = params['adaptation']
            params['adaptation'] = Adaptation(
                **{**given, 'augmentation': Augmentation(**given['augmentation'])}
            )
        check_settings(params)
        groups = {
            group: {
                name.removeprefix(f'{group}_'): array
                for name, array in arrays.items()
                if name.startswith(f'{group}_')
            }
            for group in ('statistics', 'buffer', 'keys')
        }
        if (
            sum(map(len, groups.values())) != len(arrays)
            or (groups['buffer'] and facts['buffer'] is None)
            or params.keys() - SETTINGS.keys()
        ):
            raise InputError('it holds something else, too')
        statistics, psi, parts = Statistics.from_content(facts, groups['statistics'])
        if facts['buffer'] is not None:
            buffer = ExemplarBuffer.from_arrays(
                groups['buffer'],
                facts['buffer'],
                statistics,
                lambda x: check_samples(x, statistics.dim, images=bool(psi)),
            )
        if groups['keys']:
            keys = LearnedKeys.from_arrays(groups['keys'], statistics)
        if names is not None and not (
            len(names) == statistics.dim and all(isinstance(name, str) for name in names)
        ):
            raise InputError('its columns are not as they are written')
        boolean = 'labels' in facts and set(statistics.classes.tolist()) <= {0, 1}
        return cls(
            params, psi, statistics, buffer, keys, parts, None, names and tuple(names), boolean
        ).checked()


def check_samples(samples: np.ndarray, dim: int, images: bool) -> None:
    """InputError unless a buffer can store these: uint8 images, or quantised features (N, dim)."""
    if images:
        check_images(samples, 'samples')
    else:
        check_quantised(samples, dim)
