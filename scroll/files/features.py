"""Files of features: npz, npy, safetensors, torch and Parquet files, read one block after the
other.

    X      numbers (N, d): embeddings of anything; each becomes a unit vector on the grid
    y      labels (N,), all integers, all text, or True and False
    id     names of samples (N,), integers or text
    split  'train' or 'test' (N,)

An npz file has arrays of these names, and needs X alone; so has a safetensors file, or a dict of
tensors that `torch.save` wrote. `features.npy` (or `X.npy`) is X, and `labels.npy` (`y.npy`) next
to it y. In a Parquet file (which needs pyarrow) X is a column of lists or, as a pattern like
`X=f*`, all columns of numbers that match, in the order of the first file, by path, or of the
learner; no more of it is in memory than a block (or row group). Names that it has of the integers
of y (ClassLabel of Hugging Face's `datasets`) are the labels. Also x, features, embedding(s) are X,
and label(s), target(s) y; other names: `X=pooled,y=species`. `where=language=en` takes the rows
with this value of a column, and counts samples among these. The first bytes of a file say its kind.
Nothing in a file is run.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from scroll.files.arrays import NAMES, Arrays, kind_of, labels_of
from scroll.ground.archive import read_errors
from scroll.ground.arguments import one_of, shown
from scroll.ground.errors import InputError, prefixed
from scroll.ground.labels import check_kind, check_labels, typed_labels
from scroll.ground.tables import Columns, places

BLOCK_BYTES = 1 << 27  # of the samples that are in memory at once, as float64
SPLITS = ('train', 'test')
ALL = 'all'


class Block(NamedTuple):
    """Some samples: X (n, d), finite; y, id, split (n,), or None where the file has none."""

    X: np.ndarray
    y: np.ndarray | None = None
    id: np.ndarray | None = None
    split: np.ndarray | None = None

    def part(self, at) -> 'Block':
        """Return the samples at these positions, or of this mask."""
        return Block(self.X[at], *(None if column is None else column[at] for column in self[1:]))


class FeatureFile:
    """A file whose form has been read, not its samples.

    Attributes:
        path: its name in errors.
        rows: N.
        dim: d.
        has: those of X, y, id and split that it has.
        names: names of the columns of X; None where X is one column, or an array.
        labels: kind of labels, as of `scroll.ground.labels.check_kind`.
    """

    block = 1 << 13  # samples that are read at once
    names: tuple | None = None

    def __init__(self, path: str, columns: dict, need: tuple):
        self.path = path
        self._kind = kind_of(path)
        self._columns = columns
        with read_errors(path):
            source = self._reader()
            self.has = tuple(source.has)
            self.rows = source.rows
            self.dim = source.dim
            self.names = source.x_names
            self.labels = source.labels
            if not set(need) <= set(self.has):
                expected = [columns.get(name) or '/'.join(NAMES[name]) for name in need]
                hint = '--columns (of main.py --feature_columns) names others'
                if self._kind == 'npy':
                    hint = (
                        'labels of features.npy, X.npy, *_x.npy are in labels.npy, y.npy, *_y.npy '
                        'next to it'
                    )
                raise InputError(
                    f'expected {", ".join(dict.fromkeys(expected))}: it has '
                    f'{", ".join(source.names) or "nothing"}; {hint}'
                )

    def named(self, X: np.ndarray):
        """Return rows of this file, with the names of their columns where they have some."""
        return X if self.names is None else Columns(X, self.names)

    @property
    def form(self) -> str:
        """Properties that files learned together must share, for errors."""
        has = [name for name in ('y', 'split') if name in self.has]
        return ', '.join([f'X of {self.dim} features', *has])

    def _reader(self):
        if self._kind != 'parquet':
            return Arrays(self.path, self._columns)
        from scroll.files.parquet import Table

        return Table(self.path, self._columns, self.names)

    def blocks(self) -> Iterator[Block]:
        """Yield all samples, in the file's order, `block` at once; fewer where they would take more
        than `BLOCK_BYTES` as float64. Without ids they are numbered. InputError (which sample) for
        values that are not finite, invalid labels or splits, or damage."""
        with read_errors(self.path):
            source = self._reader()
            size = max(min(self.block, BLOCK_BYTES // (8 * source.dim or 1)), 1)
            start = 0
            for columns in source.blocks(size):
                end = start + len(columns['X'])
                with prefixed(f'samples {start} to {end - 1}'):
                    block = _checked(Block(**{'id': np.arange(start, end)} | columns), start)
                start = end
                yield block


def open_files(
    paths,
    columns: dict | None = None,
    need: tuple = ('X',),
    names: tuple | None = None,
    reference: tuple | None = None,
    kind: type[FeatureFile] = FeatureFile,
) -> list[FeatureFile]:
    """Open files.

    Args:
        paths: files; those of labels that belong to another one are left out.
        columns: other names of columns, by 'X', 'y', 'id' and 'split'; 'where' is
            '<column>=<value>': only rows whose value, as `str` gives it, is this one are samples.
        need: the columns that each file must have.
        names: names of the columns of X, in order; None: those of the first file, by path.
        reference: labels to agree with, and where they are; None: those of the first file.
        kind: a subclass of `FeatureFile`.

    Files without samples are left out; if all are, the first stays.

    InputError: there is no such file, it is of another kind, damaged, or lacks a column; or files
    differ in their number of features, kind of labels, or only some have y or split."""
    columns = columns or {}
    paths = list(map(str, paths))
    labels = {labels_of(path) for path in paths} - {''}
    files = [kind(path, columns, (*need, *columns)) for path in paths if path not in labels]
    files = [file for file in files if file.rows] or files[:1]  # parts of a table may be empty
    first = files[0]
    if names is None:
        by_path = sorted(files, key=lambda file: file.path)
        names = next((file.names for file in by_path if file.names), None)
    for file in files:
        if names is not None and file.names is not None:
            with prefixed(file.path):
                places(file.names, names)
            file.names = names
        if file.form != first.form:
            raise InputError(f'{file.path}: it has {file.form}, but {first.path} has {first.form}')
        if 'y' not in file.has:
            continue
        with prefixed(file.path):
            check_kind(file.labels, *(reference or (first.labels, f'in {first.path}')))
    return files


def read_blocks(
    files: list, split: str | None = None, usual: str = 'train'
) -> Iterator[tuple[FeatureFile, Block]]:
    """Yield each file with blocks of its samples of a split ('train', 'test' or 'all'; None:
    `usual` where the files have splits, else all). Without ids samples are numbered through all
    files. Errors as `blocks`."""
    have_splits = 'split' in files[0].has
    split = split or (usual if have_splits else ALL)
    one_of('split', split, (*SPLITS, ALL))
    if split != ALL and not have_splits:
        raise InputError(f'{files[0].path}: there is no split, so there is no part {split}')
    before = 0
    for file in files:
        count = 0
        for every in file.blocks():
            count += len(every.X)
            block = every if 'id' in file.has else every._replace(id=every.id + before)
            if split != ALL:
                block = block.part(block.split == split)
            if len(block.X):
                yield file, block
        before += count


def _checked(block: Block, start: int) -> Block:
    """Return the block, its labels as `typed_labels` gives them; InputError if it is invalid."""
    X, y, names, split = block
    if X.dtype.kind == 'f' and not np.isfinite(X).all():
        row = np.flatnonzero(~np.isfinite(X).all(axis=1))[0]
        raise InputError(f'X of sample {start + row} is not finite')
    y = None if y is None else typed_labels(y, len(X))
    with prefixed('id'):
        check_labels(names, len(X))
    if split is not None:
        split = split.astype(str)
        wrong = np.flatnonzero(~np.isin(split, SPLITS))
        if len(wrong):
            raise InputError(
                f'split of sample {start + wrong[0]} is {shown(str(split[wrong[0]]))}: '
                'expected train or test'
            )
    return Block(X, y, names, split)
