"""The networks by name, and their weights from our files."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from .layers import BatchNorm
from .text import Attention, DeqTransformer
from .vision import DeqResNet, Mlp, ResNet

Network = DeqResNet | ResNet | Mlp | DeqTransformer
FEMNIST = ((28, 28, 1), 62)
CIFAR10 = ((32, 32, 3), 10)
TEXT = (16, 90)


def build(model: str, solver_steps: int, dropout: float = 0.0) -> Network:
    """The network that our program calls `model`, on the data the paper uses it for, with random weights."""
    match model:
        case "deq-resnet-s":
            return DeqResNet(64, *FEMNIST, solver_steps)
        case "deq-resnet-m":
            return DeqResNet(128, *CIFAR10, solver_steps)
        case "resnet-20":
            return ResNet([32, 64, 128, 256], [2, 3, 2, 2], 1, 62, cifar=False)
        case "resnet-34":
            return ResNet([64, 128, 256], [5, 6, 5], 3, 10, cifar=True)
        case "mlp":
            return Mlp(28 * 28, 128, 62)
        case "deq-transformer":
            return DeqTransformer(*TEXT, solver_steps, dropout)
    raise ValueError(f"there is no model `{model}`")


def load(network: Network, file: Path) -> Network:
    """Fills a network with the weights of a safetensors file; every tensor of the file must find its place."""
    values = load_file(file)
    with torch.no_grad():
        for path, module in network.named_modules():
            fill(module, path, values)
    if values:
        raise ValueError(f"`{file}` holds `{min(values)}`, which this network has not")
    return network.to(memory_format=torch.channels_last) if isinstance(network, ResNet) else network


def fill(module: nn.Module, path: str, values: dict[str, Tensor]) -> None:
    """Takes a module's tensors out of `values`: ours are `scale` and `offset` for normalisations, `[in, out]` for dense layers."""
    match module:
        case Attention():
            parts = [
                (values.pop(f"{path}.{name}.weight").T, values.pop(f"{path}.{name}.bias")) for name in ("query", "key", "value")
            ]
            module.qkv.weight.copy_(torch.cat([weight for weight, _ in parts]))
            module.qkv.bias.copy_(torch.cat([bias for _, bias in parts]))
        case nn.Linear() if f"{path}.weight" in values:
            module.weight.copy_(values.pop(f"{path}.weight").T)
            module.bias.copy_(values.pop(f"{path}.bias"))
        case nn.Conv2d() | nn.Embedding():
            module.weight.copy_(values.pop(f"{path}.weight"))
        case nn.GroupNorm() | nn.LayerNorm() | BatchNorm():
            module.weight.copy_(values.pop(f"{path}.scale"))
            module.bias.copy_(values.pop(f"{path}.offset"))
    if isinstance(module, BatchNorm):
        module.running_mean.copy_(values.pop(f"{path}.mean"))
        module.running_var.copy_(values.pop(f"{path}.variance"))
        module.steps = int(values.pop(f"{path}.steps").item())
