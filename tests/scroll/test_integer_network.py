"""The integer network: every value an exact integer, whatever computes it; near the float network
that it was made from.
"""

import copy
import functools
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from scroll import Adaptation, Scroll
from scroll.embedding.embedder import Embedder
from scroll.embedding.images import Preprocessing
from scroll.embedding.integer_network import IntegerNetwork, golden_images
from scroll.embedding.integer_program import Op
from scroll.embedding.quantisation import quantise_network
from scroll.ground import archive
from scroll.ground.grid import quantise
from tests.conftest import ROOT, python
from tests.scroll.conftest import refused, threads, tiny_net, toy_images

IMAGES = np.concatenate([golden_images(), toy_images(8, 32)[0]])
PREPROCESSING = Preprocessing(32, (0.48, 0.45, 0.4), (0.25, 0.24, 0.27))


class Mobile(nn.Module):
    """An inverted residual: ReLU6, depthwise convolution, linear bottleneck, one of stride 2 with
    TensorFlow's 'SAME' padding.
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU6())
        self.block = nn.Sequential(
            nn.Conv2d(8, 24, 1, bias=False),
            nn.BatchNorm2d(24),
            nn.ReLU6(),
            nn.Conv2d(24, 24, 3, 1, 1, groups=24),
            nn.BatchNorm2d(24),
            nn.ReLU6(),
            nn.Conv2d(24, 8, 1),
            nn.BatchNorm2d(8),
        )
        self.smaller = nn.Sequential(
            nn.ZeroPad2d((1, 2, 1, 2)),
            nn.Conv2d(8, 8, 5, 2, groups=8, bias=False),
            nn.BatchNorm2d(8),
        )
        self.own = nn.Conv2d(8, 8, 3, 1, 1)
        self.last = nn.Conv2d(8, 16, 1)

    def features(self, x):
        x = self.stem(x)
        x = F.relu6(self.smaller(x + self.block(x)))
        return F.adaptive_avg_pool2d(
            F.relu(self.last(torch.clamp(x + self.own(x), min=0))), 1
        ).flatten(1)


def settled(net) -> nn.Module:
    """In eval mode, with batch norms as after training."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.2, 0.5)  # branches that add little, as trained ones do
                module.bias.normal_(0, 0.2)
        net.train()
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = None  # the mean over batches
        for _ in range(3):
            net.features(PREPROCESSING(torch.from_numpy(IMAGES)))
    return net.eval()


NETWORKS = {'resnet18-md': lambda: tiny_net(width=8), 'mobile': Mobile}


@pytest.fixture(scope='module')
def made():
    """name -> (float network, integer network), made once."""

    @functools.cache
    def make(name):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            net = settled(NETWORKS[name]())
        return net, quantise_network(net, PREPROCESSING, IMAGES)

    return make


def run(network, images=IMAGES, layout=torch.channels_last) -> np.ndarray:
    with torch.inference_mode():
        return network.features(
            network.prepare(torch.from_numpy(images)).contiguous(memory_format=layout)
        ).numpy()


def convolved(x, op) -> np.ndarray:
    """Integer sums (C, H, W) of a convolution, in float64, which holds them."""
    (down, right), (step, _), groups = (op.options[n] for n in ('padding', 'stride', 'groups'))
    x = np.pad(x, ((0, 0), (down, down), (right, right))).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(x, op.weight.shape[2:], (1, 2))
    windows = windows[:, ::step, ::step].reshape(
        groups, op.weight.shape[1], -1, *windows.shape[-2:]
    )
    weight = op.weight.reshape(groups, -1, *op.weight.shape[1:]).astype(np.float64)
    sums = np.einsum('gcpij,gocij->gop', windows, weight, optimize=True)
    height = (x.shape[1] - op.weight.shape[2]) // step + 1
    return sums.reshape(len(op.weight), height, -1) + op.bias[:, None, None]


def reference(network, images) -> np.ndarray:
    """The same features by NumPy, an image at a time, with integers that nothing rounds."""
    out = []
    for image in network.prepare(torch.from_numpy(images)).numpy().astype(np.int64):
        values = []
        for op in network.program:
            x = values[op.reads[0]] if op.reads else image
            if op.kind == 'conv':
                x = convolved(x, op)
                assert np.abs(x).max() <= 1 << 24
                x = x.astype(np.float32) * op.multiplier[:, None, None]
                if op.reads[1:]:  # the sum, too, is rounded once
                    x = x + values[op.reads[1]].astype(np.float32) * np.float32(op.ratio)
                x = np.clip(np.rint(x), op.low, op.high).astype(np.int64)
            elif op.kind == 'pad':
                left, right, top, bottom = op.options['amounts']
                x = np.pad(x, ((0, 0), (top, bottom), (left, right)))
            elif op.kind == 'pool':
                x = x.sum(axis=(1, 2))
            values.append(x)
        out.append(values[-1])
    return np.array(out)


@pytest.mark.parametrize('name', NETWORKS)
def test_every_value_is_what_int64_arithmetic_gives(made, name):
    """Run by 8-bit kernels, where torch has them, and by float32."""
    network = copy.deepcopy(made(name)[1])  # another test may have kept it from 8-bit kernels
    expected = reference(network, IMAGES[:2])
    np.testing.assert_array_equal(run(network, IMAGES[:2]), expected)
    assert bool(network.eight_bits) == torch.backends.mkldnn.enabled
    np.testing.assert_array_equal(run(in_float32(network), IMAGES[:2]), expected)


def in_float32(network) -> IntegerNetwork:
    network = copy.deepcopy(network)
    network.eight_bits = False
    return network


@pytest.mark.parametrize('name', NETWORKS)
def test_features_are_near_those_of_the_float_network(made, name):
    net, network = made(name)
    with torch.no_grad():
        expected = net.features(PREPROCESSING(torch.from_numpy(IMAGES)))
    assert F.cosine_similarity(torch.from_numpy(run(network)), expected).min() > 0.98


@pytest.mark.parametrize('name', NETWORKS)
def test_batch_layout_and_threads_do_not_matter(made, name):
    network = made(name)[1]
    expected = run(network)
    for count, size, layout in ((1, 7, torch.contiguous_format), (2, 32, torch.channels_last)):
        with threads(count):
            parts = [
                run(network, IMAGES[i : i + size], layout) for i in range(0, len(IMAGES), size)
            ]
            np.testing.assert_array_equal(np.concatenate(parts), expected)


OTHER_MACHINE = """
import sys
import torch
torch.backends.mkldnn.enabled = sys.argv[2] == '1'
from scroll.embedding.integer_network import IntegerNetwork
print(IntegerNetwork.load(sys.argv[1])[0].check())
"""


def test_one_digest_on_other_kinds_of_machine(made, tmp_path):
    network = copy.deepcopy(made('resnet18-md')[1])
    network.golden = network.check()
    network.save(tmp_path / 'net.npz', {'source': 'here'})
    assert IntegerNetwork.load(tmp_path / 'net.npz')[1] == {'source': 'here'}
    # AVX2: `make test-avx2`
    for env in (
        {'ATEN_CPU_CAPABILITY': 'default', 'MKL_CBWR': 'COMPATIBLE'},
        {'SCROLL_EIGHT_BIT': '0'},
    ):
        words = '-c', OTHER_MACHINE, tmp_path / 'net.npz', len(env)
        ended = python(*words, cwd=ROOT, env=os.environ | env)
        assert (ended.returncode, ended.stdout) == (0, network.golden + '\n'), ended.stderr[-1000:]


@pytest.mark.parametrize('at_least', [1, 9])
def test_an_algorithm_that_transforms_is_caught(made, monkeypatch, at_least):
    """Sums as Winograd's, in float32: sums that are right but for their last bits. Also one that a
    library takes for large batches only, when the first of them comes."""
    network = in_float32(made('resnet18-md')[1])
    plain = F.conv2d

    def winograd(x, weight, bias, stride, *rest):
        if weight.shape[2:] != (3, 3) or len(x) < at_least:
            return plain(x, weight, bias, stride, *rest)
        thirds = weight / 3
        return plain(x, thirds, bias, stride, *rest) + plain(x, thirds, None, stride, *rest) * 2

    golden = network.check()
    network.golden = 'f' * 64
    with refused('other features of the built-in images'):
        network.check()
    network.golden = golden
    monkeypatch.setattr(F, 'conv2d', winograd)
    with refused('layer .* gives other numbers'):
        network.check()
        run(network)


def conv(weight, bias=0, multiplier=1.0, reads=(0,), low=0, high=255, **options) -> Op:
    """A convolution with these weights (C, C_in, h, w); a bias and a multiplier may be one for
    all."""
    count = len(weight)
    options = {**PLACE, **options}
    bias = np.full(count, bias, np.int32)
    multiplier = np.full(count, multiplier, np.float32)
    return Op('conv', reads, low, high, options, multiplier, weight.astype(np.int8), bias)


PLACE = {'stride': [1, 1], 'padding': [0, 0], 'dilation': [1, 1], 'groups': 1}


def plain(weight=1, channels=8, **more) -> list:
    """An input and a 1x1 convolution."""
    layer = conv(np.full((channels, 3, 1, 1), weight), **more)
    return [Op('input', low=-128, high=255), layer, Op('pool', (1,))]


def promised(random) -> tuple:
    """(program, mean) that quantisation could have written, at the limits of what it promises:
    weights of all signs whose products just fit 16 bits, multipliers of 6 bits, biases that make
    ties."""
    mean = (124, 124, 124) if random.random() < 0.7 else (120, 124, 130)
    program = [Op('input', low=-max(mean), high=255 - min(mean))]
    channels = [3]
    for position in range(1, 5):
        other = int(random.integers(position))
        size = int(random.choice([1, 3]))
        low = int(random.choice([-128, 0]))
        ratio = float(2.0 ** random.integers(-2, 3))
        residual, depthwise = random.random(2) < 0.3
        each, groups = (1, channels[-1]) if depthwise else (channels[-1], 1)
        count = groups if depthwise else int(random.choice([1, 3, 8]))
        if residual:
            count = channels[other] if groups == 1 else count
            residual = channels[other] == count
        signs = random.choice([-1, 1], (count, each, size, size))
        weight = signs * random.choice([1, 8, 64], (count, 1, 1, 1))
        sums = np.abs(weight).sum(axis=(1, 2, 3)) * program[-1].largest
        odd = 2 * random.integers(32, size=count) + 1
        power = 2.0 ** np.rint(random.uniform(-2, 12, count) - np.log2(sums * odd))
        tie = np.where(power > 2.0**-20, 0.5 / power, 0)
        bias = np.rint(tie * (2 * random.integers(-3, 4, count) + 1))
        bias = bias + random.integers(-1, 2, count)
        cut = (512 + 255 * ratio * residual) / odd / power
        reach = np.minimum(sums + abs(bias), cut) + abs(bias)
        odd = np.where(reach * odd > 1 << 24, 1, odd)
        reads = (position - 1, other) if residual else (position - 1,)
        options = {'padding': [size // 2] * 2, 'groups': groups, 'ratio': ratio}
        program.append(conv(weight, bias, odd * power, reads, low, 255 + low, **options))
        channels.append(count)
    return [*program, Op('pool', (4,))], mean


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_a_program_that_keeps_its_promises_has_one_result(seed):
    """Run by 8-bit kernels, by float32 and by int64, in one batch and one by one in another
    order.
    """
    random = np.random.default_rng(seed)
    program, mean = promised(random)
    network = IntegerNetwork(program, 6, mean)
    images = random.choice(np.array([0, 255, 124], np.uint8), (5, 6, 6, 3))
    expected = reference(network, images)
    np.testing.assert_array_equal(run(network, images), expected)
    np.testing.assert_array_equal(
        np.concatenate([run(network, images[[i]]) for i in (4, 3, 2, 1, 0)])[::-1], expected
    )
    np.testing.assert_array_equal(run(in_float32(network), images), expected)


def red(channels) -> np.ndarray:
    """Weights of outputs that are the input's red."""
    return np.tile([[[1]], [[0]], [[0]]], (channels, 1, 1, 1))


def near_a_tie() -> list:
    """0.5 + x 2^-17 of red x: with 128, which kernels add before they round, float32 holds no such
    number.
    """
    return [conv(red(8), 1 << 16, 2.0**-17, low=-128, high=127)]


def large_sums() -> list:
    """100.5 of red 255 and green 254, from a sum that is odd and exceeds 2^24 before 128 is taken
    from each value. It is even for the largest values."""
    first = conv(red(1040), low=-128, high=127)
    weight = np.full((8, 1040, 1, 1), 64)
    first.weight[0, :2, 0, 0], weight[:, :2] = (0, 1), 63
    return [first, conv(weight, 6586368 - (127 * 66495 + 126 * 63), 2.0**-16, (1,))]


@pytest.mark.parametrize(
    'layers, mean, color', [(near_a_tie, 0, (1, 0, 0)), (large_sums, 128, (255, 254, 0))]
)
def test_layers_that_8_bit_kernels_round_otherwise_are_left_to_float32(layers, mean, color):
    """Neither the first nor the last image shows it."""
    layers = layers()
    network = IntegerNetwork(
        [Op('input', low=-mean, high=255 - mean), *layers, Op('pool', (len(layers),))],
        2,
        (mean,) * 3,
    )
    images = np.full((3, 2, 2, 3), mean, np.uint8)
    images[1] = color
    np.testing.assert_array_equal(run(network, images), reference(network, images))


def test_a_sum_is_bounded_by_what_float32_holds():
    """3 * 1 * 255 + |bias| <= 2^24."""
    IntegerNetwork(plain(bias=(1 << 24) - 765), 4, (0, 0, 0))
    IntegerNetwork(plain(bias=765 - (1 << 24)), 4, (0, 0, 0))
    with refused('layer 1 .*sums of up to 2.24'):
        IntegerNetwork(plain(bias=(1 << 24) - 764), 4, (0, 0, 0))
    with refused('layer 2 .*sums over its maps of up to 2.24'):
        IntegerNetwork(plain(), 257, (0, 0, 0))


def chain(*layers) -> list:
    """A plain program with other layers after its convolution, which has three outputs."""
    return [*plain(channels=3)[:2], *layers, Op('pool', (1 + len(layers),))]


def added(**options) -> list:
    return plain(channels=3, reads=(0, 0), **{'ratio': 1.0, **options})


NO_PROGRAM = {
    'no layers': ([], 'an input, which comes first'),
    'no pool': (plain()[:2], 'sums over all maps'),
    'two inputs': (chain(Op('input')), 'an input, which comes first'),
    'a map that nothing reads': (chain(replace(plain()[1], reads=(0,))), 'sums over all maps'),
    'a later layer': (plain(reads=(0, 1)), 'layer 1 .*what it reads 1'),
    'a sum': ([*plain(), Op('pool', (2,))], 'layer 3 .*one map'),
    'three values': (plain(reads=(0, 0, 0)), 'one map, or two'),
    'no such kind': (chain(Op('scale', (1,))), 'scale'),
    'least': (plain(low=1), 'the least of its values 1'),
    'not whole': (plain(high=254.5), 'the largest of its values 254.5'),
    '9 bits': (plain(low=-128), 'the largest of its values 255: .*0 to 127'),
    '5 below': (plain(low=-5), 'values from 0 or from -128'),
    'input': ([Op('input', high=254), *plain()[1:]], 'the largest of its values 254'),
    'pad': (chain(Op('pad', (1,), 0, 1, {'amounts': [0] * 4})), 'the range of what it reads'),
    'cropped away': (chain(Op('pad', (1,), options={'amounts': [-2] * 4})), 'up to 2.28 values'),
    'other channels': (plain(reads=(0, 0), ratio=1.0), 'the same shape'),
    'ratio': (added(ratio=3.0), 'a power of two'),
    'a ratio of True': (added(ratio=True), 'a power of two'),
    'groups': (added(groups=2), 'in 2 groups'),
    'padding': (added(padding=[1 << 15] * 2), 'up to 2.28 values'),
    'pairs': (plain(65), 'two neighbouring channels'),
    '8 bits': (plain(-128), 'weights of up to 127'),
    'negative': (plain(multiplier=-0.5), 'multipliers from 0'),
    'overflow': (plain(multiplier=2.0**65), 'multipliers from 0'),
    'a third': (plain(multiplier=1 / 3), 'multipliers of up to 6 bits'),
    'long products': (plain(multiplier=63 * 2.0**-20, bias=1 << 20), 'products with multipliers'),
}


@pytest.mark.parametrize('broken', NO_PROGRAM)
def test_a_program_that_may_not_be_exact_is_refused(broken):
    program, words = NO_PROGRAM[broken]
    with refused(words):
        IntegerNetwork(program, 4, (0, 0, 0))


class Other(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.last = last

    def features(self, x):
        return self.last(self.conv(x)).mean(dim=(2, 3))


def test_a_layer_that_integers_cannot_do_is_named():
    for layer, words in (
        (nn.SiLU(), 'last: its operation silu'),
        (nn.Hardtanh(), 'last: a clamp from -1'),
        (nn.Conv2d(8, 8, 3, padding='same'), 'last: its operation conv2d'),
        (lambda x: x + 1.0, 'its operation add'),
        (lambda x: torch.add(x, x, alpha=2), 'its operation add'),
        (lambda x: torch.add(*[torch.relu(x)] * 2), 'this sum'),
    ):
        with refused(words):
            quantise_network(Other(layer).eval(), PREPROCESSING, IMAGES[:2])


FORGED = [
    *[('options', name, [-1, -1]) for name in ('dilation', 'groups', 'padding')],
    ('options', 'stride', None),
    ('options', 'stride', [1]),
    ('options', 'stride', [0, 0]),
    ('options', 'dilation', [0, 0]),
    ('options', 'groups', 0),
    ('op', 0, ['conv']),
    ('op', 1, []),
    ('op', 1, [0.5]),
    ('op', 2, None),
    ('arrays', 'weight1', np.int8(3)),
    ('arrays', 'weight1', np.zeros((8, 0, 3, 3), np.int8)),
    ('arrays', 'bias1', np.zeros(3, np.int32)),
    ('arrays', 'multiplier1', np.array(['x'])),
    ('arrays', 'multiplier1', np.full(8, np.nan, np.float32)),
    ('facts', 'input_size', 0),
    ('facts', 'mean', [10**30] * 3),
    ('facts', 'golden', 5),
    ('facts', 'stages', 'abc'),
    ('facts', 'program', [['input']]),
    ('facts', 'about', [1]),
]


@pytest.mark.parametrize('part, name, value', FORGED)
def test_a_forged_file_is_refused_and_ends_no_process(tmp_path, part, name, value):
    """A stride of 0 was a division by zero within the kernels: SIGFPE."""
    path = tmp_path / 'a.npz'
    kind = 'scroll-integer-2'
    IntegerNetwork(plain(), 4, (0, 0, 0)).save(path, {})
    facts, arrays = archive.read(path, kind)
    op = facts['program'][1]
    {'facts': facts, 'arrays': arrays, 'op': op, 'options': op[4]}[part][name] = value
    archive.write(path, kind, facts, arrays)
    with refused('integer network|damaged'):
        IntegerNetwork.load(path)[0].check()


def test_an_embedder_in_integers_promises_no_kind_of_machine(made, tmp_path):
    """Its digest is that of the integers, its features do not depend on the batch, and what is
    adapted is the float network.
    """
    net, network = made('resnet18-md')
    embedder = Embedder(net, PREPROCESSING, 'integer', chunk=7, integers=network, cache=tmp_path)
    other = Embedder(net, PREPROCESSING, 'integer', integers=network)
    assert embedder.digest == network.digest() == other.digest
    u = embedder(IMAGES)[0]
    np.testing.assert_array_equal(u, quantise(run(network)))
    np.testing.assert_array_equal(other(IMAGES[::-1])[0], u[::-1])
    np.testing.assert_array_equal(embedder(IMAGES)[0], u)  # from the cache
    ready = PREPROCESSING(torch.from_numpy(IMAGES))
    np.testing.assert_array_equal(embedder.features(ready), run(network))
    learner = Scroll(embedder, buffer_size=6, adaptation=Adaptation(iterations=2, minibatch=6))
    learner.partial_fit(IMAGES, np.arange(len(IMAGES)) % 3).adapt()
    assert learner.predict(IMAGES).shape == (len(IMAGES),)
    for other in (
        replace(PREPROCESSING, crop=0.9),
        replace(PREPROCESSING, input_size=16),
        replace(PREPROCESSING, mean=(0.5,), std=(0.5,)),
    ):
        with refused('an integer network takes|integers for images of 32 pixels'):
            Embedder(net, other, 'integer', integers=network)
    with refused('an integer network takes'):
        quantise_network(net, replace(PREPROCESSING, crop=0.9), IMAGES)
    for wrong in (
        {'dtype': 'integer'},
        {'dtype': 'float32', 'integers': network},
        {'dtype': 'integer', 'integers': net},
    ):
        with refused('IntegerNetwork'):
            Embedder(net, PREPROCESSING, **wrong)
