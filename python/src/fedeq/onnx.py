"""Explicit networks of fedeq as ONNX files.

The graph is written layer by layer from the network's own data, with its numbers in it; batch size and the length of
sequences stay open. Equilibrium networks are refused: their solver stops sample by sample, for which ONNX has no
operation. Use `fedeq.torch` for them.
"""

import json
import math
from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedeq._extra import not_installed

try:
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    raise ImportError(not_installed("onnx", "onnx"), name="onnx") from error

from fedeq._given import access, refuse
from fedeq._given import path as given_path
from fedeq._network_file import NetworkFile, Source, read

__all__ = ["export"]

# The first with GELU. Runtimes of 2024 and later know it.
OPSET = 20
IR_VERSION = 9
EPSILON = 1e-5
BLOCKED_SCORE = -1e4
ACTIVATIONS = {"relu": "Relu", "softplus": "Softplus"}


def export(source: Source, path: str | PathLike[str], client: str | None = None) -> None:
    """Write the model of a client as an ONNX file.

    `source` is a safetensors file or a folder that `fedeq export` wrote, the folder of a finished run, or a run. The
    file's input is `x`, what the network sees: pictures `[B, height, width, channels]` and vectors `[B, width]` as
    scaled 32-bit floats, sequences `[B, T]` as 64-bit integers; its output is `logits`. How raw inputs are scaled, and
    what the classes are called, is in the file's metadata (`scaling`, `classes`).

    >>> import fedeq, fedeq.onnx, onnx
    >>> run = fedeq.run(method="fedavg", model="mlp", rounds=1, out="runs/first", progress=False)
    >>> fedeq.onnx.export(run, "client-07.onnx", client="client-07")
    >>> graph = onnx.load("client-07.onnx").graph
    >>> [value.name for value in (*graph.input, *graph.output)]
    ['x', 'logits']
    """
    where = given_path(path, "path")
    model = _Writer(read(source, client)).model()
    onnx.checker.check_model(model)
    with access(where, "write"):
        onnx.save_model(model, where)


class _Writer:
    """A network on its way to ONNX."""

    def __init__(self, file: NetworkFile) -> None:
        if any(layer["kind"] == "equilibrium" for layer in file.graph["layers"]):
            name = file.notes.get("model", "the network")
            problem = f"`{name}` solves for an equilibrium, sample by sample, which ONNX cannot express"
            refuse(problem, "use `fedeq.torch.load`, or train an explicit network, such as `tied-resnet-s`")
        self.file = file
        self.graph = file.graph
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.values = {0: "x"}

    def model(self) -> onnx.ModelProto:
        """Write all layers."""
        for layer in self.graph["layers"]:
            run = _LAYERS.get(layer["kind"])
            if run is None:
                problem = f"this version of the Python package knows no layer `{layer['kind']}`"
                refuse(problem, "use the version that wrote the file, or a newer one")
            self.values[layer["y"]] = run(self, layer)
        self.nodes.append(helper.make_node("Identity", [self.values[self.graph["logits"]]], ["logits"]))
        task, classes = self.graph["task"]["input"], self.graph["task"]["classes"]
        if task["kind"] == "symbols":
            shapes = TensorProto.INT64, ["batch", "length"], ["batch", "length", classes]
        else:
            names = ("height", "width", "channels") if task["kind"] == "image" else ("width",)
            shapes = TensorProto.FLOAT, ["batch", *(task[name] for name in names)], ["batch", classes]
        kind, taken, given = shapes
        inputs = [helper.make_tensor_value_info("x", kind, taken)]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, given)]
        graph = helper.make_graph(self.nodes, "fedeq", inputs, outputs, list(self.constants.values()))
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        notes = {key: value for key, value in self.file.notes.items() if key != "network"}
        helper.set_model_props(model, {**notes, "task": json.dumps(self.graph["task"])})
        return model

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:  # noqa: ANN401 (what ONNX takes)
        """Add an operation; give the name of its output."""
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def constant(self, value: NDArray[Any], name: str | None = None) -> str:
        """Add numbers, once for each name."""
        name = name or f"c{len(self.constants)}"
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def number(self, value: float) -> str:
        return self.constant(np.array(value, dtype=np.float32))

    def integers(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def array(self, index: int) -> NDArray[np.float32]:
        return self.file.arrays[self.graph["parameters"][index]["path"]]

    def parameter(self, index: int) -> str:
        return self.constant(self.array(index), self.graph["parameters"][index]["path"])

    def picture(self, value: int) -> tuple[int, int, int]:
        """Give height, width and channels; a vector is a picture of one pixel."""
        shape = self.graph["values"][value]
        height, width, channels = shape.get("image") or (1, 1, shape["vector"])
        return height, width, channels

    def affine(self, x: str, affine: dict[str, int]) -> str:
        scaled = self.op("Mul", x, self.parameter(affine["scale"]))
        return self.op("Add", scaled, self.parameter(affine["offset"]))

    def activated(self, x: str, activation: str | None) -> str:
        return x if activation is None else self.op(ACTIVATIONS[activation], x)

    def convolved(self, x: str, size: tuple[int, int], weight: int, stride: int) -> str:
        window = self.array(weight).shape[2]
        first = self.op("Transpose", x, perm=[0, 3, 1, 2])
        pads = _pads(size, window, stride)
        kernel = {"kernel_shape": [window, window], "strides": [stride, stride], "pads": pads}
        y = self.op("Conv", first, self.parameter(weight), **kernel)
        return self.op("Transpose", y, perm=[0, 2, 3, 1])

    def grouped(self, x: str, shape: tuple[int, int, int], over: dict[str, Any], affine: dict[str, int]) -> str:
        """Normalise over groups of channels, by the plane or by its rows."""
        ((scope, groups),) = over.items()
        height, width, channels = shape
        pixels = width if scope == "row-groups" else height * width
        pieces = self.op("Reshape", x, self.integers(-1, pixels, groups, channels // groups))
        centred = self.op("Sub", pieces, self.op("ReduceMean", pieces, self.integers(1, 3)))
        variance = self.op("ReduceMean", self.op("Mul", centred, centred), self.integers(1, 3))
        deviation = self.op("Sqrt", self.op("Add", variance, self.number(EPSILON)))
        normal = self.op("Reshape", self.op("Div", centred, deviation), self.integers(-1, height, width, channels))
        return self.affine(normal, affine)

    def conv(self, layer: dict[str, Any]) -> str:
        height, width, _ = self.picture(layer["x"])
        return self.convolved(self.values[layer["x"]], (height, width), layer["weight"], layer["stride"])

    def norm(self, layer: dict[str, Any]) -> str:
        fusion = layer["fusion"]
        written: dict[str, Any] = {fusion: None} if isinstance(fusion, str) else fusion
        fused, what = next(iter(written.items()))
        x = self.values[layer["x"]]
        if fused == "before":
            x = self.activated(x, what)
        y = self.normalised(x, layer)
        if fused == "after":
            return self.activated(y, what)
        if fused == "add-then":
            return self.activated(self.op("Add", y, self.values[what[0]]), what[1])
        return y

    def normalised(self, x: str, layer: dict[str, Any]) -> str:
        if "batch" in layer["over"]:
            path = self.graph["statistics"][layer["over"]["batch"]["statistics"]]["path"]
            mean, variance = (self.file.arrays[f"{path}.{name}"].astype(np.float64) for name in ("mean", "variance"))
            scale, offset = (self.array(layer["affine"][name]).astype(np.float64) for name in ("scale", "offset"))
            factor = scale / np.sqrt(variance + EPSILON)
            scaled = self.op("Mul", x, self.constant(factor.astype(np.float32)))
            return self.op("Add", scaled, self.constant((offset - mean * factor).astype(np.float32)))
        shape = self.graph["values"][layer["x"]]
        y = self.grouped(x, self.picture(layer["x"]), layer["over"], layer["affine"])
        return y if "image" in shape else self.op("Reshape", y, self.integers(-1, shape["vector"]))

    def max_pool(self, layer: dict[str, Any]) -> str:
        height, width, _ = self.picture(layer["x"])
        first = self.op("Transpose", self.values[layer["x"]], perm=[0, 3, 1, 2])
        y = self.op("MaxPool", first, kernel_shape=[3, 3], strides=[2, 2], pads=_pads((height, width), 3, 2))
        return self.op("Transpose", y, perm=[0, 2, 3, 1])

    def mean_pool(self, layer: dict[str, Any]) -> str:
        return self.op("ReduceMean", self.values[layer["x"]], self.integers(1, 2), keepdims=0)

    def widen(self, layer: dict[str, Any]) -> str:
        height, width, channels = self.picture(layer["x"])
        missing = self.picture(layer["y"])[2] - channels
        bounds = self.integers(0, 0), self.integers(height, width), self.integers(1, 2), self.integers(2, 2)
        y = self.op("Slice", self.values[layer["x"]], *bounds)
        pads = self.integers(0, 0, 0, missing // 2, 0, 0, 0, missing - missing // 2)
        return self.op("Pad", y, pads)

    def dense(self, layer: dict[str, Any]) -> str:
        x, weight = self.values[layer["x"]], self.array(layer["weight"])
        if "image" in self.graph["values"][layer["x"]]:
            x = self.op("Reshape", x, self.integers(-1, weight.shape[0]))
        y = self.op("MatMul", x, self.parameter(layer["weight"]))
        if layer["bias"] is not None:
            y = self.op("Add", y, self.parameter(layer["bias"]))
        return self.activated(y, layer["activation"])

    def embed(self, layer: dict[str, Any]) -> str:
        vectors = self.op("Gather", self.parameter(layer["tokens"]), "x")
        if layer["positions"] is None:
            return vectors
        positions = self.op("Slice", self.parameter(layer["positions"]), self.integers(0), self.length())
        return self.op("Add", vectors, positions)

    def length(self) -> str:
        """Give the length of the sequences of a batch, as one number in a row."""
        return self.op("Shape", "x", start=1, end=2)

    def scale(self, layer: dict[str, Any]) -> str:
        return self.op("Mul", self.values[layer["x"]], self.number(layer["factor"]))

    def layer_norm(self, layer: dict[str, Any]) -> str:
        return self.positions_normalised(self.values[layer["x"]], layer["affine"]["scale"], layer["affine"]["offset"])

    def positions_normalised(self, x: str, scale: int, offset: int) -> str:
        affine = self.parameter(scale), self.parameter(offset)
        return self.op("LayerNormalization", x, *affine, axis=-1, epsilon=EPSILON)

    def transformer(self, layer: dict[str, Any]) -> str:
        h = None if layer["h"] is None else self.values[layer["h"]]
        return self.stack(layer["layers"], h, self.values[layer["injection"]])

    def stack(self, stack: dict[str, Any], h: str | None, injection: str) -> str:
        """Write transformer layers, from zero where there is no `h`."""
        blocked = self.blocked()
        for ids in stack["layers"]:
            h = injection if h is None else self.op("Add", h, injection)
            x = self.positions_normalised(h, ids[0], ids[1])
            query, key, value = (self.linear(x, ids[at], ids[at + 1]) for at in (2, 4, 6))
            width = self.array(ids[2]).shape[1]
            seen = self.attention((query, key, value), blocked, stack["heads"], width)
            h = self.op("Add", h, self.linear(seen, ids[8], ids[9]))
            inner = self.linear(self.positions_normalised(h, ids[10], ids[11]), ids[12], ids[13])
            inner = self.op("Gelu", inner, approximate="tanh")
            h = self.op("Add", h, self.linear(inner, ids[14], ids[15]))
        return injection if h is None else h

    def linear(self, x: str, weight: int, bias: int) -> str:
        return self.op("Add", self.op("MatMul", x, self.parameter(weight)), self.parameter(bias))

    def attention(self, projected: tuple[str, str, str], blocked: str, heads: int, width: int) -> str:
        """`softmax(Q K^T / sqrt(d)) V` for every head."""
        split = [self.op("Reshape", x, self.integers(0, 0, heads, width // heads)) for x in projected]
        query, value = (self.op("Transpose", split[at], perm=[0, 2, 1, 3]) for at in (0, 2))
        key = self.op("Transpose", split[1], perm=[0, 2, 3, 1])
        scores = self.op("Div", self.op("MatMul", query, key), self.number(math.sqrt(width // heads)))
        weights = self.op("Softmax", self.op("Where", blocked, self.number(BLOCKED_SCORE), scores), axis=-1)
        seen = self.op("Transpose", self.op("MatMul", weights, value), perm=[0, 2, 1, 3])
        return self.op("Reshape", seen, self.integers(0, 0, width))

    def blocked(self) -> str:
        """Say where attention may not go: to the future, and to padding (symbol 0)."""
        longest = self.graph["task"]["input"]["length"]
        future = self.constant(np.triu(np.ones((longest, longest), dtype=np.bool_), 1), "future")
        ends = self.op("Concat", self.length(), self.length(), axis=0)
        here = self.op("Slice", future, self.integers(0, 0), ends)
        padding = self.op("Unsqueeze", self.op("Equal", "x", self.integers(0)), self.integers(1, 2))
        return self.op("Or", padding, here)

    def repeat(self, layer: dict[str, Any]) -> str:
        """Write the cell as often as it is applied."""
        u, cell = self.values[layer["injection"]], layer["cell"]
        z: str | None = None if cell["kind"] == "transformer" else u
        for _ in range(layer["times"]):
            z = self.cell(cell, z, u, layer["injection"])
        return u if z is None else z

    def cell(self, cell: dict[str, Any], z: str | None, u: str, injection: int) -> str:
        if cell["kind"] == "transformer":
            h = self.stack(cell["layers"], z, u)
            return self.positions_normalised(h, cell["norm"]["scale"], cell["norm"]["offset"])
        z = u if z is None else z
        if cell["kind"] == "dense":
            sum_ = self.op("Add", self.op("MatMul", z, self.parameter(cell["weight"])), u)
            return self.activated(sum_, cell["activation"])
        if cell["kind"] != "residual":
            problem = f"this version of the Python package knows no cell `{cell['kind']}`"
            refuse(problem, "use the version that wrote the file, or a newer one")
        height, width, channels = self.picture(injection)
        size, wide = (height, width), (height, width, 2 * channels)
        inner = self.activated(self.convolved(z, size, cell["conv_a"], 1), cell["activation"])
        inner = self.grouped(inner, wide, cell["over"], cell["norm_1"])
        change = self.op("Add", u, self.convolved(inner, size, cell["conv_b"], 1))
        change = self.grouped(change, (height, width, channels), cell["over"], cell["norm_2"])
        state = self.activated(self.op("Add", z, change), cell["activation"])
        return self.grouped(state, (height, width, channels), cell["over"], cell["norm_3"])


_LAYERS: dict[str, Callable[[_Writer, dict[str, Any]], str]] = {
    "conv": _Writer.conv,
    "norm": _Writer.norm,
    "max-pool": _Writer.max_pool,
    "mean-pool": _Writer.mean_pool,
    "widen": _Writer.widen,
    "dense": _Writer.dense,
    "embed": _Writer.embed,
    "scale": _Writer.scale,
    "transformer": _Writer.transformer,
    "layer-norm": _Writer.layer_norm,
    "repeat": _Writer.repeat,
}


def _pads(size: tuple[int, int], window: int, stride: int) -> list[int]:
    """Give SAME padding as ONNX writes it: both beginnings, then both ends."""
    missing = [max(0, (math.ceil(each / stride) - 1) * stride + window - each) for each in size]
    return [each // 2 for each in missing] + [each - each // 2 for each in missing]
