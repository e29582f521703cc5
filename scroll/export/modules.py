"""Predictors as torch modules that can be exported: from features or images to logits and labels."""
from copy import deepcopy
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from scroll.adaptation import readout
from scroll.adaptation.training import AdaptedPredictor
from scroll.embedding.transforms import resize_matrix
from scroll.errors import InputError
from scroll.grid import GRID, GRID_BITS
from scroll.heads.predictors import LinearPredictor, exact_logits
from scroll.lift import cosine_table


def torch_module(predictor) -> nn.Module:
    """A predictor's own module: features (N, d), on the grid for f_T -> (logits float64 (N, K), column of the
    label int64 (N,)). Files keep its persistent buffers; FORMULA says what they are for."""
    if isinstance(predictor, LinearPredictor):
        return ExactLinear(predictor)
    if isinstance(predictor, AdaptedPredictor) and predictor.forms is None:
        return ScaledLinear(predictor)
    raise InputError('a predictor of the head qda cannot be exported: save the learner')


def whole_module(predictor, embedder=None, image_shape=None) -> nn.Module:
    """All between samples and labels: float64 (N, d), or uint8 images (N, H, W, C) of `image_shape`, -> as
    `torch_module`. embedder: the backbone of f_T; f* has its own."""
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
        asked = embedder.preprocessing
        self.prepare = (self.net.prepare if embedder.dtype == 'integer'
                        else replace(asked, crop=1.0, keep_ratio=False))    # cut before it gets them
        size, scaled = asked.input_size, asked.scaled(height, width)
        for name, side, new in (('rows', height, scaled[0]), ('columns', width, scaled[1])):
            self.register_buffer(name, torch.from_numpy(resize_matrix(side, new, size, asked.interpolation)),
                                 persistent=False)
        self.same = (height, width) == scaled == (size, size)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        images = (images.unsqueeze(-1) if self.grey else images).double()
        if not self.same:                               # as `scroll.embedding.transforms.resize`, exactly
            maps = self.rows @ (images.permute(0, 3, 1, 2) @ self.columns.T)
            images = maps.permute(0, 2, 3, 1)
        return self.net.features(self.prepare(images))


class OnGrid(nn.Module):
    """Vectors (N, d) of any length -> whole multiples of 2^-18, as `scroll.grid.quantise`, in float64.

    Ties that float64 cannot resolve are not: of 512 features fewer than one number in 10^7.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.double()
        largest = x.abs().amax(dim=1, keepdim=True)
        x = x / torch.where(largest > 0, largest, 1.0)
        norm = (x * x).sum(dim=1, keepdim=True).sqrt()
        return torch.round(x / torch.where(norm > 0, norm, 1.0) * GRID)


class Lifted(nn.Module):
    """u (N, d) -> h (N, D), as `scroll.lift.Lift`, in float64. exact: u are whole numbers on the grid, and so
    is h; else u has unit length, and h is not rounded.

    Buffers: matrix float64 (d, M), R; `fourier` has offsets, in turns, and if exact a table of cosines, too.
    """

    def __init__(self, lift, exact: bool = True):
        super().__init__()
        self.lift, self.exact, fourier = lift, exact, lift.kind == 'fourier'
        self.register_buffer('matrix', torch.from_numpy(lift.matrix).double())
        self.register_buffer('offsets', torch.from_numpy(readout.offsets(lift)) if fourier else None)
        table = torch.from_numpy(cosine_table()).double() if fourier and exact else None
        self.register_buffer('table', table)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        return readout.lifted(u, self.lift, self.matrix, self.offsets, self.exact, self.table)


def _lifted(predictor, exact: bool = True) -> nn.Module:
    return nn.Identity() if predictor.lift is None else Lifted(predictor.lift, exact)


_OF_LIFT = dict(relu='; h = [u, max(0, floor(u matrix / 2^s))], 2^s the least power of two above sqrt(d)',
                square='; h = [u, min(floor((u matrix)^2 / 2^21), 2^18)]',
                fourier='; h = [u, table[angles]], angles = u matrix + offsets in turns')


class ExactLinear(nn.Module):
    """f_T: the logits of `LinearPredictor`, correctly rounded, and the column of the largest exact one.

    Buffers: weight float64 (K, d), bias float64 (K,), exact; `limbs`, what they are cut into, so that no sum
    of products reaches 2^53 and every one is exact."""
    FORMULA = 'logits = u weight^T + bias, u = round(2^18 x / |x|) / 2^18'

    def __init__(self, predictor: LinearPredictor):
        super().__init__()
        self.lifted = _lifted(predictor)
        if predictor.lift is not None:
            formula = self.FORMULA.replace('= u weight', '= h weight') + _OF_LIFT[predictor.lift.kind]
            self.FORMULA = f'{formula}, in units of 2^-18'
        limbs, self.width = predictor.limbs()
        self.unit = 2.0 ** (predictor.exponent - GRID_BITS)
        self.register_buffer('weight', torch.from_numpy(predictor.weight))
        self.register_buffer('bias', torch.from_numpy(predictor.bias))
        self.register_buffer('limbs', torch.from_numpy(np.stack(limbs)), persistent=False)

    def forward(self, features: torch.Tensor) -> tuple:
        """(logits float64 (N, K), column int64 (N,) of the largest) of features (N, d) on the grid."""
        high, low = exact_logits(self.lifted(features), self.limbs, self.width, torch.floor)
        logits = (high * 2.0 ** (self.width * (len(self.limbs) - 1)) + low) * self.unit
        largest = high == high.amax(dim=1, keepdim=True)
        return logits, torch.where(largest, low, -1.0).argmax(dim=1)


class ScaledLinear(nn.Module):
    """f*: scale (W h + b) of features brought to unit length and lifted, in float64."""
    FORMULA = 'logits = scale (u weight^T + bias), u = x / |x|'

    def __init__(self, predictor: AdaptedPredictor):
        super().__init__()
        self.lifted = _lifted(predictor, exact=False)
        if predictor.lift is not None:
            self.FORMULA = self.FORMULA.replace('u weight', 'h weight') + '; h = [u, random features of u]'
        for name in ('weight', 'bias'):
            self.register_buffer(name, torch.from_numpy(getattr(predictor, name)).double())
        self.register_buffer('scale', torch.tensor(predictor.scale, dtype=torch.float64))

    def forward(self, features: torch.Tensor) -> tuple:
        features = features.double()
        norm = (features * features).sum(dim=1, keepdim=True).sqrt()
        h = self.lifted(features / norm.clamp(min=1e-12))
        logits = self.scale * (h @ self.weight.T + self.bias)
        return logits, logits.argmax(dim=1)
