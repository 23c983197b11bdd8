"""The samples and the order of the batches, as our program wrote them."""

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

Batch = tuple[Tensor, Tensor]


class Data:
    """Samples kept as bytes and turned into numbers batch by batch, and who trains on which of them in which order."""

    def __init__(self, file: Path) -> None:
        tensors = load_file(file)
        self.targets = tensors.pop("targets").long()
        self.pixels = tensors.pop("pixels", None)
        self.symbols = tensors.pop("symbols", None)
        self.orders = {name: order.long() for name, order in tensors.items()}

    def batches(self, client: int, phase: str, epoch: int, size: int) -> Iterator[Batch]:
        """The batches of one pass; all of them have the same size."""
        order = self.orders[f"order/{client}/{phase}/{epoch}"]
        for indices in order.split(size):
            yield self.inputs(indices), self.targets[indices]

    def inputs(self, indices: Tensor) -> Tensor:
        """Images as `[B, height, width, channels]` between 0 and 1, or symbols as `[B, T]`."""
        if self.pixels is not None:
            return self.pixels[indices].to(torch.float32).div_(255.0)
        return self.symbols[indices].long()

    def to(self, device: str) -> "Data":
        """The samples on a device; the orders stay where they are."""
        self.targets = self.targets.to(device)
        self.pixels = None if self.pixels is None else self.pixels.to(device)
        self.symbols = None if self.symbols is None else self.symbols.to(device)
        return self

    def samples(self, client: int) -> int:
        """How many samples a client trains on."""
        return len(self.orders[f"order/{client}/body/0"])
