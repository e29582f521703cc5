"""Predictors as torch modules that can be exported: from features or images to logits and labels."""
from copy import deepcopy

import numpy as np
import torch
from torch import nn

from scroll.adaptation.training import AdaptedPredictor
from scroll.embedding.transforms import resize_matrix
from scroll.errors import InputError
from scroll.grid import GRID, GRID_BITS
from scroll.heads.predictors import LinearPredictor


def torch_module(predictor) -> nn.Module:
    """A predictor's own module: features (N, d) -> (logits float64 (N, K), column of the label int64 (N,)).

    Of f_T the features are whole numbers in float64, on the grid; of f*, floats of any length. Its buffers,
    but for those that are not persistent, are what files keep of it; FORMULA says what they are for.
    """
    if isinstance(predictor, LinearPredictor):
        return ExactLinear(predictor)
    if isinstance(predictor, AdaptedPredictor):
        return ScaledLinear(predictor)
    raise InputError(f'a predictor of type {type(predictor).__name__} cannot be exported')


def whole_module(predictor, embedder=None, image_shape=None) -> nn.Module:
    """All between samples and labels: float64 (N, d), or uint8 images (N, H, W, C), -> as `torch_module`.

    Args:
        predictor: f_T or f*. embedder: the backbone of f_T; f* has its own. image_shape: (H, W, C) or (H, W).
    """
    adapted = isinstance(predictor, AdaptedPredictor)
    own = predictor.embedder if adapted else embedder
    front = [] if own is None else [ImageFeatures(own, image_shape)]
    grid = [] if adapted and own is not None else [OnGrid()]
    return nn.Sequential(*front, *grid, torch_module(predictor)).eval()


class ImageFeatures(nn.Module):
    """uint8 images (N, H, W, C) of one size -> features (N, d), as the backbone gives them, float32."""

    def __init__(self, embedder, shape):
        super().__init__()
        height, width = shape[:2]
        self.net, self.grey = deepcopy(embedder.net).cpu(), len(shape) == 2
        self.prepare = self.net.prepare if embedder.dtype == 'integer' else embedder.preprocessing
        size = embedder.preprocessing.input_size
        for name, side in (('rows', height), ('columns', width)):
            self.register_buffer(name, torch.from_numpy(resize_matrix(side, size)), persistent=False)
        self.same = height == width == size

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        images = (images.unsqueeze(-1) if self.grey else images).double()
        if not self.same:                               # as `scroll.embedding.transforms.resize`, exactly
            maps = self.rows @ (images.permute(0, 3, 1, 2) @ self.columns.T)
            images = maps.permute(0, 2, 3, 1)
        return self.net.features(self.prepare(images))


class OnGrid(nn.Module):
    """Vectors (N, d) -> unit vectors in whole multiples of 2^-18, as `scroll.grid.quantise`, in float64.

    Its quotients are not looked at again where they are so near to the middle between two whole numbers that
    float64 cannot tell on which side they are: of 512 features fewer than one number in 10^7.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.double()
        largest = x.abs().amax(dim=1, keepdim=True)
        x = x / torch.where(largest > 0, largest, 1.0)
        norm = (x * x).sum(dim=1, keepdim=True).sqrt()
        return torch.round(x / torch.where(norm > 0, norm, 1.0) * GRID)


class ExactLinear(nn.Module):
    """f_T: the logits of `LinearPredictor`, correctly rounded, and the column of the largest exact one.

    Buffers: weight float64 (K, d), bias float64 (K,), exact; `limbs`, what they are cut into, so that no sum
    of products reaches 2^53 and every one is exact.
    """
    FORMULA = 'logits = u weight^T + bias, u = round(2^18 x / |x|) / 2^18'

    def __init__(self, predictor: LinearPredictor):
        super().__init__()
        limbs, self.width = predictor.limbs()
        self.unit = 2.0 ** (predictor.exponent - GRID_BITS)
        self.register_buffer('weight', torch.from_numpy(predictor.weight))
        self.register_buffer('bias', torch.from_numpy(predictor.bias))
        self.register_buffer('limbs', torch.from_numpy(np.stack(limbs)), persistent=False)

    def forward(self, features: torch.Tensor) -> tuple:
        base = 2.0 ** self.width
        high = features @ self.limbs[0, :, :-1].T + self.limbs[0, :, -1] * GRID
        low = torch.zeros_like(high)
        for place in range(1, len(self.limbs)):
            carry = torch.floor(high / base)
            low = low + (high - carry * base) * base ** (place - 1)
            high = carry + (features @ self.limbs[place, :, :-1].T + self.limbs[place, :, -1] * GRID)
        logits = (high * base ** (len(self.limbs) - 1) + low) * self.unit
        largest = high == high.amax(dim=1, keepdim=True)
        return logits, torch.where(largest, low, -1.0).argmax(dim=1)


class ScaledLinear(nn.Module):
    """f*: scale (W u + b) of features brought to unit length, in float64."""
    FORMULA = 'logits = scale (u weight^T + bias), u = x / |x|'

    def __init__(self, predictor: AdaptedPredictor):
        super().__init__()
        for name in ('weight', 'bias'):
            self.register_buffer(name, torch.from_numpy(getattr(predictor, name)).double())
        self.register_buffer('scale', torch.tensor(predictor.scale, dtype=torch.float64))

    def forward(self, features: torch.Tensor) -> tuple:
        features = features.double()
        norm = (features * features).sum(dim=1, keepdim=True).sqrt()
        logits = self.scale * (features / norm.clamp(min=1e-12) @ self.weight.T + self.bias)
        return logits, logits.argmax(dim=1)
