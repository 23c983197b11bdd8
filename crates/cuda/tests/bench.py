"""Times every kernel, the cell and a solve of DEQ-ResNet-M (10 clients x 20 images, 128 channels, 16 x 16), residual blocks, a transformer's layer
and the rest beside PyTorch in the same sitting.

Every time is the median over replays of a CUDA graph. Both sides' results are compared before anything is timed. usage: bench.py [--brief] [cells] [residual] [texts] [others]
"""
import sys

import torch
import torch.nn.functional as F
from torch.func import vmap

from cell import *
from driver import *
from network import *
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


def solving(kernels, cl, cell, u, settings, narrow=False):
    """A whole solve as launches alone: samples that are done leave the cohort on the device."""
    s = Solver(kernels, cl, H * H * C, settings, narrow=narrow)

    def solve():
        s.start(u.view(K * B, -1))
        for k in range(settings.max_steps):
            cl.cohort = s.cohorts[k % 2]
            cell.step(s.z, s.z16, u, s.slot(k))
            s.step(k)
        cl.cohort = Cohort(spans=cl.spans, rows=cl.rows)
    return s, solve


def cells(kernels):
    solved = {}
    cl = Clients([B] * K, shuffled=False, spare=0)
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
        row("conv_a, 128 -> 256, softplus, 16 bits out", timed(lambda: c.conv("a", z16, v, phi="softplus")), CELL / 2)
        row("conv_b, 256 -> 128, 32 bits out", timed(lambda: c.conv("b", y, c.narrow[2])), CELL / 2)
        row("gradients by weights, both convolutions", timed(lambda: c.weights(z16, y, dv)), CELL)
        row("the cell", timed(lambda: c.step(u, z16, u, image)), CELL)
        row("the cell, its gradients by parameters and u", timed(lambda: (c.step(u, z16, u, image, save=True), c.backward(u, z16, d, dz=False)), 5), 2.5 * CELL)
        for narrow in (False, True):
            print(f"residuals kept in {16 if narrow else 32} bits")
            s, solve = solving(kernels, cl, c, u, Settings(relative=0.0, max_steps=8), narrow)
            row("a solve of 8 steps, everybody to the end", timed(solve, 2, 7), 8 * CELL)
            s, solve = solving(kernels, cl, c, u, Settings(), narrow)
            ms = timed(solve, 2, 7)
            steps = s.progress[:, 3].float().mean().item()
            row(f"a solve to 1e-3, at most 20 steps: {steps:.2f} a sample", ms, steps * CELL)
            solved[tile, narrow] = s.best_z.clone(), steps
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
    row("weights_to_f16, both convolutions", timed(c.prepare), gbytes=2 * 2 * 9 * K * 2 * C * C * 4 / 1e9)
    s = Solver(kernels, cl, H * H * C, Settings(relative=0.0, max_steps=99), blocks=4)
    s.start(u.view(K * B, -1))
    for k in range(7):
        s.slot(k).copy_(torch.randn_like(s.z))
        s.step(k)
    solve = Solve(z=s.z, z16=s.z16, residuals=s.residuals, plain=s.plain, best_z=s.best_z, best_image=s.best_image, partial=s.partial, gram=s.gram, gamma=s.gamma,
                  progress=s.progress, cohort=cl.cohort, n=s.n, samples=K * B, memory=5, mixing=1.0)
    for kind in ("_5", ""):
        row(f"anderson_look{kind}, memory 5", timed(lambda: kernels.launch("anderson_look" + kind, (4, B, K), 256, solve, 7)), gbytes=8 * state)
        row(f"anderson_decide{kind}", timed(lambda: kernels.launch("anderson_decide" + kind, K, 128, solve, Settings(max_steps=10 ** 6, relative=0.0).rules(), 7, 4, *s.lists[1])))
        row(f"anderson_mix{kind}, memory 5", timed(lambda: kernels.launch("anderson_mix" + kind, (4, B, K), 256, solve, 7)), gbytes=7.5 * state)
    short = s.residuals.half()
    narrow = Solve(z=s.z, z16=s.z16, residuals=short, plain=s.plain, best_z=s.best_z, best_image=s.best_image, partial=s.partial, gram=s.gram, gamma=s.gamma,
                   progress=s.progress, cohort=cl.cohort, n=s.n, samples=K * B, memory=5, mixing=1.0)
    for kind in ("_5", ""):
        row(f"anderson_look_f16{kind}, memory 5", timed(lambda: kernels.launch("anderson_look_f16" + kind, (4, B, K), 256, narrow, 7)), gbytes=5 * state)
    n = 3_300_000
    theta, g, dual, anchor, copy = G(K, n), G(K, n), G(K, n), G(n), torch.empty(K, n, device=DEVICE, dtype=torch.float16)
    row("descend with pull and 16-bit copy, 3.3 M parameters", timed(lambda: kernels.descend((up(n, 1024), K), 256, theta, g, dual, copy, cl.cohort, None, None, None, long(n), long(n), long(n), 1e-9, 0.01)), gbytes=K * n * 18 / 1e9)
    row("lanes_plus, one vector for all lanes added", timed(lambda: kernels.lanes_plus((up(n, 1024), K), 256, dual, theta, anchor, long(n), long(n), long(0), long(n), 1e-9)), gbytes=K * n * 8 / 1e9)
    weight = torch.ones(K, dtype=torch.float64, device=DEVICE)
    row("mean_of_clients", timed(lambda: kernels.mean_of_clients(up(n, 256), 256, theta, weight, anchor, long(n), long(n), K)), gbytes=K * n * 4 / 1e9)
    i, o, parts = 8192, 256, 32
    x, w, dyy, y2, partial, dw, dx = G(K * B, i), G(K, i, o), G(K * B, o), G(K * B, o), G(parts, K * B, o), G(K, i, o), G(K * B, i)
    dense = Dense(x=x, w=w, dy=dyy, cohort=cl.cohort, w_stride=i * o, **{"in": i, "out": o, "per": 1})
    weights = K * i * o * 4 / 1e9

    def forward():
        kernels.dense_forward((up(o, 128), up(B, 32) * parts, K), 256, dense, partial, parts, K * B)
        kernels.dense_finish((up(o, 256), B, K), 256, partial, None, None, y2, cl.cohort, long(o), o, 1, parts, K * B, 0)
    row("dense 8192 -> 256", timed(forward), gbytes=weights)
    row("dense by input", timed(lambda: kernels.dense_input((up(i, 128), up(B, 32), K), 256, dense, dx, 1, K * B)), gbytes=weights)
    row("dense by weights", timed(lambda: kernels.dense_weights((up(o, 128), up(i, 32), K), 256, dense, dw)), gbytes=weights)
    few = 13

    def forward_few():
        kernels.dense_forward_few((up(o, 128), up(B, 32) * few, K), 128, dense, partial, few, K * B)
        kernels.dense_finish((up(o, 256), B, K), 256, partial, None, None, y2, cl.cohort, long(o), o, 1, few, K * B, 0)
    row("dense 8192 -> 256, for few samples", timed(forward_few), gbytes=weights)
    row("dense by input, for few samples", timed(lambda: kernels.dense_input_few((up(i, 128), up(B, 32), K), 128, dense, dx, 1, K * B, shared=69120)), gbytes=weights)
    row("dense by weights, for few samples", timed(lambda: kernels.dense_weights_few((up(o, 128), up(i, 128), K), 128, dense, dw)), gbytes=weights)
    x3 = x.view(K, B, i)
    tf32(False)
    row("  PyTorch's batched product, forward, float32", timed(lambda: torch.bmm(x3, w)), gbytes=weights)
    moments = torch.zeros(K, C, 2, device=DEVICE)   # structures keep addresses alone
    n, grid = batch_norm(cl, 1024, C, scale=c.p["g2"], offset=c.p["o2"], moments=moments)
    stem, rest, dstem = G(K * B, 32, 32, C), torch.empty(K * B, n.chunks, C, 2, device=DEVICE), G(K * B, 32, 32, C)

    def norm_of_batch():
        kernels.batch_norm_look_f32(grid, 256, n, stem, rest)
        kernels.batch_norm_moments((up(C, 32), K), 256, n, rest, None, None, None, long(0))
        kernels.batch_norm_apply_f32(grid, 256, n, stem, Shortcut(x=None, W=32, HS=32, WS=32, CS=C), dstem, None)
    row("batch_norm 32 x 32 x 128, three kernels", timed(norm_of_batch), gbytes=12 * state)
    big, places, small = G(K * B, 32, 32, C), torch.empty(K * B, H, H, C, dtype=torch.uint8, device=DEVICE), G(K * B, H, H, C)
    row("max_pool 32 x 32 x 128", timed(lambda: kernels.max_pool_by_4((up(H * H * C, 1024), B, K), 256, big, small, places, cl.cohort, 32, 32, C)), gbytes=5.25 * state)
    row("max_pool_backward", timed(lambda: kernels.max_pool_backward_by_4((up(1024 * C, 1024), B, K), 256, small, places, big, cl.cohort, 32, 32, C)), gbytes=5.25 * state)
    stem16, dstem16, plane = stem.half(), torch.empty_like(stem, dtype=torch.float16), Plane(H=32, W=32)
    shares, sums = torch.empty(K * B, n.chunks, 2, C, device=DEVICE), torch.empty(K, 2, C, device=DEVICE)
    nothing = Shortcut(x=None, W=32, HS=32, WS=32, CS=C)

    def apart():
        kernels.batch_norm_apply_f16(grid, 256, n, stem16, nothing, dstem, None)
        kernels.max_pool_by_4((up(H * H * C, 1024), B, K), 256, dstem, small, places, cl.cohort, 32, 32, C)

    def apart_back():
        kernels.max_pool_backward_by_4((up(1024 * C, 1024), B, K), 256, small, places, big, cl.cohort, 32, 32, C)
        kernels.batch_norm_backward_look_f16(grid, 256, n, stem16, stem16, big, None, shares)
        sum_samples(kernels, cl, shares, sums, per=n.chunks)
        kernels.batch_norm_backward_f16(grid, 256, n, stem16, big, sums, long(2 * C), None, dstem16, 1024.0)

    def joined_back():
        kernels.norm_pool_backward_look_f16(grid, 256, n, plane, stem16, small, places, shares)
        sum_samples(kernels, cl, shares, sums, per=n.chunks)
        kernels.norm_pool_backward_f16(grid, 256, n, plane, stem16, small, places, sums, long(2 * C), None, dstem16, 1024.0)
    row("normalise and pool apart, 16 bits in", timed(apart), gbytes=11.25 * state)
    row("norm_pool", timed(lambda: kernels.norm_pool_f16((up(H * H * C, 1024), B, K), 256, n, plane, stem16, small, None, places)), gbytes=3.25 * state)
    row("their gradients apart", timed(apart_back), gbytes=19.25 * state)
    row("their gradients joined", timed(joined_back), gbytes=8.5 * state)
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


def compared(name, ours, theirs, gflop=None, gbytes=None, what="PyTorch", **more):
    """A row for our launches, and one for PyTorch's with the ratio."""
    mine = row(name, timed(ours, **more), gflop, gbytes)
    try:
        other = timed(theirs, **more)
    except Exception as problem:   # what PyTorch cannot capture is told, not timed
        torch.cuda.synchronize()
        return print(f"  {what}: {str(problem).splitlines()[0][:90]}")
    print(f"{'  ' + what:66s} {other * 1e3:9.1f} us, {other / mine:.2f} times ours", flush=True)


def residual(kernels):
    """Blocks of CIFAR's ResNets, 10 clients x 20 images, and FEMNIST's projected one, 10 x 10; PyTorch: grouped convolutions, 16 bits, channels last."""
    hopper = torch.cuda.get_device_capability() == (9, 0)
    tf32(True)
    cases = (("CIFAR 64 -> 64, 32 x 32", 20, 32, 64, 64, False), ("CIFAR 64 -> 128 / 2, 32 x 32", 20, 32, 64, 128, False), ("CIFAR 128 -> 128, 16 x 16", 20, 16, 128, 128, False),
                                                  ("CIFAR 256 -> 256, 8 x 8", 20, 8, 256, 256, False), ("FEMNIST 32 -> 64 / 2, 28 x 28, projected", 10, 28, 32, 64, True))
    for (label, B, H, CI, CO, projected), planes in [(case, planes) for case in cases for planes in [False] + [True] * hopper]:
        cl = Clients([B] * K, shuffled=False, spare=0)
        p = block_parameters(K, CI, CO, projected)
        x = torch.randn(K * B, H, H, CI, device=DEVICE).relu()
        x16 = x.half()
        print(f"-- residual block, {label}{', planes' if planes else ''}")
        last = torch.channels_last
        side = lambda t: t.view(K, B, *t.shape[1:]).permute(1, 0, 4, 2, 3).flatten(1, 2).contiguous(memory_format=last)   # clients as groups of channels
        xg = side(x16)
        q = {n: (t.permute(0, 1, 4, 2, 3).flatten(0, 1).half().contiguous(memory_format=last) if t.dim() == 5 else t.flatten()) for n, t in p.items()}
        block = Block(kernels, cl, p, H, H, CI, CO, "_planes" if planes else "_sm90" if hopper else "")
        g1, g2, gs = block.g["1"], block.g["2"], block.g.get("s")
        dy = torch.randn_like(block.y)
        dyg = side(dy.half())
        theirs = lambda: torch_block(q, xg, g1, g2, gs, K)
        block.forward(x, x16)
        print(f"relative difference to PyTorch's, both in 16 bits: {relative(side(block.y), theirs()):.1e}")
        macs = K * B * g1["HO"] * g1["WO"] * CO * (9 * CI + 9 * CO + (CI if projected else 0))
        flop = 2 * macs / 1e9

        def both():
            leaves = [t.detach().requires_grad_() for t in q.values()]
            xi = xg.detach().requires_grad_()
            out = torch_block(dict(zip(q, leaves)), xi, g1, g2, gs, K)
            torch.autograd.grad(out, [*leaves, xi], dyg)
        compared("forward", lambda: block.forward(x, x16), theirs, flop)
        compared("forward and backward", lambda: (block.forward(x, x16), block.backward(x16, dy)), both, 3 * flop, inner=3, repeats=9)
        block.backward(x16, dy)
        one = lambda name: 2 * K * B * block.g[name]["HO"] * block.g[name]["WO"] * CO * block.g[name]["CI"] * block.g[name]["window"] ** 2 / 1e9
        pad = lambda v, g: F.pad(v, (g["left"], max(2 * (g["WO"] - 1) + g["window"] - H - g["left"], 0), g["above"], max(2 * (g["HO"] - 1) + g["window"] - H - g["above"], 0))) if g["stride"] == 2 else v
        for name in block.names:
            g = block.g[name]
            source, given = (x16, xg) if name != "2" else (block.a16, side(block.a16))
            given, zeros = pad(given, g).contiguous(memory_format=last), 0 if g["stride"] == 2 else 1
            compared(f"  convolution {name}, {g['CI']} -> {g['CO']}, {g['window']}x{g['window']}/{g['stride']}", lambda: block.conv(name, source, block.t[name]),
                     lambda: F.conv2d(given, q[name], stride=g["stride"], padding=zeros, groups=K), one(name))
            dt = side(block.dt[name])
            to = torch.empty(K * B, g["H"], g["W"], g["CI"], device=DEVICE)
            grad = lambda which: torch.ops.aten.convolution_backward(dt, given, q[name], None, [g["stride"]] * 2, [zeros] * 2, [1, 1], False, [0, 0], K, which)
            compared("    by input", lambda: block.conv(name, block.dt[name], to, back=True), lambda: grad([True, False, False]), one(name))
            compared(f"    by weights, {block.parts[name]} parts", lambda: block.weights(name, source), lambda: grad([False, True, False]), one(name))
        bytes = K * B * g1["HO"] * g1["WO"] * CO / 1e9
        nothing, tg = Shortcut(x=x, W=g1["WO"], HS=H, WS=H, CS=CI) if not projected else Shortcut(x=block.s, W=g1["WO"], HS=g1["HO"], WS=g1["WO"], CS=CO), side(block.t["2"])
        scale, offset = q["g2"], q["o2"]
        compared("  norm, shortcut, relu", lambda: block.normalise("2", "relu", nothing, block.y, block.y16), lambda: F.relu(F.batch_norm(tg, None, None, scale, offset, training=True) + tg), gbytes=bytes * 14)
        row("  their gradients", timed(lambda: block.back("2", "relu", block.y16, dy, block.d)), gbytes=bytes * 20)
    cl = Clients([20] * K, shuffled=False, spare=0)
    x, y, d = torch.randn(K * 20, 8, 8, 256, device=DEVICE), torch.empty(K * 20, 256, device=DEVICE), torch.empty(K * 20, 8, 8, 256, device=DEVICE)
    print("-- the rest of a ResNet")
    compared("mean_pool 8 x 8 x 256", lambda: kernels.mean_pool_f32((4, 20, K), 256, x, y, cl.cohort, 64, 256), lambda: x.mean((1, 2)), gbytes=x.numel() * 4 / 1e9)
    compared("mean_pool_backward", lambda: kernels.mean_pool_backward((4, 20, K), 256, y, d, cl.cohort, 64, 256), lambda: (y / 64)[:, None, None].expand(-1, 8, 8, -1).contiguous(), gbytes=x.numel() * 4 / 1e9)


def texts(kernels):
    """A transformer's layer with the norm behind it, 20 clients x 16 texts."""
    suffix, K, B = "_sm90" if torch.cuda.get_device_capability() == (9, 0) else "", 20, 16
    for T in (16, 80):
        cl, S = Clients([B] * K, shuffled=False, spare=0), K * B
        symbols, indices = torch.randint(1, 90, (S, T), dtype=torch.int32, device=DEVICE), torch.arange(S, dtype=torch.int32, device=DEVICE)
        p, text = layer_parameters(K), Text(symbols=symbols, indices=indices, length=T)
        mask = (torch.rand(S, 2, T, WIDTH, device=DEVICE) > 0.1).to(torch.uint8)
        h, injection, dy = (torch.randn(S, T, WIDTH, device=DEVICE) for _ in range(3))
        layer = Layer(kernels, cl, p, text, mask, 1 / 0.9, suffix)
        dy16 = (layer.scale * dy).half()
        print(f"-- transformer layer, {K} clients x {B} texts of {T}")
        q = {n: t.half() for n, t in p.items()}
        split = lambda t: t.view(K, B, T, -1).half()
        hh, ii, dd = split(h), split(injection), split(dy)
        masks = (mask.view(K, B, 2, T, WIDTH).permute(2, 0, 1, 3, 4) / 0.9).half().contiguous()
        look = lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True)
        theirs = lambda: torch_layer(q, hh, ii, look, masks)
        layer.forward(h, injection)
        print(f"relative difference to PyTorch's, both in 16 bits: {relative(layer.y.view(K, B, T, -1), theirs()):.1e}")

        def both():
            leaves = [t.detach().requires_grad_() for t in q.values()]
            a, c = hh.detach().requires_grad_(), ii.detach().requires_grad_()
            torch.autograd.grad(torch_layer(dict(zip(q, leaves)), a, c, look, masks), [*leaves, a, c], dd)
        flop = 2 * S * T * (4 * WIDTH * WIDTH + 2 * WIDTH * MLP + 2 * T * WIDTH) / 1e9
        if T <= 16:
            masks_of_four = mask.repeat(1, 4, 1, 1)
            four, out_of_four = Layers(kernels, cl, 4, text, masks_of_four, 1 / 0.9), torch.empty_like(h)
            row("  four layers and a norm in one launch, nothing kept", timed(lambda: four.forward(h, injection, out_of_four)), 4 * flop)
        compared("forward", lambda: layer.forward(h, injection), theirs, flop)
        compared("forward and backward", lambda: (layer.forward(h, injection), layer.backward(dy16)), both, 3 * flop, inner=3, repeats=9)
        a = layer.attention()
        qkv = [t.reshape(S, T, 4, 16).transpose(1, 2) for t in layer.qkv.split(WIDTH, 2)]
        tokens = S * T * WIDTH / 1e9
        compared("  attention", lambda: attend(kernels, cl, a, layer.seen), lambda: look(*qkv), gbytes=8 * tokens)

        def back():
            leaves = [t.detach().requires_grad_() for t in qkv]
            torch.autograd.grad(look(*leaves), leaves, qkv[0])
        compared("  attention's gradients (PyTorch: with forward)", lambda: attend_backward(kernels, cl, a, layer.dseen, layer.dqkv), back, gbytes=14 * tokens)
        for name, (i, o) in DENSE.items():
            source = {"qkv": layer.a, "o": layer.seen, "widen": layer.b, "narrow": layer.active}[name]
            to, flat = getattr(layer, {"qkv": "qkv", "o": "o", "widen": "wide", "narrow": "narrow"}[name]), source.view(K, B * T, i)
            grad = getattr(layer, "d" + {"qkv": "qkv", "o": "o", "widen": "wide", "narrow": "narrow"}[name])
            work = 2 * S * T * i * o / 1e9
            compared(f"  linear {i} -> {o}", lambda: layer.linear(name, source, to), lambda: torch.baddbmm(q["b" + name][:, None], flat, q[name]), work)
            compared("    by weights and bias", lambda: layer.weights(name, source, grad), lambda: (flat.transpose(1, 2) @ grad.view(K, B * T, o), grad.view(K, B * T, o).sum(1)), work)
        n, grid = layer.norm("2", 0)
        branch = split(layer.o)
        compared("  add, drop and normalise", lambda: kernels.layer_norm_f16(grid, 256, n, layer.h1, layer.o, None, layer.h2, None, layer.b), lambda: F.layer_norm(hh + masks[0] * branch, (WIDTH,)) * q["g1"][:, None, None] + q["o1"][:, None, None], gbytes=13 * tokens)
        row("    its gradients", timed(lambda: layer.back_norm("2", 0, layer.h2, layer.db, layer.dh, layer.do)), gbytes=17 * tokens)
        wide = layer.wide
        compared("  GELU", lambda: kernels.gelu_f16((up(T * MLP, 1024), B, K), 256, wide, layer.active, cl.cohort, T * MLP), lambda: F.gelu(wide, approximate="tanh"), gbytes=4 * 4 * tokens)
        out, table = torch.empty(S, T, WIDTH, device=DEVICE), torch.randn(K, 90 + T, WIDTH, device=DEVICE)
        stride = (90 + T) * WIDTH
        rows, places = (symbols.view(K, B * T).long() + 90 * torch.arange(K, device=DEVICE)[:, None]).flatten(), table[:, 90:].contiguous()
        tokens_of = table[:, :90].reshape(-1, WIDTH).contiguous()
        compared("embed", lambda: kernels.embed((up(T * WIDTH, 256), B, K), 256, table, table.view(-1)[90 * WIDTH:], out, text, cl.cohort, long(stride), WIDTH),
                 lambda: tokens_of[rows].view(K, B, T, WIDTH) + places[:, None], gbytes=8 * tokens)
        dtable = torch.zeros(K * 90, WIDTH, device=DEVICE)
        compared("embed_backward (PyTorch: index_add_, order not fixed)", lambda: kernels.embed_backward((90, K), 256, dy, table, text, cl.cohort, long(stride), WIDTH, 0), lambda: dtable.zero_().index_add_(0, rows, dy.view(-1, WIDTH)), gbytes=4 * tokens)
        logits, counts, right = torch.randn(S, T, 96, device=DEVICE), torch.zeros(K, dtype=torch.int32, device=DEVICE), torch.zeros(S, T, dtype=torch.uint8, device=DEVICE)
        losses, d16, scores, wanted = torch.empty(S, T, device=DEVICE), torch.empty(S, T, 96, dtype=torch.float16, device=DEVICE), torch.empty(K, 2, dtype=torch.float64, device=DEVICE), symbols.long().flatten()

        def loss():
            kernels.count_symbols(K, 256, text, counts, cl.cohort)
            kernels.symbol_cross_entropy((up(T, 8), B, K), 256, logits, symbols, text, counts, losses, right, None, d16, cl.cohort, 64.0, 90, 96)
            kernels.sum_scores(K, 256, losses, right, counts, scores, cl.cohort, T)

        def torch_loss():
            x = logits[:, :, :90].reshape(-1, 90).detach().requires_grad_()
            torch.autograd.grad(F.cross_entropy(x, wanted), x)
        compared("cross-entropy of symbols with gradient, three kernels", loss, torch_loss, gbytes=S * T * 96 * 6 / 1e9)


def others(kernels):
    """DEQ-MLP, nearest neighbours, GMRES."""
    B, n = 10, 512
    print(f"-- DEQ-MLP, {K} clients x {B} samples of {n}")
    cl = Clients([B] * K, shuffled=False, spare=0)
    z, u, w, dy, parts = torch.randn(K * B, n, device=DEVICE), torch.randn(K * B, n, device=DEVICE), torch.randn(K, n, n, device=DEVICE) / n, torch.randn(K * B, n, device=DEVICE), 8
    partial, y, dx, dw = torch.empty(parts, K * B, n, device=DEVICE), torch.empty(K * B, n, device=DEVICE), torch.empty(K * B, n, device=DEVICE), torch.empty(K, n, n, device=DEVICE)
    d = Dense(x=z, w=w, dy=dy, cohort=cl.cohort, w_stride=n * n, **{"in": n, "out": n, "per": 1})
    tf32(False)

    def step():
        kernels.dense_forward((up(n, 128), up(B, 32) * parts, K), 256, d, partial, parts, K * B)
        kernels.dense_finish((up(n, 256), B, K), 256, partial, None, u, y, cl.cohort, long(n), n, 1, parts, K * B, 1)
    theirs = lambda: F.relu(torch.baddbmm(u.view(K, B, n), z.view(K, B, n), w))
    step()
    print(f"relative difference to PyTorch's: {relative(y.view(K, B, n), theirs()):.1e}")
    weights = K * n * n * 4 / 1e9
    compared("the cell", step, theirs, gbytes=weights)
    def by_input():
        kernels.dense_input((up(n, 128), up(B, 32) * parts, K), 256, d, partial, parts, K * B)
        kernels.dense_finish((up(n, 256), B, K), 256, partial, None, None, dx, cl.cohort, long(n), n, 1, parts, K * B, 0)
    compared("by input", by_input, lambda: torch.bmm(dy.view(K, B, n), w.transpose(1, 2)), gbytes=weights)
    compared("by weights", lambda: kernels.dense_weights((up(n, 128), up(n, 32), K), 256, d, dw), lambda: torch.bmm(z.view(K, B, n).transpose(1, 2), dy.view(K, B, n)), gbytes=weights)
    steps = torch.arange(1, n + 1, device=DEVICE)
    b = w.clone()

    def sorted_projection():
        size = w.abs().transpose(1, 2)
        ordered = size.sort(2, descending=True)[0]
        candidates = (ordered.cumsum(2) - 0.95) / steps
        at = (ordered > candidates).sum(2, keepdim=True) - 1
        return ((size - candidates.gather(2, at.clamp_min(0))).clamp_min(0) * w.transpose(1, 2).sign()).transpose(1, 2)
    compared("projection onto the ball, columns (PyTorch: by sorting)", lambda: (b.copy_(w), kernels.project_columns((up(n, 32), K), 256, b, cl.cohort, long(n * n), n, n, 0.95, 1)), sorted_projection, gbytes=2 * weights)
    compared("projection onto the sphere, rows", lambda: (b.copy_(w), kernels.project_rows((up(n, 8), K), 256, b, cl.cohort, long(n * n), n, n, 1.0, 0)), sorted_projection, gbytes=2 * weights)
    print("-- nearest neighbours, 10 clients x 100 questions, 500 entries of 128, 10 neighbours, 10 classes")
    ask, answer = Clients([100] * K, shuffled=False, spare=0), Clients([500] * K, shuffled=False, spare=0)
    q, e, logits = torch.randn(1000, 128, device=DEVICE), torch.randn(5000, 128, device=DEVICE), torch.randn(1000, 10, device=DEVICE)
    labels, wanted = torch.randint(10, (5000,), dtype=torch.int32, device=DEVICE), torch.randint(10, (1000,), dtype=torch.int32, device=DEVICE)
    distances, mixed, losses, right = torch.empty(1000, 500, device=DEVICE), torch.empty(1000, 10, device=DEVICE), torch.empty(1000, device=DEVICE), torch.zeros(1000, dtype=torch.uint8, device=DEVICE)

    def vote():
        kernels.knn_distances((up(500, 64), up(100, 64), K), 256, q, e, distances, ask.cohort, answer.cohort, 128, 500)
        kernels.knn_vote((1, 100, K), 128, distances, logits, labels, wanted, mixed, losses, right, ask.cohort, answer.cohort, 0.5, 10, 10, 500, shared=40)

    def torch_vote():
        near, at = torch.cdist(q.view(K, 100, 128), e.view(K, 500, 128)).topk(10, largest=False)
        ballots = labels.view(K, 500).long().gather(1, at.view(K, -1)).view(K, 100, 10)
        return 0.5 * logits.view(K, 100, 10).softmax(2).scatter_add(2, ballots, (-near).softmax(2))
    compared("distances and votes", vote, torch_vote)
    print("-- GMRES, DEQ-ResNet-M's states: 10 clients x 20 samples of 32,768, column 10")
    cl, n = Clients([20] * K, shuffled=False, spare=0), 32768
    basis, image, through = torch.randn(21, 200, n, device=DEVICE) / n ** 0.5, torch.randn(200, n, device=DEVICE), torch.randn(200, n, device=DEVICE)
    partial, coefficients, spaces = torch.empty(3, 200, 8, 24, device=DEVICE), torch.randn(200, 24, device=DEVICE), torch.zeros(200, 5224, dtype=torch.uint8, device=DEVICE)
    spaces.view(torch.int32)[:, -3] = 10   # columns
    g = Gmres(basis=basis, newest16=None, image=image, u=through, b=through, partial=partial, weights=coefficients, spaces=spaces, cohort=cl.cohort, n=n, samples=200, memory=20)
    rest, state = basis[:11].transpose(0, 1), 200 * n * 4 / 1e9

    def torch_pass():
        h = torch.bmm(rest, image[:, :, None])
        return image - torch.bmm(h.transpose(1, 2), rest)[:, 0]
    compared("project and take away, one pass (PyTorch: two)", lambda: kernels.gmres_project((8, 20, K), 256, g, through, 10, 1), torch_pass, gbytes=13 * state)
    row("gmres_unit", timed(lambda: kernels.gmres_unit((8, 20, K), 256, g, 11, 1.0)), gbytes=2 * state)
    row("gmres_correct, 10 columns", timed(lambda: kernels.gmres_correct((8, 20, K), 256, g, None, 1.0)), gbytes=12 * state)
    lists = cl.spans.clone(), cl.rows.clone()
    row("gmres_decide", timed(lambda: kernels.gmres_decide(K, 128, g, GmresRules(relative=0.0, absolute=0.0, max_steps=10 ** 6), 10, 8, *lists)))
    m = 3_300_000
    theta, anchor, shares, norms = torch.randn(K, m, device=DEVICE), torch.randn(m, device=DEVICE), torch.empty(K, 64, dtype=torch.float64, device=DEVICE), torch.empty(K, dtype=torch.float64, device=DEVICE)
    compared("gap to the server's parameters, 3.3 M, in 64 bits", lambda: (kernels.lanes_norm_partial((64, K), 256, theta, anchor, shares, long(m), long(0), long(m)), kernels.lanes_norm(1, 128, shares, norms, 64, K)),
             lambda: (theta - anchor).norm(dim=1), gbytes=K * m * 4 / 1e9)


SECTIONS = dict(cells=cells, residual=residual, texts=texts, others=others)

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    ceilings()
    kernels = Kernels()
    for name, section in SECTIONS.items():
        if name in sys.argv or not set(sys.argv) & set(SECTIONS):
            section(kernels)
