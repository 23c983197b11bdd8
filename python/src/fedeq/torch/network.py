"""A network of fedeq, which is data, as a PyTorch module."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any, Self, TypeAlias

import numpy as np
import safetensors.torch
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from fedeq._given import access, refuse
from fedeq._given import path as given_path
from fedeq._network_file import NetworkFile
from fedeq.torch import layers
from fedeq.torch.adjoint import attach
from fedeq.torch.solve import SolveReport, solve

Values: TypeAlias = dict[int, Tensor]


class Network(nn.Module):
    """A network of ours: explicit, or an equilibrium that is solved for.

    Inputs are what the engine's networks see: pictures `[B, height, width, channels]` and vectors `[B, width]` as
    scaled numbers (`prepare` scales), sequences `[B, T]` as symbols with 0 for padding. Outputs are logits
    `[B, classes]`, for sequences `[B, T, classes]`.

    Parameters and statistics have the names of the files, so that `state_dict()` is what a file holds. In training,
    batch normalisation moves its statistics as the engine does; dropout is drawn from PyTorch's own generator.

    >>> import fedeq.torch, torch
    >>> task = {"input": {"kind": "vector", "width": 4}, "classes": 3}
    >>> network = fedeq.torch.create("deq-mlp", task)
    >>> network(torch.ones(2, 4)).shape, network.personal
    (torch.Size([2, 3]), ('head.weight', 'head.bias'))
    >>> network.last_solve.steps.shape, network.last_solve.residual.shape
    (torch.Size([2]), torch.Size([2]))
    """

    graph: dict[str, Any]
    """The network as data, as its file has it (docs/pytorch.md)."""
    scaling: dict[str, Any] | None
    """How `prepare` scales pixels and features; None where they are not scaled."""
    class_names: tuple[str, ...]
    """What the columns of the logits are called; empty where they have no names."""
    last_solve: SolveReport | None
    """How the last solve went, in an equilibrium network; None before the first."""

    def __init__(
        self, graph: dict[str, Any], scaling: dict[str, Any] | None = None, classes: tuple[str, ...] = ()
    ) -> None:
        """Make a network whose numbers are all zero; see `load` and `create` for others."""
        super().__init__()
        self.graph = graph
        self.scaling = scaling
        self.class_names = classes
        self.last_solve = None
        for parameter in graph["parameters"]:
            place, name = _place(self, parameter["path"])
            place.register_parameter(name, nn.Parameter(torch.zeros(parameter["shape"])))
        for layer in graph["statistics"]:
            for name, count in (("mean", layer["channels"]), ("variance", layer["channels"]), ("steps", 1)):
                place, last = _place(self, f"{layer['path']}.{name}")
                place.register_buffer(last, torch.zeros(count))

    @classmethod
    def from_file(cls, file: NetworkFile) -> Self:
        """Make the network that a file holds."""
        network = cls(file.graph, file.scaling, file.classes)
        network.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in file.arrays.items()})
        return network

    @property
    def personal(self) -> tuple[str, ...]:
        """The names of the parameters that are the client's own; all others came from the shared part."""
        return tuple(each["path"] for each in self.graph["parameters"] if each["part"] == "personal")

    @property
    def equilibrium(self) -> dict[str, Any] | None:
        """How the fixed point is found and differentiated, or None in an explicit network.

        What is changed here holds from then on: `network.equilibrium["adjoint"] = "jacobian-free"`. The form is that
        of `model.equilibrium` in an experiment.
        """
        for layer in self.graph["layers"]:
            if layer["kind"] == "equilibrium":
                settings: dict[str, Any] = layer["settings"]
                return settings
        return None

    def prepare(self, x: ArrayLike) -> Tensor:
        """Turn pixels and features as they are in the data into what the network sees."""
        if self.graph["values"][0] == "symbols":
            return torch.as_tensor(np.asarray(x, dtype=np.int64))
        values = np.asarray(x, dtype=np.float32)
        if self.scaling is not None:
            mean, deviation = (np.asarray(self.scaling[name], dtype=np.float32) for name in ("mean", "deviation"))
            values = (values / np.float32(self.scaling["white"]) - mean) / deviation
        return torch.from_numpy(values.copy())

    def forward(self, x: Tensor) -> Tensor:
        """Give the logits."""
        return self._run(x)[self.graph["logits"]]

    def embed(self, x: Tensor) -> Tensor:
        """Give what stands for a sample (for text, a position) in nearest-neighbour methods."""
        return self._run(x)[self.graph["embedding"]]

    def save(self, path: str | PathLike[str]) -> None:
        """Write a file that `load` reads, in the form of `fedeq export`."""
        notes = {
            "network": json.dumps(self.graph),
            "scaling": json.dumps(self.scaling),
            "classes": json.dumps(self.class_names),
        }
        arrays = {name: value.detach().float().contiguous() for name, value in self.state_dict().items()}
        file = given_path(path, "path")
        with access(file, "write"):
            file.write_bytes(safetensors.torch.save(arrays, metadata={"fedeq": json.dumps(notes)}))

    def _run(self, x: Tensor) -> Values:
        _expect(self.graph, x)
        values = {0: x}
        for layer in self.graph["layers"]:
            values[layer["y"]] = self._layer(layer, values)
        return values

    def _layer(self, layer: dict[str, Any], values: Values) -> Tensor:
        run = _LAYERS.get(layer["kind"])
        if run is None:
            problem = f"this version of the Python package knows no layer `{layer['kind']}`"
            refuse(problem, "use the version that wrote the file, or a newer one")
        return run(self, layer, values)

    def _parameter(self, index: int) -> Tensor:
        return self.get_parameter(self.graph["parameters"][index]["path"])

    def _affine(self, affine: dict[str, int]) -> tuple[Tensor, Tensor]:
        return self._parameter(affine["scale"]), self._parameter(affine["offset"])

    def _conv(self, layer: dict[str, Any], values: Values) -> Tensor:
        return layers.convolve(values[layer["x"]], self._parameter(layer["weight"]), layer["stride"])

    def _norm(self, layer: dict[str, Any], values: Values) -> Tensor:
        fusion = layer["fusion"]
        written: dict[str, Any] = {fusion: None} if isinstance(fusion, str) else fusion
        fused, what = next(iter(written.items()))
        x = values[layer["x"]]
        if fused == "before":
            x = layers.ACTIVATIONS[what](x)
        y = self._normalised(x, layer["over"], self._affine(layer["affine"]))
        if fused == "after":
            return layers.ACTIVATIONS[what](y)
        if fused == "add-then":
            return layers.ACTIVATIONS[what[1]](y + values[what[0]])
        return y

    def _normalised(self, x: Tensor, over: dict[str, Any], affine: tuple[Tensor, Tensor]) -> Tensor:
        ((scope, what),) = over.items()
        if scope == "batch":
            path = self.graph["statistics"][what["statistics"]]["path"]
            mean, variance, steps = (self.get_buffer(f"{path}.{name}") for name in ("mean", "variance", "steps"))
            return layers.batch_norm(x, affine, (mean, variance, steps), training=self.training)
        picture = x if x.dim() == PICTURE else x[:, None, None, :]  # A vector is a picture of one pixel.
        return layers.group_norm(picture, what, affine, by_row=scope == "row-groups").reshape(x.shape)

    def _max_pool(self, layer: dict[str, Any], values: Values) -> Tensor:
        return layers.max_pool(values[layer["x"]])

    def _mean_pool(self, layer: dict[str, Any], values: Values) -> Tensor:
        return values[layer["x"]].mean(dim=(1, 2))

    def _widen(self, layer: dict[str, Any], values: Values) -> Tensor:
        return layers.widen(values[layer["x"]], self.graph["values"][layer["y"]]["image"][2])

    def _dense(self, layer: dict[str, Any], values: Values) -> Tensor:
        x = values[layer["x"]]
        y = (x.flatten(1) if x.dim() == PICTURE else x) @ self._parameter(layer["weight"])
        if layer["bias"] is not None:
            y = y + self._parameter(layer["bias"])
        return y if layer["activation"] is None else layers.ACTIVATIONS[layer["activation"]](y)

    def _embed(self, layer: dict[str, Any], values: Values) -> Tensor:
        symbols = values[0]
        vectors = nn.functional.embedding(symbols, self._parameter(layer["tokens"]))
        if layer["positions"] is None:
            return vectors
        return vectors + self._parameter(layer["positions"])[: symbols.shape[1]]

    def _scale(self, layer: dict[str, Any], values: Values) -> Tensor:
        factor: float = layer["factor"]
        return values[layer["x"]] * factor

    def _transformer(self, layer: dict[str, Any], values: Values) -> Tensor:
        injection = values[layer["injection"]]
        h = torch.zeros_like(injection) if layer["h"] is None else values[layer["h"]]
        around = self._around(layer["layers"], injection, values)
        return self._stack(layer["layers"], h, around)

    def _layer_norm(self, layer: dict[str, Any], values: Values) -> Tensor:
        return layers.layer_norm(values[layer["x"]], self._affine(layer["affine"]))

    def _equilibrium(self, layer: dict[str, Any], values: Values) -> Tensor:
        cell, settings = layer["cell"], layer["settings"]
        around = self._around(cell.get("layers"), values[layer["injection"]], values)
        shape, count = around.u.shape, len(around.u)
        frozen = around.detached()

        def step(z: Tensor, present: Tensor) -> Tensor:
            here = frozen if len(present) == count else frozen.only(present)
            return self._cell(cell, z.reshape(-1, *shape[1:]), here).reshape(z.shape)

        with torch.no_grad():
            start = self._start(cell, frozen.u).reshape(count, -1)
            found = solve(step, start, settings["solver"], settings["stop"], settings["options"]["shrink_below"])
        self.last_solve = found.report
        wants_gradient = around.u.requires_grad or any(each.requires_grad for each in self.parameters())
        if not (torch.is_grad_enabled() and wants_gradient):
            return found.image.reshape(shape)
        return attach(lambda z: self._cell(cell, z, around), found.z.reshape(shape), settings["adjoint"])

    def _repeat(self, layer: dict[str, Any], values: Values) -> Tensor:
        cell = layer["cell"]
        around = self._around(cell.get("layers"), values[layer["injection"]], values)
        z = self._start(cell, around.u)
        for _ in range(layer["times"]):
            z = self._cell(cell, z, around)
        return z

    def _start(self, cell: dict[str, Any], u: Tensor) -> Tensor:
        return torch.zeros_like(u) if cell["kind"] == "transformer" else u

    def _cell(self, cell: dict[str, Any], z: Tensor, around: "_Around") -> Tensor:
        """`g(z; u)`."""
        if cell["kind"] not in {"dense", "residual", "transformer"}:
            problem = f"this version of the Python package knows no cell `{cell['kind']}`"
            refuse(problem, "use the version that wrote the file, or a newer one")
        if cell["kind"] == "dense":
            return layers.ACTIVATIONS[cell["activation"]](z @ self._parameter(cell["weight"]) + around.u)
        if cell["kind"] == "residual":
            return self._residual_cell(cell, z, around.u)
        return layers.layer_norm(self._stack(cell["layers"], z, around), self._affine(cell["norm"]))

    def _residual_cell(self, cell: dict[str, Any], z: Tensor, u: Tensor) -> Tensor:
        """`GN3(phi(z + GN2(u + conv_b(GN1(phi(conv_a(z)))))))`."""
        phi = layers.ACTIVATIONS[cell["activation"]]

        def conv(x: Tensor, name: str) -> Tensor:
            return layers.convolve(x, self._parameter(cell[name]), 1)

        def norm(x: Tensor, name: str) -> Tensor:
            return self._normalised(x, cell["over"], self._affine(cell[name]))

        inner = norm(phi(conv(z, "conv_a")), "norm_1")
        return norm(phi(z + norm(u + conv(inner, "conv_b"), "norm_2")), "norm_3")

    def _stack(self, stack: dict[str, Any], h: Tensor, around: "_Around") -> Tensor:
        parameters = [[self._parameter(index) for index in layer] for layer in stack["layers"]]
        if around.blocked is None:
            refuse("the network has attention and reads no symbols", "write the file again with `fedeq export`")
        return layers.transformer(parameters, stack["heads"], (h, around.u), around.blocked, around.masks)

    def _around(self, stack: dict[str, Any] | None, u: Tensor, values: Values) -> "_Around":
        """Draw masks of dropout once for a pass: they stay the same during a solve."""
        if stack is None:
            return _Around(u, None, None)
        rate, masks = stack["dropout"]["rate"], None
        if self.training and rate > 0.0:
            samples, length, width = u.shape
            shape = (samples, 2 * len(stack["layers"]), length, width)
            masks = (torch.rand(shape, device=u.device) >= rate).to(u.dtype) / (1.0 - rate)
        return _Around(u, layers.blocked_positions(values[0]), masks)


PICTURE = 4
"""Axes of a batch of pictures."""

_LAYERS: dict[str, Callable[[Network, dict[str, Any], Values], Tensor]] = {
    "conv": Network._conv,  # noqa: SLF001
    "norm": Network._norm,  # noqa: SLF001
    "max-pool": Network._max_pool,  # noqa: SLF001
    "mean-pool": Network._mean_pool,  # noqa: SLF001
    "widen": Network._widen,  # noqa: SLF001
    "dense": Network._dense,  # noqa: SLF001
    "embed": Network._embed,  # noqa: SLF001
    "scale": Network._scale,  # noqa: SLF001
    "transformer": Network._transformer,  # noqa: SLF001
    "layer-norm": Network._layer_norm,  # noqa: SLF001
    "equilibrium": Network._equilibrium,  # noqa: SLF001
    "repeat": Network._repeat,  # noqa: SLF001
}


@dataclass(frozen=True)
class _Around:
    """What is injected into a cell, where its attention may not go, and the multipliers of its dropout."""

    u: Tensor
    blocked: Tensor | None
    masks: Tensor | None

    def only(self, rows: Tensor) -> "_Around":
        blocked, masks = (None if each is None else each[rows] for each in (self.blocked, self.masks))
        return _Around(self.u[rows], blocked, masks)

    def detached(self) -> "_Around":
        return _Around(self.u.detach(), self.blocked, self.masks)


def _place(root: nn.Module, path: str) -> tuple[nn.Module, str]:
    """Find the module that a path leads to, made where there is none, and the last name of the path."""
    *names, last = path.split(".")
    for name in names:
        if name not in root._modules:  # noqa: SLF001
            root.add_module(name, nn.Module())
        root = root.get_submodule(name)
    return root, last


def _expect(graph: dict[str, Any], x: Tensor) -> None:
    """Refuse an input that the network does not take."""
    task = graph["task"]["input"]
    if task["kind"] == "symbols":
        fits = x.dim() == 2 and 1 <= x.shape[1] <= task["length"]  # noqa: PLR2004
        wanted = f"[B, T] with T from 1 to {task['length']}"
        if x.is_floating_point():
            refuse(f"symbols are given as `{x.dtype}`", "give them as integers, such as `torch.int64`")
        if fits and x.numel() > 0 and not bool(((x >= 0) & (x < task["vocabulary"])).all()):
            refuse(f"a symbol is not below {task['vocabulary']}", f"use 0 to {task['vocabulary'] - 1}")
    else:
        names = ("height", "width", "channels") if task["kind"] == "image" else ("width",)
        shape = [task[name] for name in names]
        fits, wanted = list(x.shape[1:]) == shape, f"[B, {', '.join(map(str, shape))}]"
        if not x.is_floating_point():
            refuse(f"numbers are given as `{x.dtype}`", "turn them into what the network sees with `prepare`")
    if not fits:
        refuse(f"an input of shape `{list(x.shape)}` does not fit the network", f"give one of shape {wanted}")
