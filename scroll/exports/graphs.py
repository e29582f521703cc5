"""Predictors as graphs for other programs, torch (.pt2) and ONNX: features or images -> logits and
labels.

Features come in float32, as a learner rounds them, and are 0 below 2^-126 in size. Graphs work in
float64. Those of f_T cut weights and products into pieces so short that every sum is exact: logits
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
    """Write `name`.pt2 and `name`.onnx, as the formats say, with the text `about`. example: two
    samples, of the shape and dtype of all; embedder: as of `whole_module`. InputError: the backbone
    cannot be a graph."""
    if embedder is not None and embedder.dtype == 'bfloat16':
        raise InputError(
            'graphs do not work in bfloat16, as this backbone does: give it another dtype'
        )
    shape, example = example.shape[1:], torch.from_numpy(example)
    free = ({0: torch.export.Dim('samples')},)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter('ignore')  # of torch and onnxscript, about themselves
            module = whole_module(predictor, embedder, shape)
            program = torch.export.export(module, (example,), dynamic_shapes=free)
            if 'torch' in formats:
                torch.export.save(program, folder / f'{name}.pt2', extra_files={'scroll': about})
            if 'onnx' in formats:
                graph = torch.onnx.export(
                    program,
                    (example,),
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


def whole_module(predictor, embedder=None, shape: tuple | None = None) -> nn.Module:
    """float32 (N, d), or with an embedder (of f_T or f*) uint8 images (N, *shape), -> (logits
    float64 (N, K), column of the label int64 (N,))."""
    adapted = isinstance(predictor, AdaptedPredictor)
    front = [] if embedder is None else [ImageFeatures(embedder, shape)]
    grid = [] if adapted and embedder is not None else [OnGrid()]
    exact = ExactQuadratic if isinstance(predictor, QuadraticPredictor) else ExactLinear
    return nn.Sequential(*front, *grid, (ScaledLinear if adapted else exact)(predictor)).eval()


class ImageFeatures(nn.Module):
    """uint8 images (N, H, W, C) or (N, H, W), of one size -> features (N, d) of the backbone,
    float32.
    """

    def __init__(self, embedder, shape: tuple):
        super().__init__()
        asked = embedder.preprocessing
        size, scaled, self.net = (
            asked.input_size,
            asked.scaled(*shape[:2]),
            deepcopy(embedder.net if embedder.dtype != 'exact' else embedder.folded).cpu(),
        )
        sized = replace(asked, crop=1.0, keep_ratio=False)  # it gets images of its size
        self.prepare = self.net.prepare if embedder.dtype == 'integer' else sized
        for name, side, new in zip(('rows', 'columns'), shape, scaled):
            self.register_buffer(
                name, torch.from_numpy(resize_matrix(side, new, size, asked.interpolation))
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        images = (
            (images.unsqueeze(-1) if images.dim() == 3 else images).double().permute(0, 3, 1, 2)
        )
        # as `scroll.embedding.transforms.resize`: exact
        images = self.rows @ (images @ self.columns.T)
        return self.net.features(self.prepare(images.permute(0, 2, 3, 1)))


class Head(nn.Module):
    """What every predictor has: `h`, its features or their lift, whole numbers in units of 2^-18."""

    def __init__(self, predictor, **arrays):
        super().__init__()
        self.lift = predictor.lift
        for name, array in arrays.items():
            self.register_buffer(name, None if array is None else torch.from_numpy(array).double())

    def h(self, u: torch.Tensor) -> torch.Tensor:
        return u if self.lift is None else lifted(u, self.lift, exact=True)


def _result(high: torch.Tensor, low: torch.Tensor, base: float, unit: float) -> tuple:
    """(logits, column of the largest) of exact logits high base + low, 0 <= low < base."""
    largest = high == high.amax(dim=1, keepdim=True)
    return (high * base + low) * unit, torch.where(largest, low, -1.0).argmax(dim=1)


class ExactLinear(Head):
    """f_T of `LinearPredictor`: its logits, correctly rounded, and the column of the largest exact
    one.
    """

    def __init__(self, predictor):
        limbs, width = predictor.limbs()
        super().__init__(predictor, limbs=np.stack(limbs))
        self.width, self.unit = width, 2.0 ** (predictor.exponent - GRID_BITS)

    def forward(self, u: torch.Tensor) -> tuple:
        high, low = exact_logits(self.h(u), self.limbs, self.width, torch.floor)
        return _result(high, low, 2.0 ** (self.width * (len(self.limbs) - 1)), self.unit)


class ExactQuadratic(Head):
    """f_T of `QuadraticPredictor`: products of products are summed in pieces of 18 bits, as it
    does.
    """

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
