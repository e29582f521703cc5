"""Images -> unit-length features on a fixed grid; each image's feature is a function of its pixels and psi alone.

A network's output for one image may change in its last bits with the shape of the batch around it. So psi runs on
micro-batches of one fixed shape (the last is padded), in eval mode: the feature then depends on neither neighbours nor
order. It is scaled to unit length in float64 and rounded to a multiple of 2^-18. Features are kept on disk by pixel
digest: the second run over a data set, under any schedule, runs no network. Bits are promised for one kind of hardware
and one version of torch; both are part of the key of the cache.
"""
import copy
import hashlib
import io
import os
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from math import isqrt
from pathlib import Path

import numpy as np
import torch
from torch import nn

from scroll.arguments import instance, on_off, one_of, shown, whole
from scroll.embedding.images import Preprocessing, check_images
from scroll.embedding.integer_network import IntegerNetwork
from scroll.embedding.layout import layout_for
from scroll.embedding.machine import kind_of_machine
from scroll.errors import InputError
from scroll.randomness import torch_stream
from scroll.statistics import GRID, GRID_BITS

DTYPES = ('float32', 'bfloat16', 'integer')


def quantise(features) -> np.ndarray:
    """Unit rows on the grid: 2^18 x / |x| for each row x, each entry rounded to the nearest integer, ties to even.

    What is rounded is the exact quotient: where float64 cannot tell on which side of a tie it lies, integers
    decide. So a row's result is a function of its numbers alone, whatever the layout in memory, the rows beside
    it, or the order in which some machine or version of numpy adds up squares.

    Args:
        features: numbers (N, d), taken as float64. A zero row stays zero.

    Returns:
        int32 (N, d) in units of 2^-18.

    Raises:
        InputError: not a 2-D numeric array, or a value that is not finite (the first such sample is named).
    """
    try:
        features = np.asarray(features)
    except ValueError as error:
        raise InputError(f'features are not a table of numbers: {error}') from error
    if features.ndim != 2 or features.dtype.kind not in 'fiu' or features.shape[1] == 0:
        raise InputError(f'features have shape {features.shape} and dtype {features.dtype}: expected numbers (N, d)')
    features = np.ascontiguousarray(features, np.float64)
    bad = ~np.isfinite(features).all(axis=1)
    if bad.any():
        raise InputError(f'the features of sample {int(np.flatnonzero(bad)[0])} are not finite')
    largest = np.abs(features).max(axis=1, keepdims=True, initial=0)
    scaled = features / np.where(largest > 0, largest, 1)       # so that squares neither overflow nor vanish
    norm = np.sqrt((scaled * scaled).sum(axis=1, keepdims=True))
    scaled /= np.where(norm > 0, norm, 1)
    scaled *= GRID
    out = np.rint(scaled)
    # d / 2 + 4 roundings by 2^-53 of at most 2^18 lie between `scaled` and the exact quotient: allow for twice that
    unsure = np.abs(scaled - out) > 0.5 - (features.shape[1] + 8) * 2.0 ** (GRID_BITS - 53)
    for row in np.flatnonzero(unsure.any(axis=1)):
        out[row, unsure[row]] = _rounded_quotients(features[row].tolist(), np.flatnonzero(unsure[row]))
    return out.astype(np.int32)


def _rounded_quotients(x: list, columns) -> list:
    """Entries of 2^18 x / |x|, rounded exactly; ties to even. x: floats, not all zero."""
    x = [int(Fraction(value) * (1 << 1074)) for value in x]     # every float64 is a multiple of 2^-1074
    squares, out = sum(value * value for value in x), []
    for value in (x[column] for column in columns):
        square = (value << GRID_BITS + 1) ** 2
        twice = isqrt(square // squares)                    # floor(2 t), t the absolute value of the quotient
        nearest = (twice + 1) // 2
        if twice * twice * squares == square:               # 2 t is an integer: with an odd one t is a tie
            nearest -= twice % 2 and nearest % 2
        out.append(nearest if value >= 0 else -nearest)
    return out


def check_quantised(features, dim: int = None) -> None:
    """InputError unless features are what `quantise` gives: integers (N, d), each row zero or, to its rounding, of length
    2^18. dim: d, if it is known."""
    features = np.asarray(features)
    if features.ndim != 2 or features.shape[1] != (dim or features.shape[1]) or features.dtype.kind not in 'iu':
        raise InputError(f'features have shape {features.shape} and dtype {features.dtype}: '
                         f'expected integers (N, {dim or "d"})')
    exact = features.astype(np.float64)
    length = np.sqrt(np.einsum('nd,nd->n', exact, exact))
    far = np.abs(length - GRID) > 0.5 * features.shape[1] ** 0.5 + 0.01
    wrong = far & (length > 0) | (np.abs(exact).max(axis=1, initial=0) > GRID)
    if wrong.any():
        first = int(np.flatnonzero(wrong)[0])
        raise InputError(f'the feature of sample {first} has length {length[first] / GRID:.6g}: expected unit length '
                         f'on a grid of 2^-{GRID_BITS}, as quantise gives it')


def sample_keys(samples: np.ndarray) -> np.ndarray:
    """uint64 (N,): the first eight bytes of the SHA-256 of each sample's bytes; equal samples have equal keys."""
    samples = np.ascontiguousarray(samples)
    size = samples[0].nbytes if len(samples) else 0
    view = memoryview(samples).cast('B') if size else b''
    digests = b''.join(hashlib.sha256(view[i * size:(i + 1) * size]).digest()[:8] for i in range(len(samples)))
    return np.frombuffer(digests, '>u8').astype(np.uint64)


class Embedder:
    """psi: uint8 images -> quantised unit features.

    Args:
        net: has `features(x)`, (B, 3, H, W) -> (B, d). It is copied, and batch norms are folded in the copy that runs.
        preprocessing: what the network expects of its input.
        dtype: 'float32', 'bfloat16' (autocast), or 'integer': features of `integers`, which are the same on every machine.
        device: where it runs.
        chunk: images per micro-batch; part of the definition of a feature.
        channels_last: memory layout of the network, where that is sound for it (`scroll.embedding.layout`).
        cache: a folder for features on disk, or None.
        integers: the integer network made from `net` (`quantisation`); of dtype 'integer' alone. What is adapted is `net`.

    Attributes:
        digest: hex SHA-256 of all that determines the bits of a feature, but for the pixels: psi and input; in floating point
            the machine, too.
        psi_digest: hex SHA-256 of the tensors of `pristine`, the same on any machine.
        dim: d.
        pristine: a copy of `net` as it was given; nothing changes it.
    """

    def __init__(self, net: nn.Module, preprocessing: Preprocessing, dtype: str = 'float32', device='cpu',
                 chunk: int = 64, channels_last: bool = True, cache=None, integers: IntegerNetwork = None):
        if not isinstance(net, nn.Module) or not callable(getattr(net, 'features', None)):
            raise InputError(f'net of type {type(net).__name__}: expected a torch module with features(x)')
        instance('preprocessing', preprocessing, Preprocessing)
        one_of('dtype', dtype, DTYPES)
        if (dtype == 'integer') != isinstance(integers, IntegerNetwork):
            raise InputError(f"dtype {dtype!r} with integers of type {type(integers).__name__}: 'integer' needs an "
                             'IntegerNetwork, the others take none')
        whole('chunk', chunk, 1)
        on_off('channels_last', channels_last)
        if cache is not None and not isinstance(cache, (str, os.PathLike)):
            raise InputError(f'cache {shown(cache)}: expected a folder, or None')
        try:
            device = torch.device(device)
        except (RuntimeError, TypeError, ValueError) as error:
            raise InputError(f'device {shown(device)}: expected cpu, or cuda, or cuda:1') from error
        self.preprocessing, self.dtype, self.device, self.chunk = preprocessing, dtype, device, int(chunk)
        self.layout = layout_for(net) if channels_last else torch.contiguous_format
        self.pristine = copy.deepcopy(net).eval().requires_grad_(False)
        self.net = self.folded if integers is None else copy.deepcopy(integers).to(self.device)
        self.psi_digest = state_digest(self.pristine)
        if integers is None:
            self.dim = self.features(np.zeros((1, 8, 8), np.uint8)).shape[1]
        else:
            self.net.check(self.layout)
            self.dim = integers.dim
        self.digest = self._digest()
        self.cache = None if cache is None else FeatureCache(Path(cache) / self.digest[:16], self.dim)

    @cached_property
    def folded(self) -> nn.Module:
        """`pristine` on the device, batch norms folded: what runs in floating point, and what adapters are put on."""
        net, preprocessing = copy.deepcopy(self.pristine).to(self.device), self.preprocessing
        shape = 2, len(preprocessing.mean), preprocessing.input_size, preprocessing.input_size
        fold_batch_norm(net, torch.randn(shape, generator=torch_stream(0, 'example')).to(self.device))
        return net.to(memory_format=self.layout)

    def _digest(self) -> str:
        if self.dtype == 'integer':
            return self.net.digest()
        return hashlib.sha256(repr((self.psi_digest, repr(self.pristine), self.preprocessing, self.dtype, self.chunk,
                                    str(self.layout), torch.__version__, self.device.type,
                                    kind_of_machine(self.device))).encode()).hexdigest()

    def with_net(self, net: nn.Module) -> 'Embedder':
        """An embedder for another network, otherwise alike, without a cache; in floating point, if this one is in integers."""
        dtype = 'float32' if self.dtype == 'integer' else self.dtype
        return Embedder(net, self.preprocessing, dtype, self.device, self.chunk, self.layout == torch.channels_last)

    def features(self, images) -> np.ndarray:
        """Raw features float32 (N, d) of uint8 images (N, H, W, C), or of ready inputs (N, 3, S, S) if they are float."""
        integer = self.dtype == 'integer'
        if isinstance(images, torch.Tensor) and images.is_floating_point():
            return self._in_chunks(images, self._as_integers if integer else lambda x: x)
        return self._in_chunks(check_images(images), self.net.prepare if integer else self.preprocessing)

    def _as_integers(self, x: torch.Tensor) -> torch.Tensor:
        """Ready inputs, normalised, as the integers that they stand for."""
        return self.net.centred((255 * self.preprocessing.restore(x.double())).float())

    @torch.inference_mode()
    def _in_chunks(self, samples: torch.Tensor, prepare) -> np.ndarray:
        rows = []
        for start in range(0, len(samples), self.chunk):
            x = samples[start:start + self.chunk]
            count = len(x)
            if count < self.chunk:
                x = torch.cat([x, x.new_zeros(self.chunk - count, *x.shape[1:])])
            x = prepare(x.to(self.device)).contiguous(memory_format=self.layout)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == 'bfloat16'):
                rows.append(self.net.features(x)[:count].float().cpu())
        return torch.cat(rows).numpy() if rows else np.zeros((0, self.dim), np.float32)

    def __call__(self, images, progress=None, keep: bool = True) -> tuple:
        """Quantised unit features int32 (N, d) and keys uint64 (N,) of uint8 images; from the cache where it has them.

        `progress`, if given, is called with the number of images done, as they are done. Without `keep` the cache stays as it is.

        Raises:
            InputError: not uint8 images, or psi gives a value that is not finite (the sample is named).
        """
        images = check_images(images)
        keys = sample_keys(images.numpy())
        out = np.empty((len(images), self.dim), np.int32)
        places = cache_places(keys, images)
        missing = np.arange(len(images)) if self.cache is None else self.cache.read(places, out)
        if progress and len(missing) < len(images):
            progress(len(images) - len(missing))
        for start in range(0, len(missing), 16 * self.chunk):
            part = missing[start:start + 16 * self.chunk]
            raw = self.features(images[part])
            bad = part[~np.isfinite(raw).all(axis=1)]
            if len(bad):
                raise InputError(f'psi gives features that are not finite for sample {bad[0]}')
            out[part] = quantise(raw)
            if keep and self.cache is not None:
                self.cache.add(places[part], out[part])
            if progress:
                progress(len(part))
        return out, keys

    def forget(self, images) -> None:
        """Take these images' features out of the cache, in memory and on disk; InputError if its files cannot be changed."""
        if self.cache is not None:
            images = check_images(images)
            self.cache.remove(cache_places(sample_keys(images.numpy()), images))


def cache_places(keys: np.ndarray, images) -> np.ndarray:
    """uint64 (N,): by what a feature cache knows images with these keys. Equal bytes of another shape are another image."""
    return keys ^ sample_keys(np.array([images.shape[1:]], np.int64))[0]


def state_digest(net: nn.Module) -> str:
    """Hex SHA-256 of the names and values of a network's feature extractor (its `classifier` left out)."""
    sha = hashlib.sha256()
    for name, tensor in sorted(net.state_dict().items()):
        if not name.startswith('classifier.'):
            sha.update(name.encode())
            sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()


def fold_batch_norm(net: nn.Module, example: torch.Tensor) -> None:
    """Fold each eval-mode BatchNorm2d that directly follows a Conv2d into it, in place; the rest is left as it is.

    Which follows which is seen in one forward pass of `example`; should the outputs then differ by more than rounding (a
    convolution also read by something else), the network is restored. A folded convolution has the norm's factor (C,) as
    its buffer `gain`.
    """
    made_by, pairs, hooks = {}, [], []
    names = {module: name for name, module in net.named_modules()}

    def note(module, inputs, output):
        if isinstance(module, nn.Conv2d):
            made_by[id(output)] = (module, output)          # the tensor is kept so that its id stays its own
        elif id(inputs[0]) in made_by and module.affine and module.running_var is not None:
            pairs.append((made_by[id(inputs[0])][0], module))

    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.BatchNorm2d)):
            hooks.append(module.register_forward_hook(note))
    with torch.no_grad():
        before = net.features(example)
    for hook in hooks:
        hook.remove()
    originals = []
    for conv, norm in pairs:
        fused = nn.utils.fuse_conv_bn_eval(conv, norm)
        fused.register_buffer('gain', norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps), persistent=False)
        for module, new in ((norm, nn.Identity()), (conv, fused)):
            parent, _, leaf = names[module].rpartition('.')
            originals.append((net.get_submodule(parent), leaf, module))
            setattr(net.get_submodule(parent), leaf, new)
    with torch.no_grad():
        after = net.features(example)
    if not (torch.isfinite(before).all() and torch.allclose(before, after, rtol=1e-3, atol=1e-4 * float(before.abs().max()))):
        for parent, leaf, module in reversed(originals):
            setattr(parent, leaf, module)


class FeatureCache:
    """Quantised features on disk by sample key, in files that are written once and never changed, only replaced (`remove`).

    A file holds an int32 array (n, 2 + d), the key in the first two columns, and is named after its own SHA-256, so a torn
    or altered file is recognised, dropped and made again, and so is one of the right name that holds what `quantise`
    never gives. Processes may share the folder. New features are written every 8,192 samples and by `flush`.
    """
    _FLUSH = 8192

    def __init__(self, folder: Path, dim: int):
        self.folder, self.dim = folder, dim
        self._new = []
        try:
            paths = sorted(folder.glob('*.npy'))
        except OSError:                         # as good as empty; `flush` says so if it stays closed
            paths = []
        tables = [table for path in paths if (table := self._load(path)) is not None]
        self._index(np.concatenate(tables) if tables else np.zeros((0, 2 + dim), np.int32))

    def _load(self, path: Path):
        try:
            table = _table(path)
            if table.shape[1] != 2 + self.dim:
                raise ValueError('it has another shape')
            check_quantised(table[:, 2:], self.dim)
            return table
        except Exception:                       # damaged headers raise almost anything
            with suppress(OSError):             # a folder, or one that is closed to us
                path.unlink()                   # only ever a copy of what can be computed again
            return None

    def _index(self, table: np.ndarray) -> None:
        self._keys, first = np.unique(places_in(table), return_index=True)
        self._features = table[first, 2:]

    def read(self, keys: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Fill the rows of `out` whose key is known; return the positions of the others."""
        if not len(self._keys):
            return np.arange(len(keys))
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        known = self._keys[at] == keys
        out[known] = self._features[at[known]]
        return np.flatnonzero(~known)

    def add(self, keys: np.ndarray, features: np.ndarray) -> None:
        """Take in new features; they reach the disk at the next flush."""
        self._new.append(np.concatenate([keys[:, None].view(np.int32).reshape(-1, 2), features], axis=1))
        if sum(map(len, self._new)) >= self._FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write what is new. A folder that cannot be written is an InputError."""
        if not self._new:
            return
        table = np.concatenate(self._new)
        self._new = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(self.folder, table)
        except OSError as error:
            raise InputError(f'feature cache {self.folder}: {error.strerror}; choose another folder or turn it off '
                             '(main.py: --base_path, --feature_cache 0)') from error
        self._index(np.concatenate([np.concatenate([self._keys[:, None].view(np.int32).reshape(-1, 2), self._features], axis=1),
                                    table]))

    def remove(self, keys: np.ndarray) -> None:
        """Forget these, here and on disk; what other processes hold in memory they keep until they end.

        Raises:
            InputError: a file cannot be replaced. Some of them may have been, then.
        """
        remove_from_files(self.folder, keys)
        self._new = [rows[~np.isin(places_in(rows), keys)] for rows in self._new]
        left = ~np.isin(self._keys, keys)
        self._keys, self._features = self._keys[left], self._features[left]


def remove_from_files(folder, keys: np.ndarray) -> int:
    """Take features out of all feature caches in `folder` and below, whatever psi made them; returns how many.

    A file that has some is replaced by one without them, which is there before the old one goes: processes that read the
    folder at the same time find all others. Damaged files are left to the next cache that reads the folder.

    Raises:
        InputError: a file cannot be replaced. Some of them may have been, then.
    """
    removed = 0
    for path in sorted(Path(folder).rglob('*.npy')):
        try:
            table = _table(path)
        except Exception:                       # damaged headers raise almost anything
            continue
        left = ~np.isin(places_in(table), keys)
        if left.all():
            continue
        try:
            if left.any():
                _write(path.parent, table[left])
            path.unlink(missing_ok=True)
        except OSError as error:
            raise InputError(f'feature cache {path}: features cannot be removed ({error.strerror})') from error
        removed += int((~left).sum())
    return removed


def places_in(table: np.ndarray) -> np.ndarray:
    """uint64 (n,): the keys of a cache's table, int32 (n, 2 + d)."""
    return np.ascontiguousarray(table[:, :2]).view(np.uint64).ravel()


def _table(path: Path) -> np.ndarray:
    """The content of a cache's file, int32 (n, 2 + d); ValueError if it is not what was written."""
    if not path.is_file():                      # a pipe would be read for ever
        raise ValueError('it is no file')
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest()[:32] != path.stem:
        raise ValueError('it does not match its digest')
    table = np.load(io.BytesIO(content), allow_pickle=False)
    if table.dtype != np.int32 or table.ndim != 2 or table.shape[1] < 2:
        raise ValueError('it has another shape')
    return table


def _write(folder: Path, table: np.ndarray) -> None:
    side = folder / f'.{os.getpid()}-{os.urandom(4).hex()}.part'        # other machines count processes, too
    try:
        with open(side, 'wb') as file:
            np.save(file, table)
        os.replace(side, folder / f'{hashlib.sha256(side.read_bytes()).hexdigest()[:32]}.npy')
    finally:
        side.unlink(missing_ok=True)
