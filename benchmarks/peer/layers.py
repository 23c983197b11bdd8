"""Building blocks: TensorFlow's SAME padding, pooling, and batch normalisation with debiased running statistics."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPSILON = 1e-5
GROUPS = 8
DECAY = 0.9


class Conv(nn.Conv2d):
    """A convolution with SAME padding and no bias; an odd total of padding goes to the end."""

    def __init__(self, inputs: int, outputs: int, window: int = 3, stride: int = 1) -> None:
        super().__init__(inputs, outputs, window, stride, padding=window // 2 if stride == 1 else 0, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.stride[0] == 1 or self.kernel_size[0] == 1:
            return super().forward(x)
        before = [
            size % 2 for size in x.shape[-2:]
        ]  # A window of 3 moved by 2: nothing before an even size, 1 before an odd one.
        return super().forward(F.pad(x, (before[1], 1, before[0], 1)))


def max_pool(x: Tensor) -> Tensor:
    """3x3 windows moved by 2, SAME padding by minus infinity; sizes must be even, where rounding up does just that."""
    return F.max_pool2d(x, 3, 2, ceil_mode=True)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of `[B, C]` or `[B, C, H, W]` whose running statistics are averages of all batches so far."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=EPSILON)
        self.steps = 0

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        momentum = (1.0 - DECAY) / (1.0 - DECAY**self.steps)
        return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, True, momentum, self.eps)


def group_norm(channels: int) -> nn.GroupNorm:
    """Textbook group normalisation."""
    return nn.GroupNorm(GROUPS, channels, eps=EPSILON)


class DenseEnd(nn.Module):
    """The shared end of image networks: two dense layers and a normalisation."""

    def __init__(self, inputs: int, activation: nn.Module) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, 256)
        self.fc2 = nn.Linear(256, 128)
        self.norm = BatchNorm(128)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.activation(self.fc2(self.activation(self.fc1(x)))))


class Stem(nn.Module):
    """The beginning of image networks: a convolution, an activation and a normalisation, in either order."""

    def __init__(self, inputs: int, outputs: int, activation: nn.Module, norm_first: bool) -> None:
        super().__init__()
        self.conv = Conv(inputs, outputs)
        self.norm = BatchNorm(outputs)
        self.activation = activation
        self.norm_first = norm_first

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        return self.activation(self.norm(x)) if self.norm_first else self.norm(self.activation(x))


def every_second_pixel(x: Tensor, channels: int) -> Tensor:
    """A shortcut without parameters: half the plane, channels of zero added on both sides."""
    missing = channels - x.shape[1]
    if missing == 0:
        return x
    return F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, missing // 2, missing - missing // 2))


def channels_first(x: Tensor) -> Tensor:
    """`[B, H, W, C] -> [B, C, H, W]` without a copy: the memory stays channels-last."""
    return torch.permute(x, (0, 3, 1, 2))
