"""Files of features: npz, npy, safetensors, torch and Parquet files, read one block after the
other.

    X      numbers (N, d): embeddings of anything; each becomes a unit vector on the grid (`scroll.ground.grid`)
    y      labels (N,), all integers, all text, or True and False
    id     names of samples (N,), integers or text          split  'train' or 'test' (N,)

An npz file has arrays of these names, and needs X alone; so has a safetensors file, or a dict of
tensors that
`torch.save` wrote. `features.npy` (or `X.npy`) is X, and `labels.npy` (`y.npy`) next to it y. In a
Parquet
file (which needs pyarrow) X is a column of lists or, as a pattern like `X=f*`, all columns of
numbers that match, in the order of the first file, by path, or of what was learned before; no more
of it is in memory than a block (or row group). Names that it has of the integers of y (ClassLabel
of Hugging Face's `datasets`) are the labels. Also x, features, embedding(s) are X, and label(s),
target(s) y; other names:
`X=pooled,y=species`. The first bytes of a file say its kind. Nothing in a file is run.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from scroll.files import arrays as limits
from scroll.files.arrays import NAMES, Arrays, Mapped, kind_of, labels_of
from scroll.ground.archive import read_errors
from scroll.ground.arguments import one_of, shown, whole
from scroll.ground.errors import InputError, prefixed
from scroll.ground.labels import check_kind, check_labels, typed_labels
from scroll.ground.tables import Columns, places

BLOCK = 1 << 13  # samples
SPLITS = ('train', 'test')
ALL = 'all'


class Block(NamedTuple):
    """Some samples: X (n, d), finite; y, id, split (n,), or None where the file has none."""

    X: np.ndarray
    y: np.ndarray = None
    id: np.ndarray = None
    split: np.ndarray = None

    def part(self, at) -> 'Block':
        """The samples at these positions, or of this mask."""
        return Block(*(None if column is None else column[at] for column in self))


def open_files(
    paths,
    columns: dict | None = None,
    need: tuple = ('X',),
    names: tuple | None = None,
    known: tuple | None = None,
    kind=None,
) -> list:
    """A `FeatureFile`, or one of its subclass `kind`, for each file. columns: other names of
    columns, by 'X', 'y', 'id' and 'split'. need: those that each file must have. names: of the
    columns of X, in the order wanted; None: that of the first file, by path. known: (labels, where
    they are), of which there are others;
    None: of the first file. InputError: there is no such file, it is of another kind, damaged, or
    lacks what is needed; or files that differ in their number of features, kind of labels, or of
    which some have y or split."""
    columns = columns or {}
    paths = list(map(str, paths))
    labels = {labels_of(path) for path in paths} - {''}
    kind = kind or FeatureFile
    found = [kind(path, columns, (*need, *columns)) for path in paths if path not in labels]
    found = [file for file in found if file.rows] or found[:1]  # parts of a table may be empty
    first = found[0]
    if not first.rows:
        raise InputError(f'{first.path}: there are no samples')
    if names is None:
        names = next(
            (file.names for file in sorted(found, key=lambda file: file.path) if file.names), None
        )
    for file in found:
        file.put_in_order(names)
        if file.dim != first.dim:
            raise InputError(
                f'{file.path}: X has {file.dim} features: {first.path} has {first.dim}'
            )
        if {'y', 'split'} & set(file.has) != {'y', 'split'} & set(first.has):
            raise InputError(
                f'{file.path}: it has {", ".join(file.has)}, but {first.path} has '
                f'{", ".join(first.has)}'
            )
        with prefixed(file.path):
            check_kind(file.labels, *(known or (first.labels, f'in {first.path}')))
    return found


class FeatureFile:
    """A file whose form has been read, not its samples.

    Attributes:
        path: what errors call it. rows: N. dim: d. has: those of X, y, id and split that it has.
        names: of the columns that X is made of; None where X is one column, or an array. labels:
        what they
            are, as of `scroll.ground.labels.check_kind`."""

    names = None

    def __init__(self, path: str, columns: dict, need: tuple):
        self.path, self._kind, self._columns = path, kind_of(path), columns
        with self._opened() as source:
            self.has, self.rows, self.dim = tuple(source.has), source.rows, source.dim
            self.names = source.x_names
            self.labels = source.labels
            if not set(need) <= set(self.has):
                wanted = ', '.join(
                    columns.get(name) or '/'.join(NAMES[name]) for name in dict.fromkeys(need)
                )
                other = (
                    'labels of features.npy, X.npy, *_x.npy are in labels.npy, y.npy, *_y.npy next to it'
                    if self._kind == 'npy'
                    else '--columns (of main.py --feature_columns) names others'
                )
                raise InputError(
                    f'expected {wanted}: it has {", ".join(source.names) or "nothing"}; {other}'
                )

    def put_in_order(self, names: tuple | None) -> None:
        """Read the columns of X in the order of these names; InputError if it has others."""
        if names is not None and self.names is not None:
            with prefixed(self.path):
                places(self.names, names)
            self.names = names

    def named(self, X: np.ndarray):
        """Rows of this file, with the names of their columns where they have some."""
        return X if self.names is None else Columns(X, self.names)

    @contextmanager
    def _opened(self):
        """Its reader; whatever goes wrong there is an InputError that names the file."""
        with read_errors(self.path):
            yield self._reader()

    def _reader(self):
        if self._kind != 'parquet':
            return (Arrays if self._kind == 'npz' else Mapped)(self.path, self._columns)
        from scroll.files.parquet import Table

        return Table(self.path, self._columns, self.names)

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """Yield all samples, in the file's order, `size` at once; fewer where they would take more
        than
        `BLOCK_BYTES` as float64. InputError (which sample) for values that are not finite, invalid
        labels
        or splits, or damage."""
        with self._opened() as source:
            start = 0
            for columns in source.blocks(
                max(min(size, limits.BLOCK_BYTES // (8 * source.dim or 1)), 1)
            ):
                with prefixed(f'samples {start} to {start + len(columns["X"]) - 1}'):
                    block = _checked(Block(**columns), start)
                start += len(block.X)
                yield block


def read_blocks(
    files: list, split: str | None = None, size: int = BLOCK, usual: str = 'train'
) -> Iterator[tuple]:
    """Yield (file, `Block`) for the samples of a split ('train', 'test' or 'all'; None: `usual`
    where the files have splits, else all). Without ids samples are numbered through all files.
    Errors as `blocks`."""
    known = 'split' in files[0].has
    split = split or (usual if known else ALL)
    one_of('split', split, (*SPLITS, ALL))
    whole('block size', size, 1)
    if split != ALL and not known:
        raise InputError(f'{files[0].path}: there is no split, so there is no part {split}')
    start = 0
    for file in files:
        for block in file.blocks(size):
            if block.id is None:
                block = block._replace(id=np.arange(start, start + len(block.X)))
            start += len(block.X)
            if split != ALL:
                block = block.part(block.split == split)
            if len(block.X):
                yield file, block


def _checked(block: Block, start: int) -> Block:
    """The block, its labels as `typed_labels` gives them."""
    X, y, names, split = block
    if X.dtype.kind == 'f' and not np.isfinite(X).all():
        row = start + int(np.flatnonzero(~np.isfinite(X).all(axis=1))[0])
        raise InputError(f'X of sample {row} is not finite')
    y = None if y is None else typed_labels(y, len(X))
    if names is not None:
        with prefixed('id'):
            check_labels(names, len(X))
    if split is not None:
        split = np.asarray(split).astype(str)
        wrong = np.flatnonzero(~np.isin(split, SPLITS))
        if len(wrong):
            raise InputError(
                f'split of sample {start + int(wrong[0])} is {shown(str(split[wrong[0]]))}: '
                'expected train or test'
            )
    return Block(X, y, names, split)
