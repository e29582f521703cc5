"""Statistics on disk: merged from the shares of several machines, and with a share taken out again.

Sums of integers: `all` has the digest of one machine that saw both shares, `rest` that of one that never saw
b, to the last bit. A file names its parts (`scroll.parts`), each by the digest of its statistics, so a
share that was counted twice is noticed, also within files that were merged before. What was removed has a
minus, and may be merged again. Two shares that do hold equal samples: `--repeated`. Nothing shows that shares
overlap in some samples: cut shares that cannot (`main.py --shard 1/4` goes by the samples' pixels).
"""
from dataclasses import dataclass

import numpy as np

from scroll import archive
from scroll.embedding.images import check_images
from scroll.errors import InputError, naming
from scroll.files.features import open_files, print_facts, read_blocks
from scroll.grid import FLOAT32, check_quantised, intake, quantise, sample_keys
from scroll.labels import check_labels
from scroll.parts import accounted, clash, counted_twice, list_parts, one_part
from scroll.statistics import Statistics


@dataclass
class StatisticsFile:
    """Statistics, the path that errors call them by, and where they come from.

    Attributes:
        psi: digest of the embedder, '' for features of one's own. parts: digest of a part -> how many times
            it is in; negative: how many times it was taken out; 0: it was in, and is not any more.
    """
    path: str
    statistics: Statistics
    psi: str
    parts: dict
    precision: str = FLOAT32

    @classmethod
    def read(cls, path) -> 'StatisticsFile':
        """What `write`, or `Statistics.save`, wrote; InputError if it is damaged or something else."""
        return cls(str(path), *Statistics.load_with_facts(path))

    @classmethod
    def of_samples(cls, paths: list, columns, like: 'StatisticsFile') -> 'StatisticsFile':
        """The samples of files (`samples_of`) as if they had been counted in statistics like these."""
        samples = samples_of(paths, columns, precision=like.precision)
        with naming(paths[0]):
            statistics = like.statistics.empty_like().add(samples['features'], samples['labels'])
        return cls(str(paths[0]), statistics, like.psi, one_part(statistics), like.precision)

    def write(self, path) -> None:
        """To `path`, whole or not at all; InputError if it cannot be written."""
        self.statistics.save(path, self.psi, self.parts, self.precision)

    def merge(self, other: 'StatisticsFile', repeated: bool = False) -> 'StatisticsFile':
        """Add another file's samples; InputError if a part of it is in already, unless `repeated`."""
        again = counted_twice(self.parts, self.statistics, other.parts, other.statistics)
        if again and not repeated:
            raise InputError(f'{other.path}: its part {again[:16]} is in {self.path} already: merged, it '
                             'would count twice (two shares that do hold equal samples: --repeated)')
        return self._changed(other, self.statistics.merge, 1)

    def remove(self, other: 'StatisticsFile') -> 'StatisticsFile':
        """Take another file's samples out; InputError if they are out already, or cannot have been in."""
        again = clash(self.parts, other.parts, -1)
        if again:
            raise InputError(f'{other.path}: its part {again[:16]} was removed from {self.path} already')
        return self._changed(other, self.statistics.subtract, -1)

    def _changed(self, other: 'StatisticsFile', change, sign: int) -> 'StatisticsFile':
        with naming(other.path):
            other.check_like(self)
            change(other.statistics)
        self.parts = accounted(self.parts, other.parts, sign)
        return self

    def check_like(self, other) -> None:
        """InputError unless its features mean the same as those of another file, or `State`."""
        if other.psi != self.psi:
            raise InputError(f'made with another backbone ({_name(self.psi)}; expected {_name(other.psi)}): '
                             'weights, input, kind of machine and version of torch must be the same')
        if not self.psi and other.precision != self.precision:
            raise InputError(f'its features were taken in as {self.precision}, the others as '
                             f'{other.precision} (before version 0.3): count one of them again')

    def show(self) -> None:
        """Print what is known of the file."""
        show(self.statistics, self.psi, parts=list_parts(self.parts))


def samples_of(paths: list, columns: dict = None, names: tuple = None, precision: str = FLOAT32) -> dict:
    """Samples to remove: features, labels, and keys and images where the file has them, else None.

    Args:
        paths: of files of features and labels (`scroll.files.features`), those to train. Or of one npz file
            with `labels` (N,), and `quantised` (N, d), integers on the grid, or `features` (N, d); `keys`,
            uint64 (N,), or `images`, uint8 (N, H, W, C), are then what a buffer knows its samples by. names,
            precision: of the state that they are removed from: its columns, and how features were taken in.
    """
    names_there = archive.names_of(*paths) if len(paths) == 1 and not columns else []
    if not names_there or 'X' in names_there:
        blocks = read_blocks(open_files(paths, columns, ('X', 'y'), names))
        parts = [(quantise(intake(block.X, precision)), block.y) for _, block in blocks]
        if not parts:
            raise InputError(f'{paths[0]}: there are no samples to train, so none to remove')
        features, labels = (np.concatenate(part) for part in zip(*parts))
        return dict(features=features, labels=labels, keys=None, images=None)
    arrays = archive.arrays_of(*paths)
    if 'labels' not in arrays or ('quantised' in arrays) == ('features' in arrays):
        raise InputError(f'{paths[0]}: expected arrays labels (N,), and quantised or features (N, d); it has '
                         f'{", ".join(sorted(arrays))}')
    with naming(paths[0]):
        features = (arrays['quantised'] if 'quantised' in arrays
                    else quantise(intake(arrays['features'], precision)))
        check_quantised(features)
        labels = check_labels(arrays['labels'].tolist(), len(features))
        keys, images = arrays.get('keys'), None
        if 'images' in arrays:
            images = check_images(arrays['images'], 'images')
            keys = sample_keys(images) if keys is None else keys
        if any(part is not None and part.shape[:1] != labels.shape for part in (keys, images)) or \
                keys is not None and (keys.dtype != np.uint64 or keys.ndim != 1):
            raise InputError(f'its keys or images do not go with its {len(features)} features: expected one '
                             'a sample')
    return dict(features=features, labels=labels, keys=keys, images=images)


def _name(backbone: str) -> str:
    return backbone[:16] or 'features of its own'


def show(statistics: Statistics, backbone: str, **more: str) -> None:
    """Print what is known of statistics, and more of their file; then how many samples each class has."""
    facts = dict(samples=statistics.total, classes=len(statistics.classes), dim=statistics.dim,
                 backbone=_name(backbone), **more, digest=statistics.digest())
    print_facts(facts, zip(statistics.classes.tolist(), statistics.counts.tolist()))
