"""Times every kernel, the cell and a solve of DEQ-ResNet-M (10 clients x 20 images, 128 channels, 16 x 16) beside PyTorch in the same sitting.

Every time is the median over replays of a CUDA graph. Both sides' results are compared before anything is timed. usage: bench.py [--brief]
"""
import sys

import torch
import torch.nn.functional as F
from torch.func import vmap

from cell import *
from driver import *
from solver import *

K, B, C, H = 10, 20, 128, 16
CELL = 2 * 2 * K * B * H * H * 9 * C * 2 * C / 1e9   # GFLOP
ceiling = bandwidth = None


def timed(f, inner=10, repeats=15):
    """Median milliseconds of f."""
    f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            f()
    graph.replay()
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / inner)
    return sorted(times)[len(times) // 2]


def row(name, ms, gflop=None, gbytes=None):
    text = f"{name:66s} {ms * 1e3:9.1f} us"
    if gflop:
        text += f" {gflop / ms:7.1f} TFLOP/s {100 * gflop / ms / ceiling:4.0f}% of ceiling"
    if gbytes:
        text += f" {gbytes / ms:7.2f} TB/s {100 * gbytes / ms / bandwidth:4.0f}% of copy"
    print(text, flush=True)
    return ms


def relative(found, expected):
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


def tf32(on):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = on


def ceilings():
    global ceiling, bandwidth
    a = torch.randn(8192, 8192, device=DEVICE).half()
    ms = timed(lambda: a @ a, 4, 7)
    ceiling = 2 * 8192 ** 3 / 1e9 / ms
    big, other = torch.empty(1 << 28, device=DEVICE).normal_(), torch.empty(1 << 28, device=DEVICE)
    ms = timed(lambda: torch.add(big, 1.0, out=other), 2, 7)   # a kernel; copies inside a graph are slower
    bandwidth = 2 * big.numel() * 4 / 1e9 / ms
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}; ceilings: 8192^3 product in f16 {ceiling:.0f} TFLOP/s, copy {bandwidth:.2f} TB/s; a cell is {CELL:.1f} GFLOP")


def solving(kernels, cl, cell, u, settings):
    """A whole solve as launches alone: samples that are done leave the cohort on the device."""
    s = Solver(kernels, cl, H * H * C, settings)

    def solve():
        s.start(u.view(K * B, -1))
        for k in range(settings.max_steps):
            cl.cohort = s.cohorts[k % 2]
            cell.step(s.z, s.z16, u, s.slot(k))
            s.step(k)
        cl.cohort = Cohort(spans=cl.spans, rows=cl.rows)
    return s, solve


def main():
    solved = {}
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    ceilings()
    kernels, cl = Kernels(), Clients([B] * K, shuffled=False, spare=0)
    p = parameters(K, C)
    u = F.softplus(torch.randn(K * B, H, H, C, device=DEVICE))
    first = lambda t: t.view(K, B, H, H, -1).permute(0, 1, 4, 2, 3).contiguous()
    names = list(p)
    one = vmap(lambda *a: torch_cell(dict(zip(names, a[:-2])), a[-2], a[-1]))
    u5 = first(u)
    tf32(False)
    want = one(*p.values(), u5, u5)

    print("-- PyTorch")
    tf32(True)
    zg, wg = u5.transpose(0, 1).reshape(B, K * C, H, H), p["a"].flatten(0, 1)
    last = torch.channels_last
    z16, w16 = zg.half().contiguous(memory_format=last), wg.half().contiguous(memory_format=last)
    row("grouped convolution, tf32", timed(lambda: F.conv2d(zg, wg, padding=1, groups=K)), CELL / 2)
    row("grouped convolution, f16, channels last", timed(lambda: F.conv2d(z16, w16, padding=1, groups=K)), CELL / 2)
    row("the cell, vmapped over clients, tf32", timed(lambda: one(*p.values(), u5, u5), 5), CELL)
    h = [t.half() for t in p.values()]
    uh = u5.half()
    row("the cell, vmapped over clients, all in f16", timed(lambda: one(*h, uh, uh), 5), CELL)

    def with_gradients():
        leaves = [t.detach().requires_grad_() for t in p.values()]
        ui = u5.detach().requires_grad_()
        out = one(*leaves, u5, ui)
        torch.autograd.grad(out, [*leaves, ui], out.detach())
    row("the cell and its gradients by parameters and u, tf32", timed(with_gradients, 3, 7), 2.5 * CELL)

    hopper = torch.cuda.get_device_capability() == (9, 0)
    for tile in ["conv"] + ["conv_sm90"] * hopper:
        print(f"-- ours, {tile}")
        c = Cell(kernels, cl, p, H, H, C, tile=tile)
        z16, image, d = u.half(), torch.empty_like(u), torch.randn_like(u)
        c.step(u, z16, u, image, save=True)
        print(f"the cell's relative error to float32: {relative(first(image), want):.2e}")
        c.backward(u, z16, d)
        v, y, dy, dv = c.wide
        row("conv_a, 128 -> 256, softplus, 16 bits out", timed(lambda: c.conv(z16, c.straight["a"], v, C, 2 * C, phi="softplus")), CELL / 2)
        row("conv_b, 256 -> 128, 32 bits out", timed(lambda: c.conv(y, c.straight["b"], c.narrow[2], 2 * C, C)), CELL / 2)
        row("gradients by weights, both convolutions", timed(lambda: c.weights(z16, y, dv)), CELL)
        row("the cell", timed(lambda: c.step(u, z16, u, image)), CELL)
        row("the cell, its gradients by parameters and u", timed(lambda: (c.step(u, z16, u, image, save=True), c.backward(u, z16, d, dz=False)), 5), 2.5 * CELL)
        s, solve = solving(kernels, cl, c, u, Settings(relative=0.0, max_steps=8))
        row("a solve of 8 steps, everybody to the end", timed(solve, 2, 7), 8 * CELL)
        s, solve = solving(kernels, cl, c, u, Settings())
        ms = timed(solve, 2, 7)
        steps = s.progress[:, 3].float().mean().item()
        row(f"a solve to 1e-3, at most 20 steps: {steps:.1f} a sample", ms, steps * CELL)
        solved[tile] = s.best_z.clone(), steps
    print("-- ours, other kernels")
    state, G = K * B * H * H * C * 4 / 1e9, lambda *shape: torch.randn(*shape, device=DEVICE)
    grid, threads, shape = c.launch1
    norm = GroupNorm(affine=c.affine("1"), moments=c.moments[0], cohort=cl.cohort, shape=shape)
    row("group_norm_f16, 256 channels", timed(lambda: kernels.launch("group_norm_f16", grid, threads, norm, v, y)), gbytes=2 * state)
    row("group_norm_backward_f16_softplus", timed(lambda: kernels.launch("group_norm_backward_f16_softplus", grid, threads, norm, v, dy, dv, c.partial[0])), gbytes=3 * state)
    row("outer_softplus", timed(lambda: c.outer(c.narrow[0], u, u, image, False)), gbytes=4 * state)
    outer = c.outer_struct()
    g2, t2, _ = c.launch2
    row("outer_softplus_backward", timed(lambda: kernels.outer_softplus_backward(g2, t2, outer, d, c.narrow[0], c.narrow[1], None, c.narrow[3], c.du16, 1024.0, c.partial[1], c.partial[2])), gbytes=4.5 * state)
    row("conv_weights_to_f16, both convolutions", timed(c.prepare), gbytes=2 * 2 * 9 * K * 2 * C * C * 4 / 1e9)
    s = Solver(kernels, cl, H * H * C, Settings(relative=0.0, max_steps=99), blocks=4)
    s.start(u.view(K * B, -1))
    for k in range(7):
        s.slot(k).copy_(torch.randn_like(s.z))
        s.step(k)
    solve = Solve(z=s.z, z16=s.z16, residuals=s.residuals, plain=s.plain, best_z=s.best_z, best_image=s.best_image, partial=s.partial, gram=s.gram, gamma=s.gamma,
                  progress=s.progress, cohort=cl.cohort, n=s.n, samples=K * B, memory=5, mixing=1.0)
    row("anderson_look, memory 5", timed(lambda: kernels.anderson_look((4, B, K), 256, solve, 7)), gbytes=8 * state)
    row("anderson_decide", timed(lambda: kernels.anderson_decide(K, 128, solve, Settings(max_steps=10 ** 6, relative=0.0).rules(), 7, 4, *s.lists[1])))
    row("anderson_mix, memory 5", timed(lambda: kernels.anderson_mix((4, B, K), 256, solve, 7)), gbytes=7.5 * state)
    n = 3_300_000
    theta, g, dual, anchor, copy = G(K, n), G(K, n), G(K, n), G(n), torch.empty(K, n, device=DEVICE, dtype=torch.float16)
    row("descend with pull and 16-bit copy, 3.3 M parameters", timed(lambda: kernels.descend((up(n, 1024), K), 256, theta, g, dual, anchor, copy, cl.cohort, long(n), long(n), 1e-9, 0.01)), gbytes=K * n * 18 / 1e9)
    row("dual_step", timed(lambda: kernels.dual_step((up(n, 1024), K), 256, dual, theta, anchor, long(n), long(n), 1e-9)), gbytes=K * n * 12 / 1e9)
    weight = torch.ones(K, dtype=torch.float64, device=DEVICE)
    row("mean_of_clients", timed(lambda: kernels.mean_of_clients(up(n, 256), 256, theta, weight, anchor, long(n), long(n), K)), gbytes=K * n * 4 / 1e9)
    i, o, parts = 8192, 256, 32
    x, w, dyy, y2, partial, dw, dx = G(K * B, i), G(K, i, o), G(K * B, o), G(K * B, o), G(parts, K * B, o), G(K, i, o), G(K * B, i)
    dense = Dense(x=x, w=w, dy=dyy, cohort=cl.cohort, w_stride=i * o, **{"in": i, "out": o})
    weights = K * i * o * 4 / 1e9

    def forward():
        kernels.dense_forward((up(o, 128), up(B, 32) * parts, K), 256, dense, partial, parts, K * B)
        kernels.dense_finish((up(o, 256), B, K), 256, partial, None, y2, cl.cohort, long(o), o, parts, K * B)
    row("dense 8192 -> 256", timed(forward), gbytes=weights)
    row("dense by input", timed(lambda: kernels.dense_input((up(i, 128), up(B, 32), K), 256, dense, dx)), gbytes=weights)
    row("dense by weights", timed(lambda: kernels.dense_weights((up(o, 128), up(i, 32), K), 256, dense, dw)), gbytes=weights)
    x3 = x.view(K, B, i)
    tf32(False)
    row("  PyTorch's batched product, forward, float32", timed(lambda: torch.bmm(x3, w)), gbytes=weights)
    n = BatchNorm(scale=c.p["g2"], offset=c.p["o2"], moments=torch.empty(K, C, 2, device=DEVICE), cohort=cl.cohort, stride=C, pixels=1024, C=C, slices=4)
    stem, rest, dstem = G(K * B, 32, 32, C), torch.empty(K * B, C, 2, device=DEVICE), G(K * B, 32, 32, C)

    def batch_norm():
        kernels.batch_norm_look((4, B, K), 256, n, stem, rest)
        kernels.batch_norm_moments((1, K), 128, n, rest, None, None)
        kernels.batch_norm_apply((4, B, K), 256, n, stem, dstem, None)
    row("batch_norm 32 x 32 x 128, three kernels", timed(batch_norm), gbytes=12 * state)
    big, places, small = G(K * B, 32, 32, C), torch.empty(K * B, H, H, C, dtype=torch.uint8, device=DEVICE), G(K * B, H, H, C)
    row("max_pool 32 x 32 x 128", timed(lambda: kernels.max_pool_by_4((up(H * H * C, 1024), B, K), 256, big, small, places, cl.cohort, 32, 32, C)), gbytes=5.25 * state)
    row("max_pool_backward", timed(lambda: kernels.max_pool_backward_by_4((up(1024 * C, 1024), B, K), 256, small, places, big, cl.cohort, 32, 32, C)), gbytes=5.25 * state)
    if "--brief" in sys.argv:
        return
    e = Cell(kernels, cl, p, H, H, C, exact=True)
    e.step(u, None, u, image, save=True)
    print(f"exact: the cell's relative error to PyTorch's float32 {relative(first(image), want):.2e}")
    s, solve = solving(kernels, cl, e, u, Settings())
    solve()
    for tile, (z, steps) in solved.items():
        print(f"exact: a solve to 1e-3 takes {s.progress[:, 3].float().mean().item():.2f} steps, {tile} {steps:.2f}; the states differ by {relative(z, s.best_z):.2e}")
    row("the cell, exact", timed(lambda: e.step(u, None, u, image), 2, 5), CELL)
    row("the cell and its gradients, exact", timed(lambda: (e.step(u, None, u, image, save=True), e.backward(u, None, d, dz=False)), 1, 5), 2.5 * CELL)


if __name__ == "__main__":
    main()
