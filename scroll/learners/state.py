"""The state of a learner: exact statistics, buffer and keys; edits of them; the same as a file.

A `State` is never changed: each edit gives a new one, which shares what it can with the old. The
file (npz, no pickles) holds settings, too, but neither the backbone, only its digest, nor f*, which
`adapt` makes again with the same bits. Its size: 8 (d + 1)^2 + 8 K (d + 1) bytes of statistics; for
each sample in the buffer its pixels and 4 d + 16 bytes; with `keep_keys` 8 bytes a sample that was
learned.
"""

import copy
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from scroll.adaptation.settings import Adaptation
from scroll.embedding.images import check_images
from scroll.ground import archive
from scroll.ground.arguments import shown
from scroll.ground.errors import InputError, prefixed
from scroll.ground.grid import check_quantised
from scroll.ground.labels import check_labels, normal, typed_labels
from scroll.ground.settings import SETTINGS, check_settings
from scroll.ground.tables import check_names
from scroll.sums.exemplars import ExemplarBuffer, Exemplars
from scroll.sums.learned_keys import LearnedKeys
from scroll.sums.parts import accounted
from scroll.sums.statistics import Statistics

if TYPE_CHECKING:
    from scroll.adaptation.training import AdaptedPredictor

KIND = 'scroll-state-1'


@dataclass(frozen=True)
class State:
    """The content of a learner.

    Attributes:
        params: settings, in a file; None in a file of statistics alone.
        psi: digest of the embedder; '' for feature vectors.
        statistics: exact sums of all samples.
        buffer: None without memory.
        keys: those of all samples that are counted; None where they were not kept.
        parts: the parts of `whole` (`scroll.sums.parts`); None: there is one part.
        whole: the statistics when they were read or merged; None: the same as `statistics`.
        names: names of the columns of features, in the order in which they were counted; None
            where they had none.
        boolean: all labels that were learned are True or False, which `statistics` counts as 1
            and 0.
        adapted: f* that was made of exactly this; None after any edit.
    """

    params: dict | None
    psi: str
    statistics: Statistics
    buffer: ExemplarBuffer | None = None
    keys: LearnedKeys | None = None
    parts: dict | None = None
    whole: Statistics | None = None
    names: tuple | None = None
    boolean: bool = False
    adapted: 'AdaptedPredictor | None' = field(default=None, repr=False)

    @property
    def classes(self) -> np.ndarray:
        """(K,) labels learned, sorted: int64, text or bool."""
        classes = self.statistics.classes
        return classes.astype(bool) if self.boolean else classes

    @property
    def knows_keys(self) -> bool:
        """True where a buffer or keys are kept."""
        return self.buffer is not None or self.keys is not None

    def _copy(self, **changes) -> 'State':
        """Return a state to edit: statistics, buffer and keys share their arrays with these."""
        copies = {name: copy.copy(getattr(self, name)) for name in ('statistics', 'buffer', 'keys')}
        return replace(self, adapted=None, **copies | changes)

    def with_samples(self, samples, features, keys, labels) -> 'State':
        """Return a state that has also learned these samples.

        Args:
            samples: (N, ...), for the buffer to store.
            features: int32 (N, d), on the grid.
            keys: uint64 (N,).
            labels: (N,), as `typed_labels` gives them.
        """
        out = self._copy(
            whole=self._statistics_of_parts(), boolean=self.boolean and labels.dtype.kind == 'b'
        )
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
        """Return a state that has also learned samples whose statistics alone are given; InputError
        where there are a buffer or keys."""
        if self.knows_keys:
            raise InputError(
                'statistics alone can be learned with buffer_size=0 and keep_keys=False'
            )
        out = self._copy(whole=self._statistics_of_parts(), boolean=False)
        out.statistics.merge(statistics)
        return out

    def check_backbone(self, psi: str) -> None:
        """InputError unless the digest of the embedder (or grid) is this one."""
        if self.psi != psi:
            expected, given = (digest[:16] or 'none, but features' for digest in (self.psi, psi))
            raise InputError(
                f'backbone or grid mismatch: expected {expected}, given {given}; weights, input '
                'size and dtype must match (float features: also machine and torch version)'
            )

    def check_compatible(self, other: 'State') -> None:
        """InputError unless backbone and columns agree."""
        self.check_backbone(other.psi)
        check_names(other.names, self.names, 'the other')

    def merged(self, other: 'State', of_parts: bool = True) -> 'State':
        """Return a state that has also learned another learner's samples.

        `of_parts`: keep account of the parts. InputError if backbones, columns or shapes of samples
        differ, or the other keeps no keys and this one does."""
        self.check_compatible(other)
        if self.buffer is not None and other.buffer is not None and len(other.buffer):
            self.buffer.check(other.buffer.content().samples)
        if self.keys is not None and other.keys is None:
            raise InputError(
                'cannot merge a learner that keeps no keys into one that does: make both with '
                'keep_keys=True, or both without'
            )
        out = self._copy(
            whole=None,
            parts=accounted(self.known_parts(), other.known_parts()) if of_parts else None,
            names=self.names or other.names,
            boolean=self.boolean and other.boolean,
        )
        out.statistics.merge(other.statistics)
        if out.buffer is not None:
            out.buffer.merge(other.buffer, out.statistics)
        if out.keys is not None and other.keys is not None:
            out.keys.add(*other.keys.samples())
        return out

    def without(self, features, keys, labels) -> 'State':
        """Return a state that never learned these samples (a buffer: while it is `complete`).

        Arguments as `with_samples`; keys: None without buffer and keys. InputError if statistics,
        buffer or keys show that they cannot all have been learned."""
        self._check_keys(keys, len(labels))
        removed = self.statistics.empty_like().add(features, labels)
        out = self._copy(whole=None)
        if out.keys is not None:
            out.keys.remove(keys, labels)
        out.statistics.subtract(removed)
        if out.buffer is not None:
            out.buffer.remove(keys, labels, out.statistics)
        return replace(out, parts=self._parts_without(removed)).checked()

    def _check_keys(self, keys, count: int) -> None:
        """InputError unless samples have a key each, where a buffer or keys are kept."""
        if keys is None and not self.knows_keys:
            return
        array = np.asarray(keys)
        if array.shape != (count,) or array.dtype.newbyteorder('=') != np.uint64:
            raise InputError(
                f'the learner knows its samples by their keys: give keys, uint64 ({count},)'
            )

    def without_classes(self, part: Statistics, parts: dict | None = None) -> 'State':
        """Return a state that never learned some classes, given by their statistics, which are
        made of `parts`. Where there are a buffer or keys, they must be whole classes."""
        out = self._copy(whole=None)
        out.statistics.subtract(part)
        left = np.intersect1d(part.classes, out.statistics.classes)
        if len(left) and out.knows_keys:
            raise InputError(
                f'class {left[0]} is only partly in this file: give --samples to say which'
            )
        if out.buffer is not None:
            out.buffer.drop(part.classes, out.statistics)
        if out.keys is not None:
            out.keys.drop(part.classes)
        return replace(out, parts=self._parts_without(part, parts)).checked()

    def without_class(self, label) -> 'State':
        """Return a state that never learned a class.

        InputError unless its sums are known: from a Gram matrix of its own, or from a buffer that
        has kept every sample of it."""
        count = self.count_of(label)
        held = self.exemplars_of(label)
        if self.statistics.by_class:
            return self.without_classes(self.statistics.of_class(label))
        kept = 0 if held is None else len(held)
        if held is None or kept != count:
            raise InputError(
                f'{kept} of {count} samples of class {label!r} are in the buffer: give all, or '
                'their statistics, since sums of all classes do not tell what one has added'
            )
        return self.without(held.features, held.keys, held.labels)

    def count_of(self, label) -> int:
        """Return the number of samples of a class; InputError if it was not learned."""
        classes = self.statistics.classes.tolist()
        if label not in classes:
            raise InputError(f'class {shown(label)} is not among those learned')
        return int(self.statistics.counts[classes.index(label)])

    def exemplars_of(self, label) -> Exemplars | None:
        """Return the exemplars of a class; None if the buffer is empty."""
        if self.buffer is None or not len(self.buffer):
            return None
        held = self.buffer.content()
        return held.at([other == label for other in held.labels.tolist()])

    def renamed(self, names: dict) -> 'State':
        """Return a state whose classes have other names (a buffer: while it is `complete`).

        names: {name: new name}; the others keep theirs. InputError: no such class, or invalid
        names."""
        classes = self.classes.tolist()
        names = {normal(label): name for label, name in names.items()}
        unknown = [label for label in names if label not in classes]
        if unknown:
            raise InputError(f'rename: class {shown(unknown[0])} is not among those learned')
        new = typed_labels([names.get(label, label) for label in classes])
        names = dict(zip(classes, check_labels(new).tolist()))
        out = self._copy(
            statistics=self.statistics.relabel(names),
            whole=None,
            parts=None if self.parts is None else self.known_parts(),
            boolean=new.dtype.kind == 'b',
        )
        if out.buffer is not None:
            out.buffer.rename(names, out.statistics)
        if out.keys is not None:
            out.keys.rename(names)
        return out

    def checked(self) -> 'State':
        """Return this state; InputError if its buffer holds samples that cannot all have been
        learned."""
        if self.buffer is not None and len(self.buffer):
            held = self.buffer.content()
            with prefixed('the buffer would hold samples that are not among those learned'):
                replace(self, buffer=None).without(held.features, held.keys, held.labels)
        return self

    def known_parts(self) -> dict:
        """Return the parts of all samples: those learned since `whole` are one."""
        if self.parts is None:
            return self.statistics.as_part()
        if self.whole is None:
            return dict(self.parts)
        return accounted(self.parts, copy.copy(self.statistics).subtract(self.whole).as_part())

    def _parts_without(self, removed: Statistics, parts: dict | None = None) -> dict | None:
        if self.parts is None:
            return None
        return accounted(self.known_parts(), removed.as_part() if parts is None else parts, -1)

    def _statistics_of_parts(self) -> Statistics | None:
        """The statistics that `parts` adds up to."""
        return self.statistics if self.whole is None and self.parts is not None else self.whole

    def content(self) -> tuple[dict, dict]:
        """Return facts (plain values) and arrays by name, for files and checkpoints;
        `from_content` reads them."""
        params = dict(self.params or {})
        if params.get('adaptation') is not None:
            params['adaptation'] = asdict(params['adaptation'])
        facts: dict = {'params': params, 'buffer': None}
        facts |= self.statistics.facts(self.psi, self.known_parts())
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

    def write(self, path) -> None:
        """Write a file, whole or not at all; InputError if it cannot be written."""
        archive.write(path, KIND, *self.content())

    @classmethod
    def read(cls, path) -> 'State':
        """Read a file; runs no code from it. InputError if there is no such file, or it is
        something else or damaged."""
        facts, arrays = archive.read(path, KIND)
        with archive.read_errors(path):
            return cls.from_content(facts, arrays)

    @classmethod
    def from_content(cls, facts: dict, arrays: dict) -> 'State':
        """Inverse of `content`; raises on malformed input, one of many errors."""
        params = dict(facts['params'])
        adaptation = params.get('adaptation')
        if adaptation is not None:
            params['adaptation'] = Adaptation.of(adaptation)
        check_settings(params)
        groups: dict = {'statistics': {}, 'buffer': {}, 'keys': {}}
        for name, array in arrays.items():
            group, _, rest = name.partition('_')
            groups[group][rest] = array
        if (groups['buffer'] and facts['buffer'] is None) or params.keys() - SETTINGS.keys():
            raise InputError('it holds something else, too')
        statistics, psi, parts = Statistics.from_content(facts, groups['statistics'])
        buffer = None
        keys = None
        names = facts.get('names')
        if facts['buffer'] is not None:
            buffer = ExemplarBuffer.from_arrays(
                groups['buffer'],
                facts['buffer'],
                statistics,
                lambda samples: check_samples(samples, statistics.dim, images=bool(psi)),
            )
        if groups['keys']:
            keys = LearnedKeys.from_arrays(groups['keys'], statistics)
        if names is not None:
            names = tuple(names)
            if len(names) != statistics.dim or not all(isinstance(name, str) for name in names):
                raise InputError('its columns are not as they are written')
        boolean = 'labels' in facts and set(statistics.classes.tolist()) <= {0, 1}
        return cls(
            params, psi, statistics, buffer, keys, parts, names=names, boolean=boolean
        ).checked()


def check_samples(samples: np.ndarray, dim: int, images: bool) -> None:
    """InputError unless a buffer can store these: uint8 images, or quantised features (N, dim)."""
    if images:
        check_images(samples, 'samples')
    else:
        check_quantised(samples, dim)
