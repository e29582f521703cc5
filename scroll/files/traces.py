"""Where samples that are to be forgotten still are: the files below a folder that hold them, or may.

    python -m scroll unlearn --find FOLDER --samples old.npz

Files are known by what is in them, whatever their names: npz and npy files (states, statistics, feature
caches, arrays of samples), what torch.save wrote (checkpoints), and unfinished copies of these. Pixels,
features on the grid, keys, and entries of a feature cache are found for certain, so a buffer, a cache and a
state with `keep_keys` either hold a sample or do not. Sums and trained weights cannot be searched: a
statistics file, or a state without keys, *may* count a sample if it counts its class; where no backbone is
involved, what cannot be part of the sums is ruled out. A statistics file also says of which parts it was
made: it does hold the samples if all of them together are one part, and does not if they were taken out as
one.
"""
import copy
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from scroll import archive
from scroll.arguments import check_memory, need_torch
from scroll.embedding.cache import cache_keys, keys_in
from scroll.errors import InputError
from scroll.files.statistics import StatisticsFile, part_of, samples_of
from scroll.grid import FLOAT32, PRECISIONS, sample_keys
from scroll.state import KIND, State
from scroll.statistics import Statistics

_SHOWN = 5


class Wanted:
    """Samples to look for, from the files that `python -m scroll unlearn --samples` takes.

    Attributes:
        features: int32 (N, d), by how they are taken in (`scroll.grid.intake`). labels: (N,).
        keys: uint64 (N, 3), of the pixels, where they are known, and of the features.
        cached: uint64 (N,), their keys in feature caches; None unless there are images.
        by_pixels: whether the first keys are of pixels.
    """

    def __init__(self, paths: list, columns: dict = None):
        self._path = paths[0]
        self._samples = {how: samples_of(paths, columns, None, how) for how in PRECISIONS}
        self.features = {how: samples['features'] for how, samples in self._samples.items()}
        samples = self._samples[FLOAT32]
        self.labels = samples['labels']
        self.by_pixels = samples['keys'] is not None
        own = [sample_keys(features.astype(np.int32)) for features in self.features.values()]
        self.keys = np.stack([samples['keys'] if self.by_pixels else own[0], *own], axis=1)
        self.cached = None if samples['images'] is None else cache_keys(self.keys[:, 0], samples['images'])

    def __len__(self) -> int:
        return len(self.labels)

    def digest(self, like: Statistics, precision: str) -> str:
        """Of the statistics of all of them, in the kind of others; '' where they cannot be of that kind."""
        if like.dim != self.features[precision].shape[1]:
            return ''
        return part_of(self._path, self._samples[precision], '', like).statistics.digest()


@dataclass
class Trace:
    """Of one file, bool (N,): which samples it holds, and which it may hold; `what` it is."""
    path: Path
    holds: np.ndarray
    may: np.ndarray
    what: str

    def lines(self) -> list:
        """A line for each verdict."""
        verdicts = (('holds', self.holds), ('may', self.may))
        return [f'{verdict:<5} {self.path}: {which.sum()} of {len(which)} samples, {_listed(which)} '
                f'({self.what})' for verdict, which in verdicts if which.any()]


def look(path: Path, wanted: Wanted):
    """The `Trace` of a file; None if it is of a kind that is not looked into."""
    none, every = np.zeros(len(wanted), bool), np.ones(len(wanted), bool)
    try:
        with open(path, 'rb') as file:
            head = file.read(6)
        check_memory('its content', path.stat().st_size)
        if head == b'\x93NUMPY':
            return _of_array(path, np.load(path, allow_pickle=False), wanted)
        if head[:4] != b'PK\x03\x04':
            return None
        with zipfile.ZipFile(path) as zipped:
            names, size = zipped.namelist(), sum(entry.file_size for entry in zipped.infolist())
        if any(name.endswith('data.pkl') for name in names):
            if size > path.stat().st_size:
                raise ValueError('compressed, which torch does not do')
            held = _held(_tensors(path), wanted)
            return Trace(path, held, ~held, 'file of torch.save: weights and sums cannot be searched')
        if not any(name.endswith('.npy') for name in names):
            return None
        held = _held(archive.arrays_of(path).values(), wanted)
        try:
            holds, may, what = _by_sums(path, wanted)
        except InputError as error:
            holds, may, what = none, every, f'not sound: {str(error)[:100]}'
        return Trace(path, held | holds, may & ~held, what)
    except Exception as error:          # damaged archives raise almost anything
        return Trace(path, none, every, f'cannot be read: {" ".join(str(error).split())[:100]}')


def _of_array(path: Path, array: np.ndarray, wanted: Wanted) -> Trace:
    none = np.zeros(len(wanted), bool)
    held = _held([array], wanted)
    if array.dtype != np.int32 or array.ndim != 2 or array.shape[1] < 3:
        return Trace(path, held, none, 'array')
    held |= _held([array[:, 2:]], wanted)                   # as a feature cache has them: key, then features
    if wanted.cached is None:
        return Trace(path, held, ~held, 'feature cache, known by pixels: give images to look into it')
    return Trace(path, held | np.isin(wanted.cached, keys_in(array)), none, 'feature cache')


def _by_sums(path: Path, wanted: Wanted) -> tuple:
    """What an npz file holds, and may hold, without showing it, both bool (N,), and what the file is."""
    none, kind = np.zeros(len(wanted), bool), archive.kind_of(path)
    if kind == KIND:
        state, known = State.read(path), wanted.by_pixels
        if state.keys is not None and (known or not state.psi):
            return none, none, 'state with keys'
        may = _counted(state, wanted)
        if state.buffer is None or known or not state.psi:
            return none, may, 'state: may be counted in its sums'
        return none, ~none, 'state: may be in its buffer, too; give keys or images'
    if kind.startswith('scroll-statistics-'):
        file = StatisticsFile.read(path)
        times = file.parts.get(wanted.digest(file.statistics, file.precision), 0)
        if times < 0:
            return none, none, 'statistics'
        if times > 0 and min(file.parts.values()) > 0:
            return ~none, none, 'statistics: these samples are one of its parts'
        return none, _counted(file, wanted), 'statistics: may be counted in its sums'
    return none, none, 'arrays'


def _counted(file: State | StatisticsFile, wanted: Wanted) -> np.ndarray:
    """bool (N,): which samples the sums may count: those of its classes that can be part of the sums."""
    statistics, features = file.statistics, wanted.features[file.precision]
    out = np.isin(wanted.labels, statistics.classes)
    if not file.psi and statistics.dim == features.shape[1]:
        for i in np.flatnonzero(out):
            try:
                copy.copy(statistics).remove(features[i:i + 1], wanted.labels[i:i + 1])
            except InputError:
                out[i] = False
    return out


def _held(arrays, wanted: Wanted) -> np.ndarray:
    """bool (N,): which samples are in these arrays, as pixels, as features on the grid, or by their keys."""
    out = np.zeros(len(wanted), bool)
    for array in arrays:
        if array.ndim == 1 and array.dtype.kind in 'iu' and array.dtype.itemsize == 8:
            found = array.view(np.uint64)
        elif array.ndim >= 2 and array.dtype in (np.uint8, np.int32) and array.size:
            found = sample_keys(array)
            if array.ndim == 4 and array.shape[1] in (1, 3):            # networks have the channels first
                found = np.concatenate([found, sample_keys(array.transpose(0, 2, 3, 1))])
        else:
            continue
        out |= np.isin(wanted.keys, found).any(axis=1)
    return out


def _tensors(path: Path) -> list:
    """All tensors in what torch.save wrote, as arrays; no code in it is run."""
    need_torch('looking into files of torch.save')
    import torch
    kinds = torch.uint8, torch.int32, torch.int64, torch.uint64
    waiting, out = [torch.load(path, map_location='cpu', weights_only=True)], []
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, dict):
            waiting += [*thing.keys(), *thing.values()]
        elif isinstance(thing, (list, tuple)):
            waiting += thing
        elif isinstance(thing, torch.Tensor) and thing.dtype in kinds:
            out.append(thing.numpy())
    return out


def _listed(which: np.ndarray) -> str:
    at = np.flatnonzero(which)
    more = f' and {len(at) - _SHOWN} more' * (len(at) > _SHOWN)
    return f"at {', '.join(map(str, at[:_SHOWN].tolist()))}{more}"


def find(folder, paths: list, columns: dict = None) -> bool:
    """Print each file below a folder that holds, or may hold, samples of `paths`; whether any does.

    Raises:
        InputError: there is no such folder, or `paths` are not files of samples.
    """
    if not Path(folder).is_dir():
        raise InputError(f'--find {folder}: there is no such folder')
    wanted, looked, others, counts = Wanted(paths, columns), 0, 0, [0, 0]
    for file in sorted(path for path in Path(folder).rglob('*') if path.is_file()):
        trace = look(file, wanted)
        looked, others = looked + (trace is not None), others + (trace is None)
        for line in trace.lines() if trace else []:
            print(line)
            counts[line.startswith('may')] += 1
    print(f'{looked} files looked into: {counts[0]} hold samples, {counts[1]} may; {others} of other kinds '
          'were not')
    return any(counts)
