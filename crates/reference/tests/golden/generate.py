"""Golden forward passes of the small networks, from an implementation that shares nothing with the Rust one.

    pip install jax numpy
    python generate.py            # rewrites golden.json beside this file

Weights, inputs and statistics are not stored: both sides compute them from their names by the integer hash `uniform`.
Everything here runs in float64, channels last, with JAX's own SAME convolutions and pooling.
"""
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

MASK = (1 << 64) - 1


# ---------------------------------------------------------------- numbers both sides can make

def fnv1a(text):
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def uniform(name, count):
    """`count` numbers in [0, 1) with 24 bits: splitmix64 started at the hash of the name."""
    with np.errstate(over="ignore"):
        x = np.uint64(fnv1a(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x = x ^ (x >> np.uint64(31))
    return (x >> np.uint64(40)).astype(np.float64) / 2.0**24


def symmetric(name, shape, amplitude):
    values = (2.0 * uniform(name, int(np.prod(shape))) - 1.0) * amplitude
    return values.astype(np.float32).astype(np.float64).reshape(shape)


class Parameters:
    """Parameters by path; `gain` scales the weights, and with them how strongly an equilibrium cell contracts."""

    def __init__(self, gain):
        self.gain = gain

    def dense_weight(self, path, inputs, outputs):
        return symmetric(path, (inputs, outputs), self.gain / np.sqrt(inputs))

    def dense(self, path, x, outputs, bias=True):
        y = x @ self.dense_weight(f"{path}.weight", x.shape[-1], outputs)
        return y + symmetric(f"{path}.bias", (outputs,), 0.2) if bias else y

    def conv(self, path, x, outputs, window=3, stride=1):
        inputs = x.shape[-1]
        shape = (outputs, inputs, window, window)
        weight = symmetric(f"{path}.weight", shape, self.gain / np.sqrt(inputs * window * window))
        return jax.lax.conv_general_dilated(
            x, jnp.asarray(weight), (stride, stride), "SAME", dimension_numbers=("NHWC", "OIHW", "NHWC"))

    def affine(self, path, channels):
        return 1.0 + symmetric(f"{path}.scale", (channels,), 0.2), symmetric(f"{path}.offset", (channels,), 0.2)


# ---------------------------------------------------------------- layers

def max_pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


ACTIVATIONS = {"relu": jax.nn.relu, "softplus": jax.nn.softplus}


def standardize(x, axes):
    return (x - x.mean(axes, keepdims=True)) / jnp.sqrt(x.var(axes, keepdims=True) + 1e-5)


def group_norm(p, path, x, row_wise=False):
    """Eight groups of channels; `row_wise` keeps the rows of an image apart, as the authors' code does."""
    scale, offset = p.affine(path, x.shape[-1])
    grouped = x.reshape(*x.shape[:-1], 8, x.shape[-1] // 8)
    axes = {2: (2,), 4: (2, 4) if row_wise else (1, 2, 4)}[x.ndim]
    return standardize(grouped, axes).reshape(x.shape) * scale + offset


class Norm:
    """Batch normalisation in either mode, or group normalisation in its place; collects the new statistics."""

    def __init__(self, p, kind, mode):
        self.p, self.kind, self.mode, self.moved = p, kind, mode, {}

    def __call__(self, path, x):
        if self.kind == "group":
            return group_norm(self.p, path, x)
        channels = x.shape[-1]
        scale, offset = self.p.affine(path, channels)
        running_mean = symmetric(f"{path}.mean", (channels,), 0.2)
        running_variance = 1.0 + symmetric(f"{path}.variance", (channels,), 0.5)
        if self.mode == "evaluate":
            return (x - running_mean) / jnp.sqrt(running_variance + 1e-5) * scale + offset
        axes = tuple(range(x.ndim - 1))
        # The hidden average before debiasing, after the three steps the statistics are said to have seen.
        hidden = 1.0 - 0.9**3
        debias = lambda old, new: (0.9 * (old * hidden) + 0.1 * new) / (1.0 - 0.9**4)
        self.moved[f"{path}.mean"] = debias(running_mean, x.mean(axes))
        self.moved[f"{path}.variance"] = debias(running_variance, x.var(axes))
        return standardize(x, axes) * scale + offset


def layer_norm(p, path, x):
    scale, offset = p.affine(path, x.shape[-1])
    return standardize(x, (-1,)) * scale + offset


def fixed_point(step, start, count):
    """`count` plain steps; the residuals must fall, so that the best state is the last one."""
    z, residuals = start, []
    for _ in range(count):
        image = step(z)
        residuals.append(float(jnp.linalg.norm(image - z)))
        z, previous = image, z
    assert all(later <= earlier or later < 1e-10 for earlier, later in zip(residuals, residuals[1:])), residuals
    return z, previous, residuals


# ---------------------------------------------------------------- networks: (output, embedding, state)

def vision_head(p, norm, act, x, widths):
    x = act(p.dense("dense.fc1", x, widths[0]))
    before = act(p.dense("dense.fc2", x, widths[1]))
    return before, norm("dense.norm", before)


def deq_resnet_xs(case, p, x):
    act, norm = ACTIVATIONS[case["config"].get("activation", "softplus")], case["norm"]
    row_wise = case["config"].get("cell_norm") == "row-wise"
    gn = lambda path, y: group_norm(p, path, y, row_wise)
    u = max_pool(norm("stem.norm", act(p.conv("stem.conv", x, 16))))

    def step(z):
        inner = gn("cell.norm_1", act(p.conv("cell.conv_a", z, 32)))
        return gn("cell.norm_3", act(z + gn("cell.norm_2", u + p.conv("cell.conv_b", inner, 16))))

    z, state, residuals = fixed_point(step, u, case["steps"])
    before, after = vision_head(p, norm, act, max_pool(z).reshape(len(x), -1), (64, 32))
    logits = p.dense("head", after, case["task"]["classes"])
    return {"logits": logits, "embedding": before, "state": state.reshape(len(x), -1)}, residuals


def deq_mlp(case, p, x):
    config = case["config"]
    u = p.dense("c", x.reshape(len(x), -1), config["hidden"], config.get("bias", False))
    z, state, residuals = fixed_point(lambda z: jax.nn.relu(p.dense("cell.b", z, config["hidden"], False) + u), u, case["steps"])
    if "norm" in config:
        z = case["norm"]("norm", z)
    embedding = jax.nn.relu(p.dense("dense", z, config["dense"]))
    return {"logits": p.dense("head", embedding, case["task"]["classes"]), "embedding": embedding, "state": state}, residuals


def resnet(case, p, x, channels, blocks, widths, cifar):
    norm, act = case["norm"], jax.nn.relu
    x = p.conv("stem.conv", x, channels[0])
    x = norm("stem.norm", act(x)) if cifar else act(norm("stem.norm", x))
    for s, (to, count) in enumerate(zip(channels, blocks)):
        for b in range(count):
            at, stride = f"stages.{s}.{b}", 2 if s > 0 and b == 0 else 1
            y = act(norm(f"{at}.norm_1", p.conv(f"{at}.conv_1", x, to, 3, stride)))
            y = norm(f"{at}.norm_2", p.conv(f"{at}.conv_2", y, to))
            if stride == 2 and cifar:
                x = jnp.pad(x[:, ::2, ::2], ((0, 0), (0, 0), (0, 0), (to // 4, to // 4)))
            elif stride == 2:
                x = norm(f"{at}.shortcut.norm", p.conv(f"{at}.shortcut.conv", x, to, 1, 2))
            x = act(x + y)
    before, after = vision_head(p, norm, act, x.mean((1, 2)), widths)
    return {"logits": p.dense("head", after, case["task"]["classes"]), "embedding": before if cifar else after}, []


def resnet_xs(case, p, x):
    return resnet(case, p, x, (16, 32), (1, 2), (64, 32), False)


def resnet_14(case, p, x):
    if x.shape[-1] == 1:
        return resnet(case, p, x, (32, 64, 128, 256), (1, 2, 2, 1), (256, 128), False)
    return resnet(case, p, x, (64, 128, 256), (2, 2, 2), (256, 128), True)


def transformer_layer(p, at, h, injection, visible):
    batch, length, width = h.shape
    heads = lambda name, y: p.dense(f"{at}.attention.{name}", y, width).reshape(batch, length, 4, width // 4)
    h = h + injection
    y = layer_norm(p, f"{at}.norm_1", h)
    scores = jnp.einsum("bqhd,bkhd->bhqk", heads("query", y), heads("key", y)) / np.sqrt(width // 4)
    weights = jax.nn.softmax(jnp.where(visible[:, None], scores, -1e30), -1)
    seen = jnp.einsum("bhqk,bkhd->bqhd", weights, heads("value", y)).reshape(batch, length, width)
    h = h + p.dense(f"{at}.attention.output", seen, width)
    y = p.dense(f"{at}.widen", layer_norm(p, f"{at}.norm_2", h), 4 * width)
    return h + p.dense(f"{at}.narrow", jax.nn.gelu(y, approximate=True), width)


def text(case, p, symbols):
    task = case["task"]["input"]
    tokens = p.dense_weight("embedding.tokens.weight", task["vocabulary"], 64)[symbols]
    positions = p.dense_weight("embedding.positions.weight", task["length"], 64)[: symbols.shape[1]]
    past = np.tril(np.ones((symbols.shape[1],) * 2, bool))
    return tokens, tokens + positions, past[None] & (symbols > 0)[:, None, :]


def personal(case, p, h, injection, visible):
    h = layer_norm(p, "head.norm", transformer_layer(p, "head.layer", h, injection, visible)).reshape(-1, 64)
    return {"logits": p.dense("head.output", h, case["task"]["classes"]), "embedding": h}


def transformer_4(case, p, symbols):
    _, injection, visible = text(case, p, symbols)
    h = jnp.zeros_like(injection)
    for index in range(3):
        h = transformer_layer(p, f"layers.{index}", h, injection, visible)
    return personal(case, p, h, injection, visible), []


def deq_transformer(case, p, symbols):
    tokens, injection, visible = text(case, p, symbols)

    def step(z):
        for index in range(4):
            z = transformer_layer(p, f"cell.layers.{index}", z, injection, visible)
        return layer_norm(p, "cell.norm", z)

    z, state, residuals = fixed_point(step, jnp.zeros_like(jnp.asarray(injection)), case["steps"])
    return personal(case, p, z, tokens, visible) | {"state": state.reshape(len(symbols), -1)}, residuals


# ---------------------------------------------------------------- cases

NETWORKS = {"deq-resnet-xs": deq_resnet_xs, "deq-mlp": deq_mlp, "resnet-xs": resnet_xs, "resnet-14": resnet_14,
            "transformer-4": transformer_4, "deq-transformer": deq_transformer}


def image(height, width, channels, classes):
    return {"input": {"kind": "image", "height": height, "width": width, "channels": channels}, "classes": classes}


def vector(width, classes):
    return {"input": {"kind": "vector", "width": width}, "classes": classes}


def symbols(length, vocabulary):
    return {"input": {"kind": "symbols", "length": length, "vocabulary": vocabulary}, "classes": vocabulary}


def plain(steps):
    """Exactly `steps` plain steps, so that differences between solvers do not matter."""
    return {"solver": {"fixed-point": {"damping": 0.0}}, "stop": {"relative": 0.0, "absolute": 0.0, "max_steps": steps}}


CONVERGED = {"stop": {"relative": 1e-10, "absolute": 0.0, "max_steps": 200}}  # By the default solver.
MANY = 800  # Plain steps after which nothing changes any more in double precision.


def cases():
    digits, odd = image(8, 8, 1, 10), image(7, 10, 3, 4)
    for cell_norm in ("textbook", "row-wise"):
        for mode in ("train", "evaluate"):
            config = {"name": "deq-resnet-xs", "cell_norm": cell_norm, "equilibrium": plain(3)}
            yield f"deq-resnet-xs, {cell_norm}, {mode}, 3 steps", config, digits, mode, 1.0, 3
        config = {"name": "deq-resnet-xs", "cell_norm": cell_norm, "equilibrium": CONVERGED}
        yield f"deq-resnet-xs, {cell_norm}, converged", config, digits, "train", 0.3, MANY
    config = {"name": "deq-resnet-xs", "norm": "group", "activation": "relu", "equilibrium": plain(4)}
    yield "deq-resnet-xs, group norm, relu, odd sides", config, odd, "evaluate", 1.0, 4
    config = {"name": "deq-resnet-xs", "cell_norm": "row-wise", "equilibrium": plain(3)}
    yield "deq-resnet-xs, row-wise, odd sides", config, odd, "train", 1.0, 3
    config = {"name": "deq-mlp", "hidden": 16, "dense": 8, "bias": True, "equilibrium": plain(3)}
    yield "deq-mlp, 3 steps", config, vector(10, 3), "evaluate", 1.0, 3
    config = {"name": "deq-mlp", "hidden": 16, "dense": 8, "norm": "batch", "equilibrium": CONVERGED}
    yield "deq-mlp on images, batch norm, converged", config, image(4, 3, 2, 3), "train", 1.0, MANY
    for mode in ("train", "evaluate"):
        yield f"resnet-xs, {mode}", {"name": "resnet-xs"}, digits, mode, 1.0, 0
    yield "resnet-xs, group norm, odd sides", {"name": "resnet-xs", "norm": "group"}, odd, "evaluate", 1.0, 0
    yield "resnet-14, FEMNIST family, odd sides", {"name": "resnet-14"}, image(15, 9, 1, 5), "train", 1.0, 0
    yield "resnet-14, CIFAR-10 family, odd sides", {"name": "resnet-14"}, image(9, 6, 3, 5), "train", 1.0, 0
    yield "transformer-4", {"name": "transformer-4"}, symbols(6, 12), "train", 1.0, 0
    config = {"name": "deq-transformer", "equilibrium": plain(2)}
    yield "deq-transformer, 2 steps", config, symbols(6, 12), "evaluate", 1.0, 2
    config = {"name": "deq-transformer", "equilibrium": CONVERGED}
    yield "deq-transformer, converged", config, symbols(6, 12), "evaluate", 0.5, MANY


def batch_of(task):
    """Three samples; the second sequence ends in padding, the third is nothing else."""
    shape = task["input"]
    if shape["kind"] == "image":
        size = (3, shape["height"], shape["width"], shape["channels"])
        return uniform("input", int(np.prod(size))).reshape(size)
    if shape["kind"] == "vector":
        return uniform("input", 3 * shape["width"]).reshape(3, -1)
    length = shape["length"]
    ids = 1 + (uniform("input", 3 * length) * (shape["vocabulary"] - 1)).astype(int).reshape(3, -1)
    ids[1, length - 2:] = 0
    ids[2, :] = 0
    return ids


def main():
    golden = []
    for title, config, task, mode, gain, steps in cases():
        p = Parameters(gain)
        norm = Norm(p, config.get("norm", "batch"), mode)
        case = {"config": config, "task": task, "norm": norm, "steps": steps}
        outputs, residuals = NETWORKS[config["name"]](case, p, batch_of(task))
        arrays = {name: [float(f"{v:.6g}") for v in np.asarray(array).ravel()] for name, array in (outputs | norm.moved).items()}
        golden.append({"title": title, "config": config, "task": task, "mode": mode, "gain": gain, "outputs": arrays})
        print(f"{title}: residuals {residuals[:2]} ... {residuals[-1:]}")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in golden)
    pathlib.Path(__file__).with_name("golden.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
