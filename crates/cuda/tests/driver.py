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
        self.functions, self.modules = {}, {}
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
            if shared > 48 * 1024:
                check(driver.cuFuncSetAttribute(f, 8, shared))   # the most dynamic shared memory
            self.functions[name] = f
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
Conv = struct("Conv", x=pointer, w=pointer, bias=pointer, y=pointer, cohort=Cohort, w_stride=long, bias_stride=long, alpha=real, H=integer, W=integer, CI=integer, CO=integer, phi=integer, narrow=integer)
ConvExact = struct("ConvExact", x=pointer, w=pointer, bias=pointer, y=pointer, cohort=Cohort, w_stride=long, bias_stride=long,
                   H=integer, W=integer, CI=integer, HO=integer, WO=integer, CO=integer, window=integer, stride=integer, before=integer)
WeightGradient = struct("WeightGradient", x=pointer, dy=pointer, dw=pointer, stride=long, alpha=real, H=integer, W=integer, CI=integer, CO=integer)
Dense = struct("Dense", x=pointer, w=pointer, dy=pointer, cohort=Cohort, w_stride=long, **{"in": integer, "out": integer})
Affine = struct("Affine", scale=pointer, offset=pointer, stride=long)
Shape = struct("Shape", pixels=integer, regions=integer, channels=integer, groups=integer, slices=integer)
GroupNorm = struct("GroupNorm", affine=Affine, moments=pointer, cohort=Cohort, shape=Shape)
BatchNorm = struct("BatchNorm", scale=pointer, offset=pointer, moments=pointer, cohort=Cohort, stride=long, pixels=integer, C=integer, slices=integer)
Outer = struct("Outer", second=Affine, third=Affine, moments=pointer * 2, cohort=Cohort, shape=Shape)
Solve = struct("Solve", z=pointer, z16=pointer, residuals=pointer, plain=pointer, best_z=pointer, best_image=pointer, partial=pointer, gram=pointer, gamma=pointer, progress=pointer,
               cohort=Cohort, n=long, samples=integer, memory=integer, mixing=real)
Rules = struct("Rules", relative=double, absolute=double, ridge=double, max_steps=integer, ridge_is_relative=integer, delay=integer, restart=integer)

MOST, SUMS = 8, 18
CONV_SHARED, WEIGHTS_SHARED = 98816, 100352


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


PHI = {"identity": 0, "relu": 1, "softplus": 2}


def convolve(kernels, tile, clients, phi="identity", bias=None, alpha=1.0, **c):
    """The convolution kernel of that name; the rest as in the structure."""
    w, y = c["w"], c["y"]
    c = Conv(bias=bias, bias_stride=c["CO"], w_stride=w[0].numel(), cohort=clients.cohort, alpha=alpha, phi=PHI[phi], narrow=int(y.dtype == torch.float16), **c)
    grid = up(c.CO, 64 if tile == "conv_few" else 128), up(clients.most * c.H * c.W, 128), clients.count
    kernels.launch(tile, grid, 128, c, shared=99840 if tile == "conv_sm90" else CONV_SHARED)
