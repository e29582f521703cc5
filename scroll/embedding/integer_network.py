"""A convolutional network in integers: the same features, to the last bit, on every machine.

Every activation is an integer of at most eight bits and a sign, every weight one of eight bits, and for each
output channel sum |q| A + |b| <= 2^24 (A: the largest activation, b: the bias). So every partial sum of a
convolution is an integer that float32 holds: order, blocking, threads, batch, memory layout and vector width
cannot matter, nor can TF32, whose factors have eleven bits. Ordinary float32 convolutions run it. Between
them stand one product with a float32 number, rounded as IEEE 754 says, rint and a clamp, each a call of its
own, so that no compiler can contract them.

Algorithms that transform their input (Winograd, FFT) would break it: they are switched off, and since a
library may choose by shape, outputs of the first and the last image are compared with float64, which is
exact, the first time that a convolution meets inputs of some shape. `IntegerNetwork.check` does so on
built-in images, whose features' digest is in the file.

A network is a list of operations, plain data (`scroll.embedding.integer_program`);
`scroll.embedding.quantisation` makes one from a float network.
"""
import hashlib
import json
import struct
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from scroll import archive
from scroll.embedding.integer_program import Op, check_program
from scroll.embedding.transforms import resize
from scroll.errors import InputError

FORMAT = 'scroll-integer-1'
_OF_CONV = ('stride', 'padding', 'dilation', 'groups')
_GOLDEN, _GOLDEN_SIZE = 8, 32       # built-in images
_ARRAYS = dict(weight='|i1', bias='<i4', multiplier='<f4')


class IntegerNetwork(nn.Module):
    """uint8 images -> integer features.

    Args:
        program: list of `Op`, the first of kind `input`, the last the features.
        input_size: pixels. mean: three integers that are taken from the image's channels.
        golden: SHA-256 of the features of the built-in images, or '' where it is not known yet.

    Attributes:
        dim: d, length of a feature.

    InputError: the program cannot be run exactly, with the layer and the bound.
    """

    def __init__(self, program: list, input_size: int, mean: tuple, golden: str = ''):
        super().__init__()
        self.dim = int(np.prod(check_program(program, input_size)))
        self.program, self.input_size = program, input_size
        self.mean, self.golden = tuple(map(int, mean)), golden
        self._compared = set()          # kinds of convolutions, with the shapes and places of their inputs
        self.last_use = {read: position for position, op in enumerate(program) for read in op.reads}
        for position, op in enumerate(program):
            for name in _ARRAYS:
                value = getattr(op, name)
                if value is not None:
                    tensor = torch.from_numpy(value.astype(np.float32))
                    tensor = tensor.view(1, -1, 1, 1) if name == 'multiplier' else tensor
                    self.register_buffer(f'{name}{position}', tensor, persistent=False)

    def prepare(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C) or grey (B, H, W) -> the integer input, float32 (B, 3, S, S), exactly."""
        images = images if images.dim() == 4 else images.unsqueeze(-1)
        images = resize(images.permute(0, 3, 1, 2).double(), self.input_size)
        images = images.expand(-1, 3, -1, -1) if images.shape[1] == 1 else images
        return self.centred(images.float())

    def centred(self, images: torch.Tensor) -> torch.Tensor:
        """float32 (B, 3, S, S), 0 to 255, rounded, less the mean."""
        mean = torch.tensor(self.mean, dtype=torch.float32, device=images.device).view(1, 3, 1, 1)
        return images.round().clamp_(0, 255).sub_(mean)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Integers (B, d), float32, of a prepared input; InputError where a convolution is not computed as a
        sum of integers on this machine."""
        values = []
        with exact_algorithms():
            for position, op in enumerate(self.program):
                values.append(self._run(position, op, [values[read] for read in op.reads] or [x]))
                for read in op.reads:
                    if self.last_use[read] == position:
                        values[read] = None
        return values[-1]

    def _run(self, position: int, op: Op, inputs: list) -> torch.Tensor:
        x = inputs[0]
        if op.kind == 'input':
            return x
        if op.kind == 'conv':
            out = self._convolved(x, position, op)
            if not torch.compiler.is_compiling():           # there are no numbers to compare
                self._compare(position, op, x, out)
            return self._requantise(out, position, op)
        if op.kind == 'scale':
            return self._requantise(x, position, op, in_place=False)
        if op.kind == 'add':
            # every value but the input has memory of its own, and this one may be its last use
            read = op.reads[0]
            free = self.last_use[read] == position and self.program[read].kind != 'input'
            return self._requantise(x.add_(inputs[1]) if free else x + inputs[1], position, op)
        if op.kind == 'pad':
            return F.pad(x, op.options['amounts'])
        return x.sum(dim=(2, 3))

    def _convolved(self, x: torch.Tensor, position: int, op: Op) -> torch.Tensor:
        weight, bias = (self._of(name, position).to(x) for name in ('weight', 'bias'))
        return F.conv2d(x, weight, bias, *(op.options[name] for name in _OF_CONV))

    def _of(self, name: str, position: int):
        return getattr(self, f'{name}{position}')

    def _compare(self, position: int, op: Op, x: torch.Tensor, out: torch.Tensor) -> None:
        """InputError unless outputs are exact, where such a convolution has not met such inputs before."""
        kind, ends = json.dumps([op.weight.shape, op.options, x.shape, x.stride(), str(x.device)]), [0, -1]
        if kind in self._compared or not len(x):
            return
        exact = self._convolved(x[ends].cpu().double(), position, op).round()
        if not torch.equal(out[ends].cpu().double(), exact):
            raise InputError(f'layer {position} of the integer network gives other numbers on this machine '
                             'than the sums of integers: its convolutions are not computed as sums; use '
                             'another device')
        self._compared.add(kind)

    def _requantise(self, x: torch.Tensor, position: int, op: Op, in_place: bool = True) -> torch.Tensor:
        """clamp(rint(x * multiplier))."""
        factor = self._of('multiplier', position)
        if torch.compiler.is_compiling():               # the same product, which no runtime can contract
            x = (x.double() * factor.double()).float()
        else:
            x = x.mul_(factor) if in_place else x * factor
        return x.round_().clamp_(op.low, op.high)

    @torch.inference_mode()
    def check(self, layout: torch.memory_format = torch.channels_last) -> str:
        """The digest of the built-in images' features; InputError where a layer, or they, differ on this
        machine from what integers give."""
        self._compared.clear()
        images = torch.from_numpy(golden_images()).to(next(self.buffers()).device)
        found = self.features(self.prepare(images).contiguous(memory_format=layout))
        digest = hashlib.sha256(found.cpu().numpy().astype('<i8').tobytes()).hexdigest()
        if self.golden and digest != self.golden:
            raise InputError(f'the integer network gives other features of the built-in images here '
                             f'({digest[:16]}) than its file says ({self.golden[:16]}): this machine does '
                             'not compute it exactly')
        return digest

    def digest(self) -> str:
        """SHA-256 of all that determines its features: program, numbers, input."""
        sha = hashlib.sha256(json.dumps([FORMAT, self.input_size, self.mean]).encode())
        for op in self.program:
            sha.update(json.dumps([op.kind, op.reads, op.low, op.high, op.options], sort_keys=True).encode())
            for name, kind in _ARRAYS.items():
                value = getattr(op, name)
                if value is not None:
                    sha.update(json.dumps([name, value.shape]).encode())
                    sha.update(np.ascontiguousarray(value, kind).tobytes())
        return sha.hexdigest()

    def save(self, path, about: dict) -> None:
        """Write program, numbers and golden digest to `path` (npz, no pickles), whole or not at all.

        about: facts about where it comes from, whatever JSON holds.
        """
        program = [[op.kind, op.reads, op.low, op.high, op.options] for op in self.program]
        arrays = {f'{name}{position}': getattr(op, name) for position, op in enumerate(self.program)
                  for name in _ARRAYS if getattr(op, name) is not None}
        facts = dict(program=program, input_size=self.input_size, mean=self.mean, golden=self.golden,
                     about=about)
        archive.write(path, FORMAT, facts, arrays)

    @classmethod
    def load(cls, path) -> tuple:
        """(network, about) that `save` wrote; its bounds are checked again. Runs no code from the file.

        InputError: there is no such file, it is damaged or something else, or it cannot be run exactly.
        """
        facts, arrays = archive.read(path, FORMAT)
        try:
            program = [Op(str(kind), tuple(map(int, reads)), int(low), int(high), dict(options),
                          **{name: arrays.get(f'{name}{position}') for name in _ARRAYS})
                       for position, (kind, reads, low, high, options) in enumerate(facts['program'])]
            network = cls(program, facts['input_size'], facts['mean'], str(facts['golden']))
            return network, dict(facts['about'])
        except InputError as error:
            raise InputError(f'{path}: {error}') from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise InputError(f'{path}: damaged ({" ".join(str(error).split())[:200]})') from error


@contextmanager
def exact_algorithms():
    """Libraries whose convolutions transform their input are left out."""
    with torch.backends.nnpack.flags(enabled=False), \
            torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled, benchmark=False,
                                       deterministic=True, allow_tf32=False):
        yield


def golden_images() -> np.ndarray:
    """uint8 (8, 32, 32, 3): built-in images, from SHA-256 alone; half of them smooth, as photographs are."""
    count = _GOLDEN * _GOLDEN_SIZE ** 2 * 3
    stream = b''.join(hashlib.sha256(b'scroll golden images' + struct.pack('<I', i)).digest()
                      for i in range(count // 32))
    images = np.frombuffer(stream, np.uint8).reshape(_GOLDEN, _GOLDEN_SIZE, _GOLDEN_SIZE, 3).copy()
    coarse = images[::2, ::8, ::8].astype(np.int64)
    images[::2] = np.repeat(np.repeat(coarse, 8, axis=1), 8, axis=2)
    return images
