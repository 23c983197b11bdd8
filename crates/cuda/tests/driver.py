"""Loads the committed PTX through the CUDA driver and launches it on PyTorch's tensors and stream."""
import ctypes as C
import pathlib
import re

import torch

PTX = pathlib.Path(__file__).parent.parent / "ptx"
DEVICE = "cuda"
driver = C.CDLL("libcuda.so.1") if torch.cuda.is_available() else None


def check(code):
    if code:
        text = C.c_char_p()
        driver.cuGetErrorString(code, C.byref(text))
        raise RuntimeError(f"CUDA error {code}: {text.value.decode()}")


class Kernels:
    """All kernels by name; a file is loaded when the first of its kernels is asked for."""

    def __init__(self):
        torch.zeros(1, device=DEVICE)
        self.functions, self.modules, self.allowed = {}, {}, {}
        self.files = {name: path for path in sorted(PTX.glob("*.ptx")) for name in re.findall(r"\.entry (\w+)", path.read_text())}

    def __getattr__(self, name):
        return lambda *a, **k: self.launch(name, *a, **k)

    def function(self, name, shared):
        if name not in self.functions:
            path = self.files[name]
            if path not in self.modules:
                self.modules[path] = C.c_void_p()
                check(driver.cuModuleLoadData(C.byref(self.modules[path]), path.read_bytes() + b"\0"))
            f = C.c_void_p()
            check(driver.cuModuleGetFunction(C.byref(f), self.modules[path], name.encode()))
            self.functions[name] = f
        if shared > self.allowed.get(name, 48 * 1024):
            check(driver.cuFuncSetAttribute(self.functions[name], 8, shared))   # the most dynamic shared memory
            self.allowed[name] = shared
        return self.functions[name]

    def launch(self, name, grid, block, *arguments, shared=0):
        grid = tuple(grid) + (1,) * (3 - len(grid)) if isinstance(grid, tuple) else (grid, 1, 1)
        block = tuple(block) + (1,) * (3 - len(block)) if isinstance(block, tuple) else (block, 1, 1)
        values = [argument(a) for a in arguments]
        pointers = (C.c_void_p * len(values))(*[C.cast(C.byref(v), C.c_void_p) for v in values])
        stream = C.c_void_p(torch.cuda.current_stream().cuda_stream)
        check(driver.cuLaunchKernel(self.function(name, shared), *grid, *block, shared, stream, pointers, None))


def argument(a):
    if a is None:
        return C.c_void_p(0)
    if torch.is_tensor(a):
        assert a.is_contiguous() and a.is_cuda
        return C.c_void_p(a.data_ptr())
    if isinstance(a, (C.Structure, C._SimpleCData)):
        return a
    return C.c_float(a) if isinstance(a, float) else C.c_int(a)


def struct(name, **fields):
    """A C structure whose pointers are given as tensors."""

    def init(self, **values):
        C.Structure.__init__(self)
        assert set(values) == set(fields), set(values) ^ set(fields)
        for key, value in values.items():
            if isinstance(value, (tuple, list)):
                value = (fields[key])(*[v.data_ptr() if torch.is_tensor(v) else v for v in value])
            elif torch.is_tensor(value):
                assert value.is_contiguous() and value.is_cuda, key
                value = value.data_ptr()
            setattr(self, key, value)

    return type(name, (C.Structure,), {"_fields_": list(fields.items()), "__init__": init})


pointer, integer, long, real, double = C.c_void_p, C.c_int, C.c_longlong, C.c_float, C.c_double
Cohort = struct("Cohort", spans=pointer, rows=pointer)
GEOMETRY = dict(H=integer, W=integer, CI=integer, HO=integer, WO=integer, CO=integer, window=integer, stride=integer, above=integer, left=integer)
Conv = struct("Conv", x=pointer, w=pointer, bias=pointer, y=pointer, cohort=Cohort, w_stride=long, bias_stride=long, alpha=real, **GEOMETRY, back=integer, phi=integer, narrow=integer, add=integer)
ConvExact = struct("ConvExact", x=pointer, w=pointer, bias=pointer, y=pointer, cohort=Cohort, w_stride=long, bias_stride=long, **GEOMETRY)
WeightGradient = struct("WeightGradient", x=pointer, dy=pointer, dw=pointer, w_stride=long, part_stride=long, alpha=real, **GEOMETRY)
Dense = struct("Dense", x=pointer, w=pointer, dy=pointer, cohort=Cohort, w_stride=long, **{"in": integer, "out": integer, "per": integer})
Affine = struct("Affine", scale=pointer, offset=pointer, stride=long)
Shape = struct("Shape", pixels=integer, regions=integer, channels=integer, groups=integer, slices=integer)
GroupNorm = struct("GroupNorm", affine=Affine, moments=pointer, cohort=Cohort, shape=Shape)
BatchNorm = struct("BatchNorm", scale=pointer, offset=pointer, moments=pointer, cohort=Cohort, stride=long, pixels=integer, C=integer, slices=integer, chunks=integer, before=integer, after=integer)
Plane = struct("Plane", H=integer, W=integer)
Shortcut = struct("Shortcut", x=pointer, W=integer, HS=integer, WS=integer, CS=integer)
Outer = struct("Outer", second=Affine, third=Affine, moments=pointer * 2, cohort=Cohort, shape=Shape)
Solve = struct("Solve", z=pointer, z16=pointer, residuals=pointer, plain=pointer, best_z=pointer, best_image=pointer, partial=pointer, gram=pointer, gamma=pointer, progress=pointer,
               cohort=Cohort, n=long, samples=integer, memory=integer, mixing=real)
Rules = struct("Rules", relative=double, absolute=double, ridge=double, max_steps=integer, ridge_is_relative=integer, delay=integer, restart=integer)

Text = struct("Text", symbols=pointer, indices=pointer, length=integer)
OptimiserStep = struct("OptimiserStep", theta=pointer, first=pointer, second=pointer, gradient=pointer, offset=pointer, cohort=Cohort, counts=pointer, norms=pointer, rates=pointer, counter=pointer,
                       stride=long, n=long, longest=double, strength=real, decay=real)
Contrast = struct("Contrast", z=pointer, near=pointer, far=pointer, at=pointer, counter=pointer, counts=pointer, gradient=pointer, losses=pointer, cohort=Cohort, text=Text,
                  weight=double, temperature=double, places=long, width=integer)
Warm = struct("Warm", counter=pointer, places=pointer, known=pointer, cohort=Cohort, n=long, slots=integer, most=integer)
LayerNorm = struct("LayerNorm", scale=pointer, offset=pointer, moments=pointer, mask=pointer, cohort=Cohort, stride=long, mask_stride=long, kept=real, length=integer)
Attention = struct("Attention", q=pointer, k=pointer, v=pointer, sums=pointer, text=Text, cohort=Cohort, row=integer)
Mlp = struct("Mlp", x=pointer, w1=pointer, w2=pointer, b1=pointer, b2=pointer, y=pointer, cohort=Cohort, stride=long, length=integer)
Norm = struct("Norm", scale=pointer, offset=pointer)
LayerOfStack = struct("Layer", weights=pointer * 4, biases=pointer * 4, first=Norm, second=Norm, masks=pointer * 2)
Stack = struct("Stack", layers=LayerOfStack * 16, end=Norm, h=pointer, injection=pointer, y=pointer, text=Text, cohort=Cohort, stride=long, mask_stride=long, kept=real, count=integer)
Gmres = struct("Gmres", basis=pointer, newest16=pointer, image=pointer, u=pointer, b=pointer, partial=pointer, weights=pointer, spaces=pointer, cohort=Cohort, n=long, samples=integer, memory=integer)
GmresRules = struct("GmresRules", relative=double, absolute=double, max_steps=integer)
Weights = struct("Weights", w=pointer, straight=pointer, turned=pointer, packed=long, CI=integer, CO=integer, taps=integer, first=integer)
Layers = type("Layers", (C.Structure,), {"_fields_": [("of", Weights * 16)]})

# Of Anderson's method: the largest memory, that of kernels for little, and inner products of the former.
MOST, LITTLE, SUMS = 8, 5, 18
# The kernels that read every pixel once, for windows of 3 and strides of 1.
PLANES = "conv_planes_sm90"
WEIGHT_PLANES = "conv_weights_planes_sm90"
# Output channels of a block, and its dynamic shared memory.
TILES = {"conv": (128, 98816), "conv_64": (64, 98816), "conv_32": (32, 82432), "conv_sm90": (128, 99840), "conv_64_sm90": (64, 99840)}
WEIGHT_TILES = {"conv_weights": (128, 101376), "conv_weights_64": (64, 76800), "conv_weights_sm90": (128, 101376), "conv_weights_64_sm90": (64, 76800)}


class Clients:
    """A cohort whose samples lie in any order in buffers with room for more."""

    def __init__(self, sizes, shuffled=True, spare=2):
        self.sizes, self.count, self.most = sizes, len(sizes), max(max(sizes), 1)
        self.samples = sum(sizes) + spare
        order = torch.randperm(self.samples) if shuffled else torch.arange(self.samples)
        first = [sum(sizes[:k]) for k in range(len(sizes))]
        self.of = [order[f:f + n].tolist() for f, n in zip(first, sizes)]
        self.listed = [s for of in self.of for s in of]
        self.unlisted = [s for s in range(self.samples) if s not in set(self.listed)]
        self.spans = torch.tensor(list(zip(first, sizes)), dtype=torch.int32, device=DEVICE).contiguous()
        self.rows = order.to(torch.int32).to(DEVICE)
        self.cohort = Cohort(spans=self.spans, rows=self.rows)


def up(a, b):
    return -(-a // b)


def norm_launch(clients, pixels, regions, channels, groups, most=256):
    """Grid, threads and shape of a normalisation: as few slices as fit into registers."""
    for slices, most in [(n, most) for n in range(1, groups + 1)] + [(groups, 512)]:
        lanes = channels // slices // 2
        if groups % slices or lanes > most:
            continue
        threads = most // lanes * lanes
        if pixels <= 16 * (threads // lanes):
            shape = Shape(pixels=pixels, regions=regions, channels=channels, groups=groups, slices=slices)
            return (slices * regions, clients.most, clients.count), threads, shape
    raise ValueError("a group does not fit into a block")


def batch_norm(clients, pixels, C, before="identity", after="identity", **pointers):
    """The structure of a batch normalisation and the grid of its passes: chunks of as many pixels as a block holds."""
    slices = next(n for n in range(1, C + 1) if C % (4 * n) == 0 and C // (4 * n) <= 256)
    chunks = up(pixels, 8 * (256 // (C // slices // 4)))
    n = BatchNorm(cohort=clients.cohort, stride=C, pixels=pixels, C=C, slices=slices, chunks=chunks, before=PHI[before], after=PHI[after], **pointers)
    return n, (slices * chunks, clients.most, clients.count)


PHI = {"identity": 0, "relu": 1, "softplus": 2, "softplus_exact": 3}


def same(size, window, stride):
    """Outputs of TensorFlow's SAME padding, and zeros in front."""
    out = up(size, stride)
    return out, max((out - 1) * stride + window - size, 0) // 2


def geometry(H, W, CI, CO, window=3, stride=1):
    (HO, above), (WO, left) = same(H, window, stride), same(W, window, stride)
    return dict(H=H, W=W, CI=CI, HO=HO, WO=WO, CO=CO, window=window, stride=stride, above=above, left=left)


def plane_bytes(positions):
    return (up(positions, 8) * 8 + 1) * 16


def convolve(kernels, tile, clients, g, x, w, y, phi="identity", bias=None, alpha=1.0, back=False, add=False):
    """The convolution kernel of that name; `back` is the gradient by input, from x of the convolution's output to y of its input."""
    parts, most = 1, clients.most * g["HO"] * g["WO"]
    if back:
        s = g["stride"]
        parts, most = s * s, clients.most * up(g["H"], s) * up(g["W"], s)
        g = dict(g, H=g["HO"], W=g["WO"], CI=g["CO"], HO=g["H"], WO=g["W"], CO=g["CI"])
    c = Conv(x=x, w=w, y=y, bias=bias, bias_stride=g["CO"], w_stride=w[0].numel(), cohort=clients.cohort, alpha=alpha, back=int(back), phi=PHI[phi],
             narrow=int(y.dtype == torch.float16), add=int(add), **g)
    if tile == PLANES:
        positions = 256 + 2 * (g["W"] + 2)
        assert (g["window"], g["stride"]) == (3, 1)
        shared = 3 * 64 * 128 + 16 * plane_bytes(positions) + 4 * positions + 1024
        kernels.launch(tile, (up(g["CO"], 64), up(clients.most * (g["H"] + 1) * (g["W"] + 1), 256), clients.count), 256, c, shared=shared)
    else:
        channels, shared = TILES[tile]
        kernels.launch(tile, (up(g["CO"], channels), parts * up(most, 128), clients.count), 128, c, shared=shared)


def weight_gradients(kernels, name, clients, problems, alpha=1.0, parts=1, scratch=None):
    """Gradients by weights of one or two (geometry, x, dy, dw); with several parts `scratch` takes them before they are added."""
    planes = name == WEIGHT_PLANES
    channels, shared = (64, 4 * up(16384 + 8 * plane_bytes(128 + 2 * (problems[0][0]["W"] + 2)), 1024) * 1024 + 6144 + 1024 + 64) if planes else WEIGHT_TILES[name]
    made, tiles = [], []
    for i, (g, x, dy, dw) in enumerate(problems):
        to = dw if parts == 1 else scratch[i]
        made.append(WeightGradient(x=x, dy=dy, dw=to, w_stride=dw[0].numel(), part_stride=dw.numel(), alpha=alpha, **g))
        tiles.append(up(g["CO"], channels) * (up(g["CI"], 64) if planes else up(g["window"] ** 2 * g["CI"], 128)))
    kernels.launch(name, (sum(tiles), clients.count, parts), 384 if planes else 128, made[0], made[-1], tiles[0], clients.cohort, shared=shared)
    if parts > 1:
        for (_, _, _, dw), to in zip(problems, scratch):
            n = dw[0].numel()
            kernels.sum_parts((up(n, 1024), clients.count), 256, to, dw, long(n), long(n), long(dw.numel()), long(n), parts)


def parts_for(blocks, steps, numbers, places, step_us):
    """Into how many parts the pixels of gradients by weights are cut: the time of `steps` steps of `step_us` in as many rounds as the blocks take, and
    of writing, reading and adding up the parts of `numbers` numbers."""
    def us(n):
        return up(blocks * n, places) * up(steps, n) * step_us + (3 + numbers * 4 * (2 * n + 1) / 3e6 if n > 1 else 0)
    return min(range(1, max(min(16, steps), 1) + 1), key=us)


def narrow_weights(kernels, layers):
    """weights_to_f16 of (w [clients][CO][taps][CI], straight, turned) of several layers with the same numbers a client apart."""
    made, first = Layers(), 0
    for i, (w, straight, turned) in enumerate(layers):
        CO, CI, taps = w.shape[1], w.shape[-1], w[0].numel() // (w.shape[1] * w.shape[-1])
        made.of[i] = Weights(w=w, straight=straight, turned=turned, packed=w[0].numel(), CI=CI, CO=CO, taps=taps, first=first)
        first += up(CI, 32) * up(CO, 32) * taps
    kernels.weights_to_f16((first, layers[0][0].shape[0]), (32, 8), made, len(layers), long(layers[0][0].stride(0)))


def weights_to_f16(kernels, w):
    """w [clients][out][...][in] -> straight and turned [clients][in][...][out], in 16 bits."""
    straight, turned = torch.empty_like(w, dtype=torch.float16), torch.empty(w.shape[0], w.shape[-1], *w.shape[2:-1], w.shape[1], dtype=torch.float16, device=DEVICE)
    narrow_weights(kernels, [(w, straight, turned)])
    return straight, turned


def sum_samples(kernels, clients, x, out, alpha=1.0, per=1):
    n = out[0].numel()
    kernels.launch("sum_samples" + ("_f16" if x.dtype == torch.float16 else ""), (up(n, 32), clients.count), 1024, x, out, clients.cohort, long(n), alpha, per, n)


def attend(kernels, clients, a, out, heads=4):
    """Attention of the structure a, in the precision of out."""
    length, grid = a.text.length, (heads, clients.most, clients.count)
    if out.dtype == torch.float16:
        kernels.launch(f"attention_f16_{longest(length)}", grid, 32 * up(length, 16), a, out)
    else:
        kernels.attention_f32(grid, 256, a, out, shared=68 * length * 4)


def attend_backward(kernels, clients, a, dout, d, heads=4):
    """Gradients of queries, keys and values, side by side in d."""
    length, grid, width = a.text.length, (heads, clients.most, clients.count), d.shape[2] // 3 * d.element_size()
    to = [pointer(d.data_ptr() + i * width) for i in range(3)]
    if dout.dtype == torch.float16:
        kernels.launch(f"attention_backward_f16_{longest(length)}", grid, 32 * up(length, 16), a, dout, *to)
    else:
        kernels.attention_backward_f32(grid, 256, a, dout, *to, shared=(80 + 2 * length) * length * 4)


def longest(length):
    return next(n for n in (16, 80, 128) if length <= n)
