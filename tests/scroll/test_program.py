"""Equal digests of embedders are equal features: whatever a network is made of, and whatever torch
is set to.
"""

import contextlib
import copy
import functools
import multiprocessing
import pickle
import threading
import warnings
from concurrent.futures import ProcessPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from backbone import weights
from scroll import Adaptation, Embedder, InputError, Scroll
from tests.scroll.conftest import PREPROCESSING, refused, toy_images

IMAGES, LABELS = toy_images(8)
IMAGES[::2] = np.where(IMAGES[::2] > 80, 255, 0)  # black and white, which activations saturate on


class Clipped(nn.Module):
    """A convolution whose outputs end at a bound, which its code takes from `top`, wherever that
    is.
    """

    def __init__(self, top, take=float):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.take = take
        if isinstance(top, torch.Tensor):
            self.register_buffer('top', top, persistent=False)
        else:
            self.top = top

    def features(self, x):
        return self.conv(x).clamp(max=self.take(self.top)).mean((2, 3))


class Activated(Clipped):
    def features(self, x):
        return self.top(self.conv(x)).mean((2, 3))


class OfClass(Clipped):
    TOP = 5.0

    def features(self, x):
        return self.conv(x).clamp(max=type(self).TOP).mean((2, 3))


class LowerClass(OfClass):
    TOP = 0.9


LowerClass.__name__ = LowerClass.__qualname__ = 'OfClass'
GLOBAL = {'top': 5.0}


class OfModule(Clipped):
    def features(self, x):
        return self.conv(x).clamp(max=GLOBAL['top']).mean((2, 3))


BOUNDS = {  # where a network has its bound -> the network of a bound
    'float': Clipped,
    'numpy float': lambda top: Clipped(np.float32(top)),
    'buffer': lambda top: Clipped(torch.tensor(top)),
    'tensor': lambda top: Clipped([torch.tensor(top)], take=lambda tops: tops[0]),
    'array': lambda top: Clipped(np.array([top]), take=torch.from_numpy),
    'dict': lambda top: Clipped({'top': top}, take=lambda settings: settings['top']),
    'object': lambda top: Clipped(SimpleNamespace(top=top), take=lambda config: config.top),
    'function': lambda top: Clipped(None, take=lambda _: top),
    'partial': lambda top: Clipped(top, take=functools.partial(min, 100)),
    'class': lambda top: OfClass(0) if top == 5 else LowerClass(0),
    'layer': lambda top: Activated(nn.Hardtanh(-top, top)),
    'far layer': lambda top: Activated(nn.Hardtanh(-1.5, 1 + top)),
}


@pytest.mark.parametrize('dtype', ['float32', 'exact'])
@pytest.mark.parametrize('kind', BOUNDS)
def test_a_number_that_reaches_the_features_is_in_the_digest_wherever_it_stands(
    kind, dtype, tmp_path
):
    low, high, again = (
        Embedder(BOUNDS[kind](top), PREPROCESSING, dtype, cache=tmp_path) for top in (0.9, 5.0, 5.0)
    )
    assert again.digest == high.digest != low.digest
    assert not high.unidentified
    if dtype == 'float32':
        wanted = Embedder(BOUNDS[kind](5.0), PREPROCESSING)(IMAGES)[0]
        low(IMAGES)
        low.cache.flush()
        # not what the cache has of the other
        np.testing.assert_array_equal(high(IMAGES)[0], wanted)
        learners = [
            Scroll(embedder).partial_fit(IMAGES[i::2], LABELS[i::2])
            for i, embedder in enumerate((low, high))
        ]
        with refused('backbone or grid mismatch'):
            learners[0].merge(learners[1])


class Projecting(Clipped):
    def features(self, x):
        with torch.random.fork_rng():
            torch.manual_seed(self.top)
            return self.conv(x).mean((2, 3)) @ torch.randn(16, 16)


def test_what_no_call_tells_is_in_the_features_of_built_in_images():
    digests = {Embedder(Projecting(seed), PREPROCESSING).digest for seed in (1, 1, 2)}
    assert len(digests) == 2


def test_what_never_reaches_the_features_is_not_in_the_digest():
    class Renamed(nn.Module):
        def __init__(self, net):
            super().__init__()
            self.first = copy.deepcopy(net.conv)
            self.unused = 7

        def features(self, image):
            map_of_sums = self.first(image)
            return map_of_sums.clamp(max=5.0).mean(dim=(2, 3))

    one = Clipped(5.0)
    other = Clipped(5.0)
    other.note = np.arange(3)
    assert Embedder(one, PREPROCESSING).digest == Embedder(other, PREPROCESSING).digest
    recorded = {Embedder(net, PREPROCESSING).unidentified for net in (one, other, Renamed(one))}
    assert recorded == {''}


def halved(x):
    return x * 0.5


class Reading(Clipped):
    def features(self, x):
        return self.conv(x).mean((2, 3)) * (1 if x.mean() > 0 else 2)


class ThroughNumpy(Clipped):
    def features(self, x):
        return torch.from_numpy(np.tanh(self.conv(x).mean((2, 3)).numpy()))


class Scripted(Clipped):
    halved = staticmethod(torch.jit.script(halved))

    def features(self, x):
        return self.halved(self.conv(x)).mean((2, 3))


class Drawing(Clipped):
    def features(self, x):
        return self.conv(x + torch.rand_like(x)).mean((2, 3))


class Counting(Clipped):
    calls = 0

    def features(self, x):
        self.calls += 1
        return self.conv(x).mean((2, 3)) * self.calls


class Selecting(Clipped):
    def features(self, x):
        return self.conv(x).mean((2, 3)) * x[x > 0.99].numel()


class Failing(Clipped):
    def features(self, x):
        x = self.conv(x).mean((2, 3))
        try:
            return torch.linalg.cholesky(x.T @ x)[:1] + x
        except RuntimeError:
            return x


class OfItsBatch(Clipped):
    def features(self, x):
        return nn.functional.batch_norm(self.conv(x), None, None, training=True).relu().mean((2, 3))


def message_of(embedder) -> str:
    """The error, if any, of features in the process that calls this."""
    try:
        embedder(IMAGES)
    except InputError as error:
        return str(error)
    return ''


def elsewhere(call, *arguments):
    """Return what a call gives in another process, begun by a fork."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('fork')) as pool:
        return pool.submit(call, *arguments).result(timeout=60)


@pytest.mark.parametrize(
    'make', [Reading, ThroughNumpy, Scripted, Drawing, Counting, Selecting, Failing, OfItsBatch]
)
def test_a_network_that_cannot_be_read_says_so_and_shares_nothing(make, tmp_path):
    words = f'{make.__name__}: it cannot be known what it computes: .*not cached'
    with pytest.warns(UserWarning, match=words):
        one, other = (Embedder(make(5.0), PREPROCESSING, cache=tmp_path) for _ in range(2))
    assert one.unidentified
    assert one.digest != other.digest
    assert one.cache is None
    learners = [Scroll(embedder).partial_fit(IMAGES, LABELS) for embedder in (one, one, other)]
    assert learners[0].merge(learners[1]).statistics_.total == 2 * len(IMAGES)
    with refused('backbone or grid mismatch'):
        learners[0].merge(learners[2])
    assert 'make another embedder' in elsewhere(message_of, one)


def test_an_exact_embedder_that_cannot_be_identified_does_not_claim_every_machine():
    with pytest.warns(UserWarning, match='cannot be known'):
        assert Embedder(Counting(5.0), PREPROCESSING, 'exact').valid_on == 'this process'


def lower_and_message_of(embedder) -> str:
    GLOBAL['top'] = 0.9
    return message_of(embedder)


def test_code_that_is_another_one_in_another_process_is_noticed():
    embedder = pickle.loads(pickle.dumps(Embedder(OfModule(0), PREPROCESSING)))
    assert elsewhere(message_of, embedder) == ''
    assert 'OfModule may compute something else in this process' in elsewhere(
        lower_and_message_of, embedder
    )


@contextlib.contextmanager
def setting(switch, value, before):
    switch(value)
    try:
        yield
    finally:
        switch(before)


def default_dtype(dtype):
    return setting(torch.set_default_dtype, dtype, torch.float32)


SWITCHES = {
    'default float64': lambda: default_dtype(torch.float64),
    'default bfloat16': lambda: default_dtype(torch.bfloat16),
    'default device': lambda: torch.device('meta'),
    'autocast': lambda: torch.autocast('cpu', torch.bfloat16),
    'no gradients': torch.no_grad,
    'deterministic': lambda: setting(torch.use_deterministic_algorithms, True, False),
    'no denormals': lambda: setting(torch.set_flush_denormal, True, False),
    'anomalies': lambda: torch.autograd.set_detect_anomaly(True),
    'no oneDNN': lambda: torch.backends.mkldnn.flags(enabled=False),
    'no attention kernels': lambda: torch.nn.attention.sdpa_kernel(
        torch.nn.attention.SDPBackend.MATH
    ),
    'medium products': lambda: setting(torch.set_float32_matmul_precision, 'medium', 'highest'),
    'numpy raises': lambda: np.errstate(all='raise'),
    'another seed': lambda: setting(torch.manual_seed, 99, 99),
}


class Attending(nn.Module):
    """A convolution, attention, a layer norm."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer1 = nn.Sequential(
            nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()
        )
        self.norm = nn.LayerNorm(8)

    def features(self, x):
        x = self.norm(self.layer1(x).flatten(2).transpose(1, 2)).unsqueeze(1)
        return nn.functional.scaled_dot_product_attention(x, x, x).squeeze(1).mean(1)


class Convolving(Attending):
    def features(self, x):
        return self.layer1(x).mean((2, 3))


@pytest.fixture(scope='module')
def embedders():
    """Embedders that hold on every machine, and what they give."""
    made = {
        'exact': Embedder(Attending(), PREPROCESSING, 'exact'),
        'integer': weights.embedder('small'),
    }
    return {name: (embedder, embedder(IMAGES)[0]) for name, embedder in made.items()}


@pytest.mark.parametrize('name', SWITCHES)
def test_no_switch_of_torch_changes_features_that_hold_everywhere(embedders, name):
    for kind, (embedder, wanted) in embedders.items():
        with SWITCHES[name]():
            np.testing.assert_array_equal(embedder(IMAGES)[0], wanted, err_msg=kind)
            assert kind == 'exact' or weights.embedder('small').digest == embedder.digest


@pytest.mark.parametrize('mode', ['adapters', 'full'])
def test_no_switch_of_torch_changes_an_exact_f_star(mode):
    how = Adaptation(mode, iterations=2, minibatch=8, exact=True)
    embedder = Embedder(Convolving(), PREPROCESSING)
    learner = Scroll(embedder, buffer_size=12, strategy='hash', adaptation=how).partial_fit(
        IMAGES, LABELS
    )

    def f_star() -> tuple:
        adapted = learner.adapt().adapted_
        return adapted.digest(), adapted.decision_function(IMAGES).tobytes()

    wanted = f_star()
    for name, switch in SWITCHES.items():
        with switch():
            assert f_star() == wanted, name


class Halfway(Clipped):
    """A part in float32, as of some transformers."""

    def __init__(self, top):
        super().__init__(top)
        self.last = nn.Linear(16, 12)

    def features(self, x):
        x = self.conv(x).mean((2, 3)).float()
        return nn.functional.linear(x, self.last.weight.float())


def test_autocast_around_an_exact_embedder_and_complex_numbers_change_nothing():
    embedder = Embedder(Halfway(0), PREPROCESSING, 'exact')
    wanted = embedder(IMAGES)[0]
    with torch.autocast('cpu', torch.bfloat16):
        np.testing.assert_array_equal(embedder(IMAGES)[0], wanted)

    class Complex(Clipped):
        def features(self, x):
            x = self.conv(x).mean((2, 3))
            return torch.complex(x, x).abs()

    with refused('complex.* not known to be exact'):
        Embedder(Complex(0), PREPROCESSING, 'exact')


def test_a_network_that_leans_on_a_default_of_torch_is_noticed():
    class Leaning(Clipped):
        def features(self, x):
            return self.conv(x).double().mean((2, 3)) * torch.tensor(0.1)

    embedder = Embedder(Leaning(0), PREPROCESSING, 'exact')
    with (
        default_dtype(torch.float64),
        refused('Leaning may compute something else .*with these defaults of torch'),
    ):
        embedder(IMAGES)
    embedder(IMAGES)


def switches_of_torch() -> tuple:
    cuda = torch.backends.cuda
    cudnn = torch.backends.cudnn
    return (
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
        cudnn.enabled,
        cudnn.benchmark,
        cudnn.deterministic,
        torch._C._get_nnpack_enabled(),
        torch.is_grad_enabled(),
        torch.get_rng_state().tolist(),
    )


def test_threads_that_embed_and_adapt_at_once_leave_every_switch_as_it_was(embedders):
    class Dropping(Convolving):
        def features(self, x):
            return nn.functional.dropout(super().features(x), 0.5, self.training)

    how = Adaptation('full', iterations=3, minibatch=8)
    learners = [
        Scroll(Embedder(Dropping(), PREPROCESSING), buffer_size=12, adaptation=how).partial_fit(
            IMAGES, LABELS
        )
        for _ in range(3)
    ]
    before = switches_of_torch()
    calls = [lambda embedder=embedder: embedder(IMAGES) for embedder, _ in embedders.values()] * 2
    calls += [learner.adapt for learner in learners]
    started = [threading.Thread(target=call) for call in calls]
    with warnings.catch_warnings():
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()
    assert switches_of_torch() == before
    # each drew its own random numbers
    assert len({learner.adapted_.digest() for learner in learners}) == 1
