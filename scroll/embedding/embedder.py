"""Images -> unit features on a fixed grid; each image's feature depends on its pixels and the
backbone alone.

A network's output for one image may change in its last bits with the shape of the batch around it.
So the backbone runs in eval mode on micro-batches of one fixed shape (the last is padded). Features
are scaled to unit length, rounded to a multiple of 2^-18, and kept on disk by pixel digest. In
floating point their bits hold for one kind of hardware and one version of torch
(`scroll.embedding.machine`).
"""

import copy
import hashlib
import os
import warnings
from contextlib import nullcontext
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from torch import nn

from exact_torch import ARITHMETIC, DIGITS
from scroll.embedding.cache import FeatureCache, cache_keys
from scroll.embedding.exact import exact_arithmetic
from scroll.embedding.images import Preprocessing, check_images
from scroll.embedding.integer_network import IntegerNetwork, rounded_mean
from scroll.embedding.machine import describe_machine, layout_for, versions
from scroll.embedding.program import built_in_images, identify_program, tensor_bytes
from scroll.embedding.transforms import DRAWN
from scroll.embedding.wide import WideNetwork, check_stages
from scroll.ground.arguments import instance, on_off, one_of, shown, whole
from scroll.ground.errors import InputError
from scroll.ground.grid import little_endian, quantise, sample_keys
from scroll.ground.randomness import torch_stream

DTYPES = ('float32', 'bfloat16', 'integer', 'exact')
MACHINE_INDEPENDENT = 'integer', 'exact'  # their features are the same on every machine
_NET_ERRORS = ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError
_NUMBERS = 1 << 23  # of large images, resized at once in float64: 64 MB
_PROCESS = uuid4().hex  # a process may have the number of an earlier one


class Embedder:
    """A backbone: uint8 images -> quantised unit features. InputError for invalid arguments.

    Args:
        net: has `features(x)`, (B, 3, H, W) -> (B, d). It is copied, and batch norms are folded in
            the copy that runs. What is adapted is `net`.
        preprocessing: what the network expects of its input.
        dtype: 'float32'; 'bfloat16' (autocast); 'integer': features of `integers`; 'exact': those
            of `net` in the arithmetic of `exact_torch`, in float32 or, where the network is in
            float64, in that. The last two are the same on every machine.
        device: where it runs.
        chunk: images per micro-batch; part of the definition of a feature, unless it is exact.
        channels_last: memory layout of the network, where that is sound for it
            (`scroll.embedding.machine`).
        cache: a folder for features on disk, or None. New ones reach it by `flush`, which
            `Scroll.save` calls, and every 8,192.
        integers: the integer network made from `net` (`scroll.embedding.quantisation`).
        stages, mirror: features of these stages, too, and of mirror images
            (`scroll.embedding.wide`).

    Attributes:
        digest: hex SHA-256 of all that determines the bits of a feature, except the pixels: the
            calls of torch that the network makes with all their constants
            (`scroll.embedding.program`); in floating point the machine, too.
        psi_digest: of the tensors of `pristine`, the same on any machine.
        unidentified: why these calls cannot be known, or ''. If they cannot, the digest is that of
            no other embedder, features are not cached, and none are made in another process.
        valid_on: the machines on which features have the same bits, and what is computed from them
            up to f_T.
        dim: d.
        pristine: a copy of `net` as it was given; nothing changes it."""

    def __init__(
        self,
        net: nn.Module,
        preprocessing: Preprocessing,
        dtype: str = 'float32',
        device: torch.device | str = 'cpu',
        chunk: int = 64,
        channels_last: bool = True,
        cache: str | os.PathLike | None = None,
        integers: IntegerNetwork | None = None,
        stages: tuple = (),
        mirror: bool = False,
    ):
        _check_network(net, preprocessing, dtype, integers)
        whole('chunk', chunk, 1)
        on_off('channels_last', channels_last)
        if not isinstance(cache, (str, os.PathLike, type(None))):
            raise InputError(f'cache {shown(cache)}: expected a folder, or None')
        stages = check_stages(stages)
        on_off('mirror', mirror)
        if stages or mirror:
            net = WideNetwork(net, stages, mirror)
            integers = integers and integers.widened(stages, mirror)
        self.device = _usable_device(device)
        self.preprocessing = preprocessing
        self.dtype = dtype
        self.chunk = int(chunk)
        channels_last = channels_last and dtype != 'exact'  # whose products it would slow down
        # pickles of a `memory_format` cannot always be read
        vars(self)['layout'] = channels_last and layout_for(net) == torch.channels_last
        examples = self._set_network(net, integers)
        self.valid_on = self._environment()
        self.digest = self._digest(examples)
        if self.unidentified:
            warnings.warn(
                f'{type(net).__name__}: it cannot be known what it computes: '
                f'{self.unidentified}; its features are not cached, and do not merge with those '
                'of another embedder',
                stacklevel=2,
            )
        self.cache = None
        if cache is not None and not self.unidentified:
            self.cache = FeatureCache(Path(cache) / self._cache_name(), self.dim)

    def _set_network(self, net: nn.Module, integers: IntegerNetwork | None) -> list[torch.Tensor]:
        """Copy the network and identify its program; return features of built-in images."""
        self.net: Any  # a module with `features`
        self._identified_in = {_process_and_defaults()}
        try:
            self.pristine: Any = copy.deepcopy(net).eval().requires_grad_(False)
            numbers = self.pristine.state_dict().values()
            self._fast = all(part.dtype != torch.float64 for part in numbers)
            self.psi_digest = state_digest(self.pristine)
            if integers is None:
                in_float64 = self.dtype == 'exact' and not self._fast
                self.net = self._unfolded() if in_float64 else self.folded
                self._program, self.unidentified, examples = self._identify()
                _, self.dim = examples[0].shape
                return examples
        except InputError:
            raise
        except _NET_ERRORS as error:
            raise InputError(
                f'net of type {type(net).__name__} makes no features (N, d) of images as '
                f'{self.preprocessing} says: {shown(error)}'
            ) from error
        self.net = copy.deepcopy(integers)
        self.net.to(self.device, memory_format=self.layout)
        self.net.check(self.layout)
        self.dim = integers.dim
        self._program = ''
        self.unidentified = ''
        return []

    @torch.inference_mode()
    def _identify(self) -> tuple:
        """Identify the program by single built-in images: a whole chunk may take seconds."""
        inputs = [self.preprocessing(torch.from_numpy(image[None])) for image in built_in_images()]
        return identify_program(self._run, inputs, strides=self.dtype != 'exact')

    def _check_environment(self) -> None:
        """Raise InputError unless features have the bits here that the digest stands for."""
        here = self._environment()
        if here != self.valid_on:
            raise InputError(
                f'its features hold on {self.valid_on}, and here is {here}: make another'
            )
        where = _process_and_defaults()
        if where in self._identified_in or self.dtype == 'integer':
            return
        if self.unidentified or self._identify()[0] != self._program:
            reason = self.unidentified or 'its code reads what is not the same here'
            raise InputError(
                f'{type(self.pristine).__name__} may compute something else in this process, or '
                f'with these defaults of torch: {reason}; make another embedder'
            )
        self._identified_in.add(where)

    @cached_property
    def folded(self) -> nn.Module:
        """`pristine` on the device, batch norms folded: runs in floating point; adapters are put on
        it.
        """
        net = self._unfolded()
        preprocessing = self.preprocessing
        shape = 2, len(preprocessing.mean), preprocessing.input_size, preprocessing.input_size
        example = torch.randn(shape, generator=torch_stream(0, 'example'), **DRAWN)
        exact = self.dtype == 'exact' and self._fast
        with exact_arithmetic(self.device, fast=True) if exact else nullcontext():
            fold_batch_norm(net, example.to(self.device))
        return net.to(memory_format=self.layout)

    @property
    def layout(self) -> torch.memory_format:
        last = vars(self)['layout'] in (True, torch.channels_last)  # before 0.5: the format
        return torch.channels_last if last else torch.contiguous_format

    def _unfolded(self) -> nn.Module:
        return copy.deepcopy(self.pristine).to(self.device)

    def __getstate__(self) -> dict:
        return dict(vars(self))  # as of now: another thread may adapt meanwhile

    def _digest(self, examples: list[torch.Tensor]) -> str:
        """The digest. examples: features of built-in images, in which it shows where a release of
        torch computes a call of the program otherwise."""
        if self.dtype == 'integer':
            return self.net.digest()
        program = self._program or uuid4().hex  # what cannot be known equals nothing
        features = [little_endian(example.numpy()).tobytes() for example in examples]
        facts = self.psi_digest, program, self.preprocessing
        if self.dtype == 'exact':
            facts += DIGITS if self._fast else ARITHMETIC, features
        else:
            layout = str(self.layout)
            device = self.device.type
            facts += features, self.dtype, self.chunk, layout, device, self.valid_on
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def _cache_name(self) -> str:
        """The folder of its features: a digest of all else, too, that may decide over the bits."""
        name = self.digest
        if self.dtype != 'integer':
            others = self.digest, torch.__version__, versions(self.pristine)
            name = hashlib.sha256(repr(others).encode()).hexdigest()
        return name[:16]

    def _environment(self) -> str:
        """The machines and versions that features depend on besides this embedder."""
        if self.dtype in MACHINE_INDEPENDENT:
            return 'this process' if self.unidentified else 'every machine'
        threads = depends_on_threads(self.pristine, self.chunk)
        return f'{describe_machine(self.device, threads)}, {versions(self.pristine)}'

    @classmethod
    def from_timm(
        cls,
        name: str,
        *,
        file=None,
        random: int | None = None,
        img_size: int | None = None,
        **options,
    ) -> 'Embedder':
        """An embedder of any image network of timm, with the preprocessing that timm names for it.

        Args:
            name: as `timm.create_model` takes it, with or without a tag.
            file: a checkpoint for it, in any layout that timm reads; default: the published
                weights, from the local cache of the hub, or the hub.
            random: seed of random weights instead.
            img_size: pixels of images, of networks that are built for one size.
            options: dtype, device, chunk, channels_last, cache, as above; never integers.

        InputError: timm or the weights are missing, or do not fit."""
        from scroll.embedding.libraries import timm_network

        signature(cls).bind(None, None, **options)  # before weights are fetched
        return cls(*timm_network(name, file, random, img_size), **options)

    def with_net(self, net: nn.Module, dtype: str | None = None) -> 'Embedder':
        """An embedder for another network, without a cache, otherwise alike unless a dtype is
        given; never in integers."""
        dtype = dtype or ('float32' if self.dtype == 'integer' else self.dtype)
        channels_last = self.layout == torch.channels_last
        return Embedder(net, self.preprocessing, dtype, self.device, self.chunk, channels_last)

    @torch.inference_mode()
    def features(self, images) -> np.ndarray:
        """Raw features float32 (N, d) of uint8 images (N, H, W, C), or a list of them (H, W, C),
        each of any size, or of inputs (N, 3, S, S), float."""
        self._check_environment()
        if isinstance(images, torch.Tensor) and images.is_floating_point():
            prepare = self._as_integers if self.dtype == 'integer' else torch.Tensor.float
        else:
            prepare = self.net.prepare if self.dtype == 'integer' else self.preprocessing
            if isinstance(images, list):
                images = [_tensor_of(image[None]) for image in images]
            else:
                images = _tensor_of(images)
        rows = []
        for start in range(0, len(images), self.chunk):
            parts = images[start : start + self.chunk]
            if isinstance(parts, torch.Tensor):
                parts = parts.split(max(1, _NUMBERS // max(1, parts[:1].numel())))
            x = torch.cat([prepare(part.to(self.device)) for part in parts])
            count = len(x)
            if count < self.chunk and self.dtype != 'exact':
                x = torch.cat([x, x.new_zeros(self.chunk - count, *x.shape[1:])])
            rows.append(self._run(x)[:count])
        self._check_environment()  # another thread may have changed a switch meanwhile
        return torch.cat(rows).numpy() if rows else np.zeros((0, self.dim), np.float32)

    def _as_integers(self, x: torch.Tensor) -> torch.Tensor:
        """Normalised inputs as the integers that they stand for."""
        mean, std = self.preprocessing.moments(x, torch.float64)
        return self.net.centred((255 * (x.double() * std + mean)).float())

    def _run(self, x: torch.Tensor) -> torch.Tensor:
        """float32 (B, d) on the CPU of ready inputs (B, C, S, S)."""
        x = x.to(self.device).contiguous(memory_format=self.layout)
        if self.dtype == 'exact':
            # of few images at a time: their maps stay in the cache
            arithmetic = exact_arithmetic(self.device, self._fast)
            with arithmetic, torch.autocast(self.device.type, enabled=False):
                numbers = x if self._fast else x.double()
                parts = numbers.split(max(1, _NUMBERS // 8 // x[:1].numel()))
                return torch.cat([self.net.features(part).float().cpu() for part in parts])
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == 'bfloat16'):
            return self.net.features(x).float().cpu()

    def __call__(self, images, progress=None, keep: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Quantised unit features int32 (N, d) and keys uint64 (N,) of uint8 images; cached ones
        are read.

        `progress`, if given, is called with the number of images done, as they are done. Without
        `keep` the cache stays as it is. InputError: not uint8 images, or a feature that is not
        finite, by its sample."""
        images = check_images(images)
        keys = sample_keys(images)
        out = np.empty((len(images), self.dim), np.int32)
        names = cache_keys(keys, images)
        missing = np.arange(len(images)) if self.cache is None else self.cache.read(names, out)
        if progress and len(missing) < len(images):
            progress(len(images) - len(missing))
        for start in range(0, len(missing), 16 * self.chunk):
            part = missing[start : start + 16 * self.chunk]
            raw = self.features(images[part])
            bad = part[~np.isfinite(raw).all(axis=1)]
            if len(bad):
                raise InputError(
                    f'the backbone gives features that are not finite for sample {bad[0]}'
                )
            out[part] = quantise(raw)
            if keep and self.cache is not None:
                self.cache.add(names[part], out[part])
            if progress:
                progress(len(part))
        return out, keys

    def flush(self) -> None:
        """Write the features that the cache holds to disk."""
        if self.cache is not None:
            self.cache.flush()

    def forget(self, images) -> None:
        """Take these images' features out of the cache, also on disk; InputError if that cannot be
        done.
        """
        if self.cache is not None:
            images = check_images(images)
            self.cache.remove(cache_keys(sample_keys(images), images))


def _check_network(net, preprocessing, dtype, integers) -> None:
    """Raise InputError unless the networks, the preprocessing and the dtype go together."""
    if not isinstance(net, nn.Module) or not callable(getattr(net, 'features', None)):
        raise InputError(
            f'net of type {type(net).__name__}: expected a torch module with features(x)'
        )
    instance('preprocessing', preprocessing, Preprocessing)
    one_of('dtype', dtype, DTYPES)
    if (dtype == 'integer') != isinstance(integers, IntegerNetwork):
        raise InputError(
            f"dtype {dtype!r} with integers of type {type(integers).__name__}: 'integer' "
            'needs an IntegerNetwork, the others take none'
        )
    if dtype == 'integer':
        size = integers.input_size
        mean = integers.mean
        if (size, mean) != (preprocessing.input_size, rounded_mean(preprocessing)):
            raise InputError(
                f'integers for images of {size} pixels less {mean}: not for {preprocessing}'
            )


def _usable_device(device: torch.device | str) -> torch.device:
    """The device of this name; InputError if there is none."""
    try:
        device = torch.device(device)
        torch.empty(0, device=device)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise InputError(f'device {shown(device)}: expected cpu, or cuda, or cuda:1') from error
    return device


def _tensor_of(images) -> torch.Tensor:
    """uint8 images as a tensor, without a copy; InputError if they are something else."""
    with warnings.catch_warnings():  # an array that may not be written is only read
        warnings.filterwarnings('ignore', 'The given NumPy array is not writable')
        return torch.from_numpy(check_images(images))


def depends_on_threads(net: nn.Module, chunk: int) -> bool:
    """Return whether the last bits of features may differ with the number of threads.

    Products of matrices are cut by it where a processor has no AVX-512 (torch 2.15). With one,
    torch keeps some convolutions of fewer than 16 images from oneDNN; others were never seen to
    differ."""
    return chunk < 16 or any(
        isinstance(module, nn.Linear)
        for name, module in net.named_modules()
        if not name.startswith('classifier')
    )


def _process_and_defaults() -> tuple[str, int, torch.dtype, str]:
    """The process and defaults of torch, on which the code of a network may depend."""
    return _PROCESS, os.getpid(), torch.get_default_dtype(), str(torch.get_default_device())


def state_digest(net: nn.Module) -> str:
    """Hex SHA-256 of the names and values of a network's feature extractor (its `classifier` left
    out).
    """
    sha = hashlib.sha256()
    renamed = getattr(net, 'RENAMED', {})
    for name, tensor in sorted(net.state_dict().items()):
        if not name.startswith('classifier.'):
            earlier = name  # digests keep to earlier names
            for today, before in renamed.items():
                earlier = earlier.replace(today, before)
            sha.update(earlier.encode())
            sha.update(tensor_bytes(tensor))
    return sha.hexdigest()


def fold_batch_norm(net: Any, example: torch.Tensor) -> None:
    """Fold each eval-mode BatchNorm2d that directly follows a Conv2d into it, in place.

    A forward pass of `example` shows which follows which; should outputs then differ by more than
    rounding (something else reads the convolution, too), the network is restored. A folded
    convolution has the norm's factor (C,) as its buffer `gain`."""
    pairs, before = _convolutions_and_norms(net, example)
    new = {}
    for conv, norm in pairs:
        new[conv], new[norm] = nn.utils.fuse_conv_bn_eval(conv, norm), nn.Identity()
        gain = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
        new[conv].register_buffer('gain', gain, persistent=False)
    places = {
        name: module for name, module in net.named_modules(remove_duplicate=False) if module in new
    }
    for name, module in places.items():
        net.set_submodule(name, new[module])
    with torch.no_grad():
        after = net.features(example)
    slack = 1e-4 * float(before.abs().max())
    near = (before - after).abs() <= slack + 1e-3 * after.abs()
    if not (torch.isfinite(before) & near).all():
        for name, module in places.items():
            net.set_submodule(name, module)


def _convolutions_and_norms(net: Any, example: torch.Tensor) -> tuple[list, torch.Tensor]:
    """(pairs of a convolution and the batch norm that reads its output, features of `example`)."""
    made_by = {}
    pairs = []

    def note(module, inputs, output):
        source, _ = made_by.get(id(inputs[0]) if inputs else 0, (None, None))
        if isinstance(module, nn.Conv2d):
            if not hasattr(module, 'parametrizations'):
                # the tensor is kept so that its id stays its own
                made_by[id(output)] = module, output
        elif source is not None and module.affine and module.running_var is not None:
            pairs.append((source, module))

    hooks = [
        module.register_forward_hook(note)
        for module in net.modules()
        if isinstance(module, (nn.Conv2d, nn.BatchNorm2d))
    ]
    with torch.no_grad():
        features = net.features(example)
    for hook in hooks:
        hook.remove()
    return pairs, features
