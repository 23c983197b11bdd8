"""What layers compute. Pictures are `[B, height, width, channels]`, sequences `[B, T, width]`."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

# What keeps the division of a normalisation finite.
EPSILON = 1e-5
# What stands in for minus infinity: a position that may see nothing at all still gets weights that are numbers.
BLOCKED_SCORE = -1e4
# How much of the past a running average keeps at each step.
DECAY = 0.9

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": functional.relu, "softplus": functional.softplus}


def same_padding(size: int, window: int, stride: int) -> tuple[int, int]:
    """Say what is missing for `ceil(size / stride)` windows: half of it on each side, and an odd one at the end."""
    missing = max(0, (math.ceil(size / stride) - 1) * stride + window - size)
    return missing // 2, missing - missing // 2


def _padded(x: Tensor, window: int, stride: int, value: float) -> Tensor:
    """Pad `[B, C, height, width]`."""
    height, width = x.shape[2:]
    return functional.pad(x, (*same_padding(width, window, stride), *same_padding(height, window, stride)), value=value)


def convolve(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Convolve with SAME padding; `weight` is `[to, from, window, window]`."""
    padded = _padded(x.permute(0, 3, 1, 2), weight.shape[2], stride, 0.0)
    return functional.conv2d(padded, weight, stride=stride).permute(0, 2, 3, 1)


def max_pool(x: Tensor) -> Tensor:
    """Take the largest number of the 3 x 3 pixels around every second one."""
    padded = _padded(x.permute(0, 3, 1, 2), 3, 2, -math.inf)
    return functional.max_pool2d(padded, 3, stride=2).permute(0, 2, 3, 1)


def widen(x: Tensor, channels: int) -> Tensor:
    """Take every second pixel, with channels of zero on both sides."""
    missing = channels - x.shape[3]
    return functional.pad(x[:, ::2, ::2], (missing // 2, missing - missing // 2))


def group_norm(x: Tensor, groups: int, affine: tuple[Tensor, Tensor], *, by_row: bool) -> Tensor:
    """Normalise over the plane of a group of channels, or over every row of it."""
    samples, height, width, channels = x.shape
    count, pixels = (samples * height, width) if by_row else (samples, height * width)
    pieces = x.reshape(count, pixels, groups, channels // groups)
    variance, mean = torch.var_mean(pieces, dim=(1, 3), correction=0, keepdim=True)
    normal = (pieces - mean) * torch.rsqrt(variance + EPSILON)
    return normal.reshape(x.shape) * affine[0] + affine[1]


def layer_norm(x: Tensor, affine: tuple[Tensor, Tensor]) -> Tensor:
    """Normalise every position."""
    return functional.layer_norm(x, x.shape[-1:], *affine, eps=EPSILON)


def batch_norm(
    x: Tensor, affine: tuple[Tensor, Tensor], running: tuple[Tensor, Tensor, Tensor], *, training: bool
) -> Tensor:
    """Normalise every channel over the batch, or by the running statistics, which a batch in training moves."""
    if training:
        variance, mean = torch.var_mean(x, dim=tuple(range(x.dim() - 1)), correction=0)
        _observe(running, mean.detach(), variance.detach())
    else:
        mean, variance, _ = running
    return (x - mean) * torch.rsqrt(variance + EPSILON) * affine[0] + affine[1]


def _observe(running: tuple[Tensor, Tensor, Tensor], *batch: Tensor) -> None:
    """Take the average of all batches so far, with weights that fall by 0.9 a step into the past."""
    step = float(running[2]) + 1.0
    total = 1.0 - DECAY**step
    for average, new in zip(running, batch, strict=False):
        average.mul_(DECAY * (1.0 - DECAY ** (step - 1.0)) / total).add_(new, alpha=(1.0 - DECAY) / total)
    running[2].add_(1.0)


def blocked_positions(symbols: Tensor) -> Tensor:
    """Say where attention may not go: to the future, and to padding (symbol 0). `[B, 1, T, T]`, queries first."""
    length = symbols.shape[1]
    future = torch.ones(length, length, dtype=torch.bool, device=symbols.device).triu(1)
    return (symbols == 0)[:, None, None, :] | future


def transformer(
    layers: list[list[Tensor]], heads: int, inputs: tuple[Tensor, Tensor], blocked: Tensor, masks: Tensor | None
) -> Tensor:
    """Run transformer layers, with 16 parameters each, and multipliers of dropout `[B, 2 * layers, T, width]`.

    `inputs` are what goes into the first layer, and what is added before every layer.
    """
    h, injection = inputs
    for index, layer in enumerate(layers):
        (norm_1, query, key, value, output, norm_2, widen_, narrow) = (
            (layer[at], layer[at + 1]) for at in range(0, 16, 2)
        )
        h = h + injection
        x = layer_norm(h, norm_1)
        seen = attention(_dense(x, query), _dense(x, key), _dense(x, value), blocked, heads)
        h = h + _dropped(_dense(seen, output), masks, 2 * index)
        inner = functional.gelu(_dense(layer_norm(h, norm_2), widen_), approximate="tanh")
        h = h + _dropped(_dense(inner, narrow), masks, 2 * index + 1)
    return h


def attention(query: Tensor, key: Tensor, value: Tensor, blocked: Tensor, heads: int) -> Tensor:
    """`softmax(Q K^T / sqrt(d)) V` for every head."""
    samples, length, width = query.shape

    def split(x: Tensor) -> Tensor:
        return x.reshape(samples, length, heads, width // heads).transpose(1, 2)

    scores = split(query) @ split(key).transpose(2, 3) / math.sqrt(width // heads)
    weights = torch.softmax(scores.masked_fill(blocked, BLOCKED_SCORE), dim=3)
    return (weights @ split(value)).transpose(1, 2).reshape(samples, length, width)


def _dense(x: Tensor, weight_and_bias: tuple[Tensor, Tensor]) -> Tensor:
    weight, bias = weight_and_bias
    return x @ weight + bias


def _dropped(x: Tensor, masks: Tensor | None, site: int) -> Tensor:
    return x if masks is None else x * masks[:, site]
