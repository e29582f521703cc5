"""Layers of networks made of exact parts: softmax, cross-entropy, normalisation."""

import torch

from exact_torch.functions import exp, log, rsqrt
from exact_torch.grids import mean, total
from exact_torch.replacements import NotExact, replaces


@replaces('_softmax', '_safe_softmax')
def _softmax(x, dim, *_, **__):
    powers = exp(x - x.amax(dim, True))
    return powers / total(powers, dim, True)


@replaces('_log_softmax')
def _log_softmax(x, dim, half_to_float):
    x = x - x.amax(dim, True)
    return x - log(total(exp(x), dim, True))


@replaces('_log_softmax_backward_data')
def _log_softmax_backward(grad, output, dim, dtype):
    return grad - exp(output) * total(grad, dim, True)


@replaces('nll_loss_forward')
def _nll_loss(log_shares, target, weight, reduction, ignored):
    if weight is not None or reduction != 1 or target.dim() != 1 or (target == ignored).any():
        raise NotExact(
            'a cross-entropy other than the mean over all samples is not known to be exact'
        )
    count = log_shares.new_tensor(len(target))
    return -total(log_shares.gather(1, target[:, None])) / count, count


def _normalised(x, dims, eps):
    """(x less its mean over dims, through its standard deviation; mean, variance, 1 / standard
    deviation).
    """
    middle = mean(x, dims, True)
    centred = x - middle
    variance = mean(centred * centred, dims, True)
    inverse = rsqrt(variance + eps)
    return centred * inverse, middle, variance, inverse


def _scaled(x, weight, bias):
    x = x if weight is None else x.mul_(weight)
    return x if bias is None else x.add_(bias)


@replaces('native_layer_norm')
def _layer_norm(x, shape, weight, bias, eps):
    out, middle, _, inverse = _normalised(x, list(range(-len(shape), 0)), eps)
    return _scaled(out, weight, bias), middle, inverse


@replaces('native_group_norm')
def _group_norm(x, weight, bias, count, channels, area, groups, eps):
    out, middle, _, inverse = _normalised(x.reshape(count, groups, -1), -1, eps)
    weight, bias = (part if part is None else part.view(-1, 1) for part in (weight, bias))
    out = _scaled(out.reshape(count, channels, area), weight, bias).view(x.shape)
    return out, middle.view(count, groups), inverse.view(count, groups)


def _channelwise(part, x):
    """A number a channel, for (B, C, ...)."""
    return None if part is None else part.view(-1, *[1] * (x.dim() - 2))


@replaces('native_batch_norm')
def _batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    if not training:
        gain = rsqrt(running_var + eps)
        gain = gain if weight is None else gain * weight
        out = x - _channelwise(running_mean, x)
        out = _scaled(out, _channelwise(gain, x), _channelwise(bias, x))
        return out, x.new_zeros(0), x.new_zeros(0)
    out, middle, variance, inverse = _normalised(x, [0, *range(2, x.dim())], eps)
    middle = middle.flatten()
    variance = variance.flatten()
    if running_mean is not None:
        count = x.numel() // x.shape[1]
        running_mean.mul_(1 - momentum).add_(middle * momentum)
        running_var.mul_(1 - momentum).add_(variance * (count / max(count - 1, 1)) * momentum)
    out = _scaled(out, _channelwise(weight, x), _channelwise(bias, x))
    return out, middle, inverse.flatten()


@replaces('native_batch_norm_backward')
def _batch_norm_backward(
    grad, x, weight, running_mean, running_var, middle, inverse, training, eps, wanted
):
    if not training:
        middle = running_mean
        inverse = rsqrt(running_var + eps)
    gain = _channelwise(inverse if weight is None else inverse * weight, x)
    of_weight = of_bias = None
    if training or wanted[1] or wanted[2]:
        normal = (x - _channelwise(middle, x)) * _channelwise(inverse, x)
        dims = [0, *range(2, x.dim())]
        of_weight = total(grad * normal, dims)
        of_bias = total(grad, dims)
        if training:
            count = torch.full_like(of_bias, x.numel() // x.shape[1])
            share = normal * _channelwise(of_weight / count, x)
            grad = grad - _channelwise(of_bias / count, x) - share
    return grad * gain, of_weight, of_bias
