"""A convolutional network in integers: the same features, to the last bit, on every machine.

Every activation is an integer of at most eight bits and a sign, every weight one of eight bits, and
sums are bounded (`channel_bound`), so that every partial sum of a convolution is an integer that
float32 holds: order, blocking, threads, batch, memory layout and vector width cannot matter, nor
can TF32, whose factors have eleven bits. On a CPU torch's 8-bit kernels run it (`eight_bit`),
elsewhere float32 convolutions, with the same features. Between these stand a product with a float32
number, rint and a clamp, each a call of its own, so that no compiler can contract them.

Algorithms that transform their input (Winograd, FFT) would break it: they are switched off, and
since a library may choose by shape, outputs of the first and the last image are compared with
float64, which is exact, the first time that a convolution meets inputs of some shape.
`IntegerNetwork.check` does so on built-in images, whose features' digest is in the file.
"""

import hashlib
import json
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from exact_torch.eight_bit import Unsupported
from exact_torch.switches import switches
from scroll.embedding.eight_bit import EightBits
from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_program import ARRAYS, OF_CONV, Op, check_program
from scroll.ground import archive
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, quantise

_FORMAT = 'scroll-integer-2'
# built-in images
_GOLDEN = 8
_GOLDEN_SIZE = 32


def rounded_mean(preprocessing: Preprocessing) -> tuple[int, ...]:
    """The `mean` of an integer network for such images. InputError unless they are prepared as it
    does it.
    """
    size = preprocessing.input_size
    mean = preprocessing.mean
    std = preprocessing.std
    if preprocessing != Preprocessing(size, mean, std) or len(mean) != 3:
        raise InputError(
            f'{preprocessing}: an integer network takes whole colour images, resized by Lanczos'
        )
    return tuple(int(np.rint(255 * value)) for value in mean)


class IntegerNetwork(nn.Module):
    """uint8 images -> integer features.

    program: list of `Op`, the first of kind `input`, the last the features, of `dim` values.
    input_size: pixels. mean: three integers that are taken from the image's channels. golden:
    SHA-256 of the features of the built-in images, or '' where it is not known yet. stages:
    positions of the last map of each stage.
    mirror: features are sums of those of an image and its mirror image.

    Outputs are the values that nothing reads, in their order. Where there are several, or mirror
    images, each is a unit vector on the grid.

    InputError: the program cannot be run exactly, with the layer and the bound."""

    def __init__(
        self,
        program: list,
        input_size: int,
        mean: tuple,
        golden: str = '',
        stages=(),
        mirror: bool = False,
    ):
        super().__init__()
        shapes = check_program(program, input_size, mean)
        self.program = program
        self.input_size = input_size
        self.mean = tuple(map(int, mean))
        self.golden = str(golden)
        self.stages = tuple(map(int, stages))
        self.mirror = mirror
        # False: it is known that they cannot be used
        self.eight_bits: EightBits | Literal[False] | None = None
        self._compared = set()  # kinds of convolutions, with the shapes and places of their inputs
        self.last_use = {read: position for position, op in enumerate(program) for read in op.reads}
        self.outputs = [
            position for position in range(len(program)) if position not in self.last_use
        ]
        self.dim = sum(shapes[position][0] for position in self.outputs)
        for position, op in enumerate(program):
            for name, value in _arrays(op).items():
                tensor = torch.from_numpy(value.astype(np.float32))
                if name == 'multiplier':
                    tensor = tensor.view(1, -1, 1, 1)
                self.register_buffer(f'{name}{position}', tensor, persistent=False)

    def widened(self, stages: tuple, mirror: bool) -> 'IntegerNetwork':
        """Return this network with the features of `scroll.embedding.wide`. InputError: no such
        stage, or a file that does not say where stages end."""
        self.check()
        if any(stage > len(self.stages) for stage in stages):
            raise InputError(
                f'stages {list(stages)}: the integer network knows {len(self.stages)} stages'
            )
        pools = [Op('pool', (self.stages[stage - 1],)) for stage in stages]
        return IntegerNetwork(
            self.program + pools, self.input_size, self.mean, '', self.stages, mirror
        )

    def prepare(self, images: torch.Tensor) -> torch.Tensor:
        """uint8 (B, H, W, C) or grey (B, H, W) -> the integer input, float32 (B, 3, S, S)."""
        return self.centred(Preprocessing(self.input_size).in_double(images).float())

    def centred(self, images: torch.Tensor) -> torch.Tensor:
        """float32 (B, 3, S, S), 0 to 255, rounded, less the mean."""
        mean = torch.tensor(self.mean, dtype=torch.float32, device=images.device).view(1, 3, 1, 1)
        return images.round().clamp_(0, 255).sub_(mean)

    def __getstate__(self) -> dict:
        # what the kernels hold cannot be copied; another thread may add to what was compared
        return self.__dict__ | {'eight_bits': None, '_compared': set(self._compared)}

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Integers (B, d), float32, of a prepared input; InputError where it has another size, or
        this machine does not compute convolutions as sums."""
        if x.shape[1:] != (3, self.input_size, self.input_size):
            raise InputError(
                f'an input of the shape {tuple(x.shape)}: the integer network takes images of '
                f'{self.input_size} pixels'
            )
        parts = self._sums(x)
        if self.mirror:
            parts = [one.double() + other for one, other in zip(parts, self._sums(x.flip(3)))]
        if len(parts) == 1 and not self.mirror:
            return parts[0]
        return torch.cat([_unit(part) for part in parts], dim=1)

    def _sums(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The outputs, each (B, C)."""
        # no convolutions that transform their input
        with switches(
            ieee=x.device.type == 'cuda', nnpack=False, benchmark=False, deterministic=True
        ):
            on_cpu = x.device.type == 'cpu' and x.dtype == torch.float32
            wanted = on_cpu and not torch.compiler.is_compiling()
            if wanted and self.eight_bits is not False:
                try:
                    self.eight_bits = self.eight_bits or EightBits(self)
                    return self._outputs(x, self.eight_bits.run)
                except (Unsupported, RuntimeError):  # of kernels that torch may lack
                    self.eight_bits = False
            return self._outputs(x, self.run)

    def _outputs(self, x: torch.Tensor, run) -> list:
        values = []
        for position, op in enumerate(self.program):
            values.append(run(position, op, [values[read] for read in op.reads] or [x]))
            for read in op.reads:
                if self.last_use[read] == position:
                    values[read] = None
        return [values[position] for position in self.outputs]

    def run(self, position: int, op: Op, inputs: list) -> torch.Tensor:
        """The value of one operation of the program."""
        x = inputs[0]
        if op.kind == 'input':
            return x
        if op.kind == 'conv':
            out = self._convolved(x, position, op)
            if not torch.compiler.is_compiling():  # there are no numbers to compare
                self._compare(position, op, x, out)
            return self._requantise(out, position, op, *inputs[1:])
        if op.kind == 'pad':
            return F.pad(x, op.options['amounts'])
        return x.sum(dim=(2, 3))

    def _convolved(self, x: torch.Tensor, position: int, op: Op) -> torch.Tensor:
        weight, bias = (getattr(self, f'{name}{position}').to(x) for name in ('weight', 'bias'))
        return F.conv2d(x, weight, bias, *(op.options[name] for name in OF_CONV))

    def _compare(self, position: int, op: Op, x: torch.Tensor, out: torch.Tensor) -> None:
        """Raise InputError unless outputs are exact, where such a convolution has not met such
        inputs before.
        """
        kind = json.dumps([op.weight.shape, op.options, x.shape, x.stride(), str(x.device)])
        if kind in self._compared or not len(x):
            return
        ends = [0, -1]
        exact = self._convolved(x[ends].cpu().double(), position, op).round()
        if not torch.equal(out[ends].cpu().double(), exact):
            raise InputError(
                f'layer {position} of the integer network gives other numbers than the sums of '
                'integers on this machine: use another device'
            )
        self._compared.add(kind)

    def exactly(self, position: int, op: Op, inputs: list) -> torch.Tensor:
        """The value of a convolution whose sums are computed in float64, of float64 integers."""
        out = self._convolved(inputs[0], position, op).round().float()
        return self._requantise(out, position, op, *[value.float() for value in inputs[1:]])

    def _requantise(
        self, x: torch.Tensor, position: int, op: Op, other: torch.Tensor | None = None
    ) -> torch.Tensor:
        """clamp(rint(x * multiplier + other * ratio)), in the memory of x."""
        factor = getattr(self, f'multiplier{position}')
        if torch.compiler.is_compiling():  # the same product, which no runtime can contract
            x = (x.double() * factor.double()).float()
        else:
            x = x.mul_(factor)
        x = x if other is None else x.add_(other * op.options['ratio'])
        return x.round_().clamp_(op.low, op.high)

    @torch.inference_mode()
    def check(self, layout: torch.memory_format = torch.channels_last) -> str:
        """The digest of the built-in images' features; InputError where a layer, or they, differ on
        this machine from what integers give."""
        self._compared.clear()
        images = torch.from_numpy(golden_images()).to(next(self.buffers()).device)
        try:
            features = self.features(self.prepare(images).contiguous(memory_format=layout))
        except (MemoryError, RuntimeError) as error:
            raise InputError(
                f'this integer network cannot be run ({type(error).__name__})'
            ) from error
        digest = hashlib.sha256(features.cpu().numpy().astype('<i8').tobytes()).hexdigest()
        if self.golden and digest != self.golden:
            raise InputError(
                f'the integer network gives other features of the built-in images here '
                f'({digest[:16]}) than its file says ({self.golden[:16]}): this machine does '
                'not compute it exactly'
            )
        return digest

    def digest(self) -> str:
        """SHA-256 of all that determines its features: program, numbers, input."""
        facts = [_FORMAT, self.input_size, self.mean]
        if self.mirror:
            facts.append('mirror')
        sha = hashlib.sha256(json.dumps(facts).encode())
        for op in self.program:
            sha.update(json.dumps(_settings(op), sort_keys=True).encode())
            for name, value in _arrays(op).items():
                sha.update(json.dumps([name, value.shape]).encode())
                sha.update(np.ascontiguousarray(value, ARRAYS[name]).tobytes())
        return sha.hexdigest()

    def save(self, path, about: dict) -> None:
        """Write program, numbers, golden digest and facts about where it comes from, whatever JSON
        holds, to
        `path` (npz, no pickles), whole or not at all."""
        arrays = {
            f'{name}{position}': value
            for position, op in enumerate(self.program)
            for name, value in _arrays(op).items()
        }
        facts = {
            'program': [_settings(op) for op in self.program],
            'input_size': self.input_size,
            'mean': self.mean,
            'golden': self.golden,
            'stages': self.stages,
            'mirror': self.mirror,
            'about': about,
        }
        archive.write(path, _FORMAT, facts, arrays)

    @classmethod
    def load(cls, path) -> tuple['IntegerNetwork', dict]:
        """(network, about) that `save` wrote; its bounds are checked again. Runs no code from the
        file.
        InputError: there is no such file, it is damaged or something else, or it cannot be run
        exactly."""
        facts, arrays = archive.read(path, _FORMAT)
        with archive.read_errors(path):
            program = []
            for position, (kind, reads, low, high, options) in enumerate(facts['program']):
                numbers = {name: arrays.get(f'{name}{position}') for name in ARRAYS}
                program.append(Op(kind, tuple(reads), low, high, options, **numbers))
            settings = facts['input_size'], facts['mean'], facts['golden']
            wide = facts.get('stages', ()), facts.get('mirror', False)
            network = cls(program, *settings, *wide)
            return network, dict(facts['about'])


def _settings(op: Op) -> list:
    """An operation without its arrays, as digests and files have it."""
    return [op.kind, op.reads, op.low, op.high, op.options]


def _arrays(op: Op) -> dict:
    """The arrays that an operation has, by name."""
    return {name: getattr(op, name) for name in ARRAYS if getattr(op, name) is not None}


class OnGrid(nn.Module):
    """Vectors (N, d) -> whole multiples of 2^-18, float64, as `scroll.ground.grid.quantise`, but
    for quotients that are no tie and nearer to one than float64 can tell: fewer than one in 10^7,
    which may be a unit off."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.where(x.abs() < torch.finfo(x.dtype).tiny, 0.0, x)
        if x.dtype == torch.float64:  # squares could overflow, or vanish
            largest = x.abs().amax(dim=1, keepdim=True)
            x = x / torch.where(largest > 0, largest, 1.0)
        x = x.double()  # float32's squares are exact, so are ties
        norm = (x * x).sum(dim=1, keepdim=True).sqrt()
        return torch.round(x / torch.where(norm > 0, norm, 1.0) * GRID)


def _unit(part: torch.Tensor) -> torch.Tensor:
    """Whole numbers (B, C) -> unit rows on the grid, float32."""
    if torch.compiler.is_compiling():
        return OnGrid()(part).float()
    return torch.from_numpy(quantise(part.double().cpu().numpy())).to(part.device, torch.float32)


def golden_images() -> np.ndarray:
    """Built-in images, uint8 (8, 32, 32, 3), from SHA-256 alone; half of them smooth, as
    photographs are.
    """
    count = _GOLDEN * _GOLDEN_SIZE**2 * 3
    stream = b''.join(
        hashlib.sha256(b'scroll golden images' + i.to_bytes(4, 'little')).digest()
        for i in range(count // 32)
    )
    images = np.frombuffer(stream, np.uint8).reshape(_GOLDEN, _GOLDEN_SIZE, _GOLDEN_SIZE, 3).copy()
    coarse = images[::2, ::8, ::8].astype(np.int64)
    images[::2] = np.repeat(np.repeat(coarse, 8, axis=1), 8, axis=2)
    return images
