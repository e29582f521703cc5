"""Predictors as graphs for other programs, torch (.pt2) and ONNX: features or images -> logits and
labels.

Features come in float32, as a learner rounds them, and are 0 below 2^-126 in size. Graphs work in
float64. Graphs of f_T cut weights and products into pieces so short that every sum is exact: logits
and labels are those of the library, to the last bit, where `OnGrid` gives its features.
"""

import warnings
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from scroll.adaptation.training import AdaptedPredictor, lifted, logits_of
from scroll.embedding.integer_network import OnGrid
from scroll.embedding.transforms import resize_matrix
from scroll.ground.errors import InputError
from scroll.ground.grid import GRID_BITS
from scroll.heads.discriminants import PIECE, QuadraticPredictor, quadratic_logits
from scroll.heads.predictors import exact_logits


def write_graphs(
    folder: Path, name: str, predictor, embedder, example: np.ndarray, formats, about: str
) -> None:
    """Write `name`.pt2 and `name`.onnx.

    Args:
        folder: where to write.
        name: name of the files.
        predictor: f_T or f*.
        embedder: as of `whole_module`.
        example: two samples, of the shape and dtype of all.
        formats: 'torch', 'onnx' or both.
        about: text to store in the files.

    InputError: the backbone cannot be a graph."""
    if embedder is not None and embedder.dtype == 'bfloat16':
        raise InputError(
            'graphs do not work in bfloat16, as this backbone does: give it another dtype'
        )
    shape = example.shape[1:]
    samples = torch.from_numpy(example)
    free = ({0: torch.export.Dim('samples')},)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter('ignore')  # of torch and onnxscript, about themselves
            module = whole_module(predictor, embedder, shape)
            program = torch.export.export(module, (samples,), dynamic_shapes=free)
            if 'torch' in formats:
                torch.export.save(program, folder / f'{name}.pt2', extra_files={'scroll': about})
            if 'onnx' in formats:
                graph = torch.onnx.export(
                    program,
                    (samples,),
                    dynamic_shapes=free,
                    input_names=['X'],
                    output_names=['logits', 'label'],
                    dynamo=True,
                    verbose=False,
                )
                graph.model.metadata_props['scroll'] = about
                graph.save(folder / f'{name}.onnx', external_data=False)
    except Exception as error:  # torch and onnxscript raise almost anything
        text = ' '.join(str(error).split())[:200]
        raise InputError(
            f'{name} cannot be exported as a graph of samples {shape} ({type(error).__name__}: '
            f'{text}): export the format safetensors alone'
        ) from error


def whole_module(predictor, embedder=None, shape: tuple = ()) -> nn.Module:
    """Return the module of a predictor: float32 (N, d), or with an embedder (of f_T or f*) uint8
    images (N, *shape), -> (logits float64 (N, K), column of the label int64 (N,))."""
    layers: list[nn.Module] = []
    if embedder is not None:
        layers.append(ImageFeatures(embedder, shape))
    if isinstance(predictor, AdaptedPredictor):
        head = ScaledLinear(predictor)
    elif isinstance(predictor, QuadraticPredictor):
        head = ExactQuadratic(predictor)
    else:
        head = ExactLinear(predictor)
    if embedder is None or not isinstance(head, ScaledLinear):
        layers.append(OnGrid())
    return nn.Sequential(*layers, head).eval()


class ImageFeatures(nn.Module):
    """Map of uint8 images (N, H, W, C) or (N, H, W), of one size, to features (N, d) of the
    backbone, float32."""

    rows: torch.Tensor
    columns: torch.Tensor

    def __init__(self, embedder, shape: tuple):
        super().__init__()
        steps = embedder.preprocessing
        exact = embedder.dtype == 'exact'  # an exact f* is in float64
        self.net = deepcopy(embedder.pristine).float() if exact else deepcopy(embedder.net)
        self.net.cpu()
        sized = replace(steps, crop=1.0, keep_ratio=False)  # it gets images of its size
        self.prepare = self.net.prepare if embedder.dtype == 'integer' else sized
        for name, side, scaled in zip(('rows', 'columns'), shape, steps.scaled(*shape[:2])):
            matrix = resize_matrix(side, scaled, steps.input_size, steps.interpolation)
            self.register_buffer(name, torch.from_numpy(matrix))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.dim() == 3:
            images = images.unsqueeze(-1)
        images = images.double().permute(0, 3, 1, 2)  # (N, C, H, W)
        # as `scroll.embedding.transforms.resize`: exact
        images = self.rows @ (images @ self.columns.T)
        return self.net.features(self.prepare(images.permute(0, 2, 3, 1)))


class Head(nn.Module):
    """Base of all predictors; `h`: features or their lift, whole numbers in units of 2^-18."""

    def __init__(self, predictor, **arrays):
        super().__init__()
        self.lift = predictor.lift
        for name, array in arrays.items():
            self.register_buffer(name, None if array is None else torch.from_numpy(array).double())

    def h(self, u: torch.Tensor) -> torch.Tensor:
        return u if self.lift is None else lifted(u, self.lift, exact=True)


def _result(
    high: torch.Tensor, low: torch.Tensor, base: float, unit: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits, and the column of the largest, of exact logits high base + low, 0 <= low <
    base."""
    largest = high == high.amax(dim=1, keepdim=True)
    return (high * base + low) * unit, torch.where(largest, low, -1.0).argmax(dim=1)


class ExactLinear(Head):
    """f_T of `LinearPredictor`: its logits, correctly rounded, and the column of the largest exact
    one."""

    limbs: torch.Tensor

    def __init__(self, predictor):
        limbs, width = predictor.limbs()
        super().__init__(predictor, limbs=np.stack(limbs))
        self.width = width
        self.unit = 2.0 ** (predictor.exponent - GRID_BITS)

    def forward(self, u: torch.Tensor) -> tuple:
        high, low = exact_logits(self.h(u), self.limbs, self.width, torch.floor)
        return _result(high, low, 2.0 ** (self.width * (len(self.limbs) - 1)), self.unit)


class ExactQuadratic(Head):
    """f_T of `QuadraticPredictor`: products of products are summed in pieces of 18 bits, as it
    does."""

    def __init__(self, predictor):
        super().__init__(predictor, means=predictor.means, forms=predictor.forms)
        self.unit = 2.0 ** (predictor.exponent - 2 * GRID_BITS)

    def forward(self, u: torch.Tensor) -> tuple:
        high, low = quadratic_logits(self.h(u), self.means, self.forms, torch.floor)
        return _result(high.T, low.T, 4.0**PIECE, self.unit)


class ScaledLinear(Head):
    """f*: scaled logits of features brought to unit length, to their rounding."""

    def __init__(self, f_star: AdaptedPredictor):
        super().__init__(f_star, weight=f_star.weight, bias=f_star.bias, forms=f_star.forms)
        self.scale = f_star.scale

    def forward(self, features: torch.Tensor) -> tuple:
        units = nn.functional.normalize(features.double())
        logits = self.scale * logits_of(units, self.weight, self.bias, self.lift, self.forms)
        return logits, logits.argmax(dim=1)
