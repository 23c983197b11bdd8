"""The networks for images: DEQ-ResNet-S and -M, ResNet-20 (FEMNIST) and ResNet-34 (CIFAR-10), and a multi-layer perceptron."""

from torch import Tensor, nn
from torch.nn import functional as F

from .equilibrium import settle
from .layers import BatchNorm, Conv, DenseEnd, Stem, channels_first, every_second_pixel, group_norm, max_pool


class ImageCell(nn.Module):
    """`GN3(softplus(z + GN2(u + conv_b(GN1(softplus(conv_a(z)))))))`."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv_a = Conv(channels, 2 * channels)
        self.norm_1 = group_norm(2 * channels)
        self.conv_b = Conv(2 * channels, channels)
        self.norm_2 = group_norm(channels)
        self.norm_3 = group_norm(channels)

    def forward(self, z: Tensor, u: Tensor) -> Tensor:
        inner = self.norm_1(F.softplus(self.conv_a(z)))
        change = self.norm_2(u + self.conv_b(inner))
        return self.norm_3(F.softplus(z + change))


class DeqResNet(nn.Module):
    """One residual block applied until nothing changes any more."""

    def __init__(self, channels: int, shape: tuple[int, int, int], classes: int, solver_steps: int) -> None:
        super().__init__()
        side = shape[0] // 4
        self.stem = Stem(shape[2], channels, nn.Softplus(), norm_first=False)
        self.cell = ImageCell(channels)
        self.dense = DenseEnd(side * side * channels, nn.Softplus())
        self.head = nn.Linear(128, classes)
        self.solver_steps = solver_steps

    def represent(self, x: Tensor) -> Tensor:
        u = max_pool(self.stem(channels_first(x))).contiguous()  # Measured: channels first is 5 % faster here, last in ResNets.
        z = settle(lambda z: self.cell(z, u), u, self.solver_steps)
        return self.dense(max_pool(z).permute(0, 2, 3, 1).flatten(1))

    def predict(self, representation: Tensor) -> Tensor:
        return self.head(representation)

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(self.represent(x))


class Projection(nn.Module):
    """A shortcut with parameters: 1x1, every second pixel."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = Conv(inputs, outputs, window=1, stride=2)
        self.norm = BatchNorm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Block(nn.Module):
    """A basic residual block; one that widens its channels also halves the plane."""

    def __init__(self, inputs: int, outputs: int, project: bool) -> None:
        super().__init__()
        self.conv_1 = Conv(inputs, outputs, stride=1 if inputs == outputs else 2)
        self.norm_1 = BatchNorm(outputs)
        self.conv_2 = Conv(outputs, outputs)
        self.norm_2 = BatchNorm(outputs)
        self.shortcut = Projection(inputs, outputs) if project and inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm_2(self.conv_2(F.relu(self.norm_1(self.conv_1(x)))))
        shortcut = self.shortcut(x) if self.shortcut is not None else every_second_pixel(x, inner.shape[1])
        return F.relu(inner + shortcut)


class ResNet(nn.Module):
    """Residual blocks in stages; CIFAR's manner has the stem's activation first and shortcuts without parameters."""

    def __init__(self, channels: list[int], blocks: list[int], inputs: int, classes: int, cifar: bool) -> None:
        super().__init__()
        self.stem = Stem(inputs, channels[0], nn.ReLU(), norm_first=not cifar)
        before = [channels[0], *channels[:-1]]
        self.stages = nn.ModuleList(
            nn.Sequential(*(Block(old if number == 0 else new, new, project=not cifar) for number in range(count)))
            for old, new, count in zip(before, channels, blocks, strict=True)
        )
        self.dense = DenseEnd(channels[-1], nn.ReLU())
        self.head = nn.Linear(128, classes)

    def represent(self, x: Tensor) -> Tensor:
        x = self.stem(channels_first(x))
        for stage in self.stages:
            x = stage(x)
        return self.dense(x.mean((2, 3)))

    def predict(self, representation: Tensor) -> Tensor:
        return self.head(representation)

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(self.represent(x))


class Mlp(nn.Module):
    """One hidden layer."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(inputs, hidden)])
        self.head = nn.Linear(hidden, classes)

    def represent(self, x: Tensor) -> Tensor:
        return F.relu(self.layers[0](x.flatten(1)))

    def predict(self, representation: Tensor) -> Tensor:
        return self.head(representation)

    def forward(self, x: Tensor) -> Tensor:
        return self.predict(self.represent(x))
