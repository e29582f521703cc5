"""f_T + buffer M_T -> adapted predictor f* (paper, section 3.3; Algorithm 1, ResidualAdapt and
FullAdapt).

The network starts from the pristine backbone and the classifier from f_T; cross-entropy on the
buffer alone trains, with AdaDelta,

- `adapters`: adapters (`scroll.adaptation.adapters`), the classifier and the logit scale, batch
  norms in eval mode (small buffers);
- `full`: every parameter of the backbone and the classifier, the scale fixed, batch norms in train
  mode (large buffers).

logits = scale * (W u + b), u = psi'(augmented image) / |psi'(.)|. The scale begins at the one of
least cross-entropy on the buffer, of leave-one-out logits, since f_T has learned from these
samples.

Beyond the paper: the buffer is a hundredth of the stream, and a network that fits its labels alone
forgets what f_T knows of the rest. So f_T counts as much as `prior` exemplars, twice. A part of
each target is what f_T would say of the exemplar, had it not learned from it: its leave-one-out
probabilities (distillation, Hinton et al. 2015). And f* lies on the way from f_T's parameters
(Wortsman et al. 2022, "Robust fine-tuning of zero-shot models") to the running mean of the trained
ones (Polyak, Juditsky 1992).

The buffer comes in canonical order and the random stream is this stage's own: the same f_T and M_T
give the same f*.
"""

import contextlib
import copy
import hashlib
import itertools
from dataclasses import dataclass
from functools import partial
from math import fsum, log2, pi, sqrt
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from exact_torch.switches import switches
from scroll.adaptation import adapters
from scroll.adaptation.optimisers import eager
from scroll.adaptation.settings import Adaptation
from scroll.embedding.embedder import Embedder
from scroll.embedding.exact import exact_arithmetic
from scroll.embedding.machine import describe_machine
from scroll.embedding.precision import keep_depthwise_in_float32, resolve_precision
from scroll.embedding.side_by_side import check_single
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID, GRID_BITS, little_endian
from scroll.ground.randomness import stream_seed, torch_stream
from scroll.heads.predictors import LinearPredictor
from scroll.heads.scaling import better_than_guessing, fit_scale, probabilities
from scroll.sums.exemplars import Exemplars
from scroll.sums.lift import Lift, cosine_table

_EVERYWHERE = 'every machine'
_LENGTH = 4.0  # of ridge's weights on unit features
_RECENT = 3  # weight of the last parameters in their mean, times the updates (Shamir, Zhang 2013)


@dataclass(eq=False)
class AdaptedPredictor:
    """f*: an adapted network and classifier.

    Attributes:
        classes: (K,) labels.
        weight: float32 (K, d). bias: float32 (K,). float64 of exact adaptation.
        scale: logit scale, for probabilities.
        lift, forms: of the predictor that it was made from, or None; forms float64 (K, D, D).
        embedder: the adapted backbone (adapters folded in), or None for a predictor of features.
        initial_scale: the scale the first update met.
        losses: float32 (iterations,), of each update.
        mode: 'adapters' or 'full' ('classifier' without a network).
        made_on: the machine on which it has the same bits.
        exact: whether that is every machine."""

    classes: np.ndarray
    lift: Lift | None
    weight: np.ndarray
    bias: np.ndarray
    forms: np.ndarray | None
    scale: float
    embedder: Embedder | None
    initial_scale: float
    losses: np.ndarray
    mode: str
    made_on: str

    @property
    def exact(self) -> bool:
        return self.made_on == _EVERYWHERE

    def decision_function(self, x) -> np.ndarray:
        """Scaled logits float64 (N, K) of uint8 images, or without a network of quantised features
        (N, d).
        """
        raw = x / GRID if self.embedder is None else self.embedder.features(x)
        features = torch.from_numpy(np.asarray(raw, np.float64))
        weight, bias = (torch.from_numpy(part).double() for part in (self.weight, self.bias))
        forms = None if self.forms is None else torch.from_numpy(self.forms).double()
        arithmetic = exact_arithmetic() if self.exact else contextlib.nullcontext()
        with torch.inference_mode(), arithmetic:
            parts = [
                logits_of(F.normalize(part), weight, bias, self.lift, forms)
                for part in features.split(256)
            ]
        return self.scale * torch.cat(parts).numpy()

    def digest(self) -> str:
        """SHA-256 of network, classifier and scale."""
        sha = hashlib.sha256(repr((self.classes.tolist(), self.scale)).encode())
        sha.update(little_endian(self.weight).tobytes() + little_endian(self.bias).tobytes())
        if self.lift is not None:
            sha.update(self.lift.digest.encode())
        if self.forms is not None:
            sha.update(little_endian(self.forms).tobytes())
        if self.embedder is not None:
            sha.update(self.embedder.digest.encode())
        return sha.hexdigest()


def adapt(
    embedder: Embedder,
    predictor: LinearPredictor,
    exemplars: Exemplars,
    settings: Adaptation,
    seed: int = 0,
    progress=None,
    left_out=None,
) -> AdaptedPredictor:
    """f* from backbone, f_T and the buffer; none of them is changed.

    Args:
        embedder: the backbone, or None if the samples are features; then only the classifier is
            trained.
        predictor: f_T.
        exemplars: M_T, in canonical order; samples uint8 images (or features).
        seed: of the run; this stage draws from a stream of its own.
        progress: called after each update with its loss tensor.
        left_out: float (m, K), f_T's leave-one-out logits on the exemplars, of which the scale and
            the targets are made; default: its logits as they are."""
    check_single(embedder, 'adaptation')
    mode = (
        'classifier' if embedder is None else mode_for(settings, embedder.pristine, len(exemplars))
    )
    if mode == 'full' and min(settings.minibatch, len(exemplars)) < 2:
        raise InputError(
            'full tuning needs minibatches of two samples or more, for its batch '
            'norms: use adapters'
        )
    columns = np.searchsorted(predictor.classes, exemplars.labels)
    if left_out is None:
        left_out = predictor.decision_function(exemplars.features)
    scale = settings.scale
    unit = 1.0
    way = 1.0
    targets = np.eye(len(predictor.classes))[columns]
    if better_than_guessing(left_out, columns):
        fitted = fit_scale(left_out, columns)
        way = len(columns) / (len(columns) + settings.prior)
        known = np.isfinite(left_out[targets > 0])  # without the sample, too
        mixed = way * targets + (1 - way) * probabilities(left_out, fitted)
        targets = np.where(known[:, None], mixed, targets)
        if settings.calibrate:
            unit = _unit(predictor)
            scale = fitted / unit
    device = torch.device('cpu') if embedder is None else embedder.device
    trained = Trainee(embedder, predictor, mode, scale, unit, settings, device, seed)
    targets = torch.from_numpy(targets).to(device, trained.dtype)
    samples = torch.from_numpy(exemplars.samples).to(device)
    random = torch_stream(seed, 'adaptation')
    minibatches = _minibatches(len(exemplars), settings.minibatch, random)
    losses = []
    for rows in itertools.islice(minibatches, settings.updates(len(exemplars))):
        x = samples[rows.to(device)]
        if embedder is not None:
            x = settings.augmentation(x, embedder.preprocessing, random)
        with _drawing(stream_seed(seed, f'adaptation, update {len(losses)}'), device):
            losses.append(trained.update(x, targets[rows.to(device)]))
        if progress:
            progress(losses[-1])
    values = torch.stack(losses).float().cpu().numpy() if losses else np.zeros(0, np.float32)
    f_star = trained.result(predictor, embedder, scale, values, mode, way)
    first = f_star.decision_function(exemplars.samples[:1])
    if not (np.isfinite(values).all() and np.isfinite(first).all()):
        raise InputError(
            f'adaptation diverged within {len(losses)} updates: lower the learning rates'
        )
    return f_star


def mode_for(settings: Adaptation, net: nn.Module, buffered: int) -> str:
    """The mode of a network with this many exemplars. `auto` tunes no depthwise convolution in
    full: its batch norms follow small batches so far that f* falls below f_T."""
    mode = settings.mode_for(buffered)
    grouped = any(isinstance(layer, nn.Conv2d) and layer.groups > 1 for layer in net.modules())
    return 'adapters' if settings.mode == 'auto' and mode == 'full' and grouped else mode


def _unit(predictor) -> float:
    """The power of two that brings the weights of a predictor's classes, less their mean, to about
    `_LENGTH`: heads differ in it by factors of a thousand, and steps of AdaDelta do not."""
    weight = predictor.linear[0]
    moved = weight - np.cumsum(weight, axis=0)[-1] / len(weight)
    length = sqrt(fsum((moved * moved).ravel()) / len(weight))
    return 2.0 ** round(log2(_LENGTH / length)) if length else 1.0


@contextlib.contextmanager
def _drawing(seed: int, device: torch.device):
    """A block in which torch's own generators, as of dropout, draw by this seed."""
    generators = [device] if device.type == 'cuda' else []
    # one thread at a time: they share the generators
    with switches(deterministic=True, benchmark=False), torch.random.fork_rng(generators):
        torch.manual_seed(seed)
        yield


def _minibatches(count: int, size: int, random: torch.Generator):
    """Yield index tensors for ever: shuffled passes over 0..count-1, cut into equal parts."""
    size = min(size, count)
    order = torch.zeros(0, dtype=torch.int64, device='cpu')
    while True:
        if len(order) < size:
            order = torch.randperm(count, generator=random, device='cpu')
        rows = order[:size]
        order = order[size:]
        yield rows


class Trainee:
    """A copy of the backbone with f_T on top, and the optimiser over the parameters to train."""

    def __init__(self, embedder, predictor, mode, scale, unit, settings, device, seed):
        self.exact = settings.exact
        self.dtype = torch.float64 if self.exact else torch.float32
        self.arithmetic = (
            partial(exact_arithmetic, device) if self.exact else contextlib.nullcontext
        )

        def tensor(value) -> torch.Tensor:
            return torch.tensor(value, dtype=self.dtype, device=device)

        self.weight, self.bias = (nn.Parameter(tensor(unit * part)) for part in predictor.linear)
        self.lift = predictor.lift
        self.quadratic = None if predictor.quadratic is None else unit * predictor.quadratic
        self.forms = None if self.quadratic is None else tensor(self.quadratic)
        self.scale = nn.Parameter(tensor(float(scale)))
        groups = [{'params': [self.weight, self.bias], 'lr': settings.classifier_lr}]
        self.net: Any = None  # a module with `features`
        if embedder is not None:
            self._copy_network(embedder, mode, settings)
            parameters = self._parameters(mode, settings, seed)
            groups.append({'params': parameters, 'lr': settings.lr})
            self.net = self.net.to(memory_format=self.layout).train(mode == 'full')
        learn_scale = mode != 'full' if settings.learn_scale is None else settings.learn_scale
        if learn_scale:
            groups.append({'params': [self.scale], 'lr': settings.scale_lr})
        self.optimiser = eager(torch.optim.Adadelta)(groups, foreach=False if self.exact else None)
        # running statistics of batch norms are averaged, too: they belong to the weights
        statistics = self.net.buffers() if mode == 'full' else ()
        self.averaged = [p for group in groups for p in group['params']]
        self.averaged += [buffer for buffer in statistics if buffer.is_floating_point()]
        self.averaging = settings.averaging
        self.starts = [values.detach().clone() for values in self.averaged]
        self.means = [start.clone() for start in self.starts]
        self.updates = 0

    def _copy_network(self, embedder: Embedder, mode: str, settings: Adaptation) -> None:
        """Copy the backbone, in the precision that it is trained in and embeds with afterwards."""
        device = embedder.device
        self.autocast = False
        if self.exact:
            self.embed_dtype = 'exact'
            self.layout = torch.contiguous_format
            self.net = copy.deepcopy(embedder.pristine).to(device).double()
            return
        # frozen batch norms may as well be folded; those that train must not
        source = embedder.folded if mode == 'adapters' else embedder.pristine
        self.net = copy.deepcopy(source).to(device)
        self.embed_dtype = None
        self.layout = embedder.layout
        if resolve_precision(settings.precision, device) == 'bfloat16':
            self.embed_dtype = 'bfloat16'
        self.autocast = 'bfloat16' in (embedder.dtype, self.embed_dtype)
        if self.autocast and device.type == 'cpu':
            keep_depthwise_in_float32(self.net)

    def _parameters(self, mode: str, settings: Adaptation, seed: int) -> list[nn.Parameter]:
        """The parameters of the network that the mode trains."""
        if mode == 'adapters':
            return adapters.attach(self.net, settings.adapter_scale, seed)
        named = self.net.named_parameters()
        return [p.requires_grad_(True) for name, p in named if not name.startswith('classifier.')]

    def update(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One step on network inputs (B, 3, S, S), or quantised features (B, d), and target
        probabilities (B, K); its loss."""
        with self.arithmetic():
            if self.net is None:
                features = x.to(self.dtype) / GRID
            else:
                x = x.double() if self.exact else x
                x = x.contiguous(memory_format=self.layout)
                with torch.autocast(x.device.type, torch.bfloat16, enabled=self.autocast):
                    features = self.net.features(x).to(self.dtype)
            unit = F.normalize(features)
            logits = self.scale * logits_of(unit, self.weight, self.bias, self.lift, self.forms)
            loss = -(targets * F.log_softmax(logits, dim=1)).sum(dim=1).mean()
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            self._average()
        return loss.detach()

    @torch.no_grad()
    def _average(self) -> None:
        """Take the parameters into their means, most of which is the last third."""
        self.updates += 1
        weight = _RECENT / (self.updates + _RECENT - 1) if self.averaging else 1
        for mean, values in zip(self.means, self.averaged):
            mean.copy_(mean + weight * (values - mean))

    def result(self, predictor, embedder, initial_scale, losses, mode, way) -> AdaptedPredictor:
        """f*, this share of the way to the averaged parameters; adapters are folded into layers."""
        with torch.no_grad():
            for values, start, mean in zip(self.averaged, self.starts, self.means):
                values.copy_(start + way * (mean - start))
        weight, bias = (p.detach().cpu().numpy() for p in (self.weight, self.bias))
        adapted = None
        if self.net is not None:
            with self.arithmetic():
                adapters.fold(self.net)
            adapted = embedder.with_net(self.net, self.embed_dtype)
        made_on = _EVERYWHERE if self.exact else describe_machine(self.weight.device)
        if adapted is not None and adapted.dtype == 'bfloat16':
            made_on += ', bfloat16'
        return AdaptedPredictor(
            predictor.classes,
            predictor.lift,
            weight,
            bias,
            self.quadratic,
            self.scale.item(),
            adapted,
            float(initial_scale),
            losses,
            mode,
            made_on,
        )


def logits_of(units: torch.Tensor, weight, bias, lift: Lift | None, forms) -> torch.Tensor:
    """Differentiable logits (B, K) of unit features (B, d). weight: (K, D). bias: (K,). lift: of
    the predictor. forms: (K, D, D), or None."""
    h = units if lift is None else lifted(units, lift)
    out = h @ weight.T + bias
    if forms is not None:
        out = out - torch.einsum('bd,kde,be->bk', h, forms, h)
    return out


def lifted(units: torch.Tensor, lift: Lift, exact: bool = False) -> torch.Tensor:
    """h (B, D) of unit features (B, d), as `Lift`, in torch. exact: units are whole numbers on the
    grid, float64, and h is what `Lift` gives; else h is not rounded, and has gradients."""

    def tensor(array):
        return torch.as_tensor(array, dtype=units.dtype, device=units.device)

    one = float(GRID) if exact else 1.0
    products = units @ tensor(lift.matrix)
    if lift.kind == 'relu':
        random = torch.relu(products) * 2.0**-lift.shift
    elif lift.kind == 'square':
        random = (products * products / (8 * one)).clamp(max=one)
    else:
        angles = tensor(lift.offsets * 2.0 ** -(GRID_BITS + lift.TURN_BITS))
        turns = products * (lift.turns * 2.0**-lift.TURN_BITS / one) + angles
        if exact:
            table = tensor(cosine_table())
            random = table[((turns - turns.floor()) * len(table)).long()]
        else:
            random = torch.cos(2 * pi * turns) / 16
    if exact:
        random = random.floor().clamp(max=one)
    return torch.cat([units, random], dim=1)
