"""What residual networks need: strided and 1x1 convolutions, batch normalisation with what is around it, shortcuts, global average pooling."""
import torch
import torch.nn.functional as F

from harness import *
from network import Block, block_parameters, torch_block

PHIS = {"identity": lambda v: v, "relu": F.relu, "softplus_exact": F.softplus}
SLOPES = {"identity": torch.ones_like, "relu": lambda y: (y > 0).double(), "softplus_exact": lambda y: -torch.expm1(-y)}


@check_of
def strided():
    """Windows and strides of all kinds on tensor cores: forward and both gradients, also added to what is there, also in parts."""
    k = KERNELS
    cases = [([3], 5, 7, 8, 16, 3, 2), ([2, 5, 0, 1], 8, 8, 64, 128, 3, 2), ([1, 3], 7, 8, 16, 32, 3, 2), ([4, 2], 9, 5, 24, 40, 1, 2), ([3, 1], 6, 6, 72, 24, 1, 1),
             ([2, 3], 1, 80, 64, 192, 1, 1), ([1, 2], 28, 28, 8, 32, 3, 1), ([2], 1, 1, 8, 8, 3, 2)]
    if not SMALL:
        cases += [([20] * 10, 32, 32, 64, 64, 3, 1), ([20] * 10, 32, 32, 64, 128, 3, 2), ([7, 20, 1, 13] * 5, 14, 14, 64, 128, 1, 2)]
    for sizes, H, W, CI, CO, window, stride in cases:
        cl, g = Clients(sizes), geometry(H, W, CI, CO, window, stride)
        what = describe(cl, H, W, CI, CO, f"{window}x{window}/{stride}")
        x = torch.randn(cl.samples, H, W, CI, device=DEVICE).half()
        dy = torch.randn(cl.samples, g["HO"], g["WO"], CO, device=DEVICE).half()
        w = torch.randn(cl.count, CO, window, window, CI, device=DEVICE) / (window * window * CI) ** 0.5
        bias = torch.randn(cl.count, CO, device=DEVICE)
        straight, turned = weights_to_f16(k, w)
        ys, dxs, dws = [], [], []
        for i, (a, b) in enumerate(zip(by_client(cl, x), by_client(cl, dy))):
            wi = straight[i].permute(0, 3, 1, 2).double().to(REFERENCE).requires_grad_()
            a.requires_grad_()
            out = F.conv2d(padded(a, g), wi, bias[i].double().to(REFERENCE), stride=stride)
            da, dw = gradients(out, (a, wi), b)
            ys.append(out.detach()), dxs.append(da), dws.append(dw)
        planes = HOPPER and (window, stride) == (3, 1)
        for tile in ["conv", "conv_64", "conv_32"] + ["conv_sm90", "conv_64_sm90"] * HOPPER + [PLANES] * planes:
            for dtype, allowed in ((torch.float32, SUMS_32), (torch.float16, 4e-4)):
                y = poisoned(*dy.shape, dtype=dtype)
                convolve(k, tile, cl, g, x, straight, y, bias=bias)
                compare(f"{tile} {str(dtype)[6:]} {what}", cl, y, ys, allowed)
            dx = poisoned(*x.shape)
            convolve(k, tile, cl, g, dy, turned, dx, alpha=0.5, back=True)
            compare(f"by input, {tile} {what}", cl, dx, [0.5 * v for v in dxs], SUMS_32)
            there = torch.randn(*x.shape, device=DEVICE)
            there[cl.unlisted] = float("nan")
            sums = [a + b for a, b in zip(by_client(cl, there), dxs)]
            convolve(k, tile, cl, g, dy, turned, there, back=True, add=True)
            compare(f"added by input, {tile} {what}", cl, there, sums, SUMS_32)
        expected = torch.stack(dws).permute(0, 1, 3, 4, 2)
        for name in ["conv_weights", "conv_weights_64"] + ["conv_weights_sm90", "conv_weights_64_sm90"] * HOPPER + [WEIGHT_PLANES] * planes:
            for parts in (1, 3):
                dw, scratch = poisoned(*w.shape), [poisoned(parts, *w.shape)]
                weight_gradients(k, name, cl, [(g, x, dy, dw)], 2.0, parts, scratch)
                report(f"{name} in {parts} {what}", error(dw, 2 * expected), max(SUMS_32, 1.5e-9 * cl.most * g["HO"] * g["WO"]))


@check_of
def batch_normalisation():
    k = KERNELS
    for sizes, H, W, C, half in (([3, 1, 0, 4], 5, 7, 16, 8), ([4, 20], 16, 16, 128, 64), ([6, 9], 1, 1, 128, 64), ([5, 2], 28, 28, 32, 16), ([3, 2], 9, 11, 24, 8), ([2], 2, 3, 2048, 1024)):
        cl = Clients(sizes)
        scale, offset = 1 + 0.3 * torch.randn(cl.count, C, device=DEVICE), torch.randn(cl.count, C, device=DEVICE)
        running = torch.rand(cl.count, 2 * C + 3, device=DEVICE)   # means, variances, and how many there have been with others beside it
        running[:, 2 * C + 1] = torch.arange(cl.count, device=DEVICE)
        steps, apart, beyond = running[:, 2 * C + 1].clone(), long(2 * C + 3), lambda t, at: pointer(t.data_ptr() + 4 * at)
        what = describe(cl, H, W, C)
        plain, widening = torch.randn(cl.samples, H, W, C, device=DEVICE), torch.randn(cl.samples, 2 * H - 1, 2 * W, half, device=DEVICE)
        nothing = Shortcut(x=None, W=W, HS=H, WS=W, CS=C)
        cases = [("f32", before, "identity", None) for before in PHIS] + [("f32", "identity", after, s) for after in ("relu", "softplus_exact") for s in (None, plain, widening)]
        for bits, before, after, s in cases + [("f16", "relu", "identity", None), ("f16", "identity", "relu", plain)]:
            dtype, allowed = (torch.float32, 3e-6) if bits == "f32" else (torch.float16, 5e-6)
            x = PHIS[before](0.5 + torch.randn(cl.samples, H, W, C, device=DEVICE)).to(dtype)
            dy, y, y16 = torch.randn(*x.shape, device=DEVICE), poisoned(*x.shape), poisoned(*x.shape, dtype=torch.float16)
            d, dx, dx16 = poisoned(*x.shape), poisoned(*x.shape), poisoned(*x.shape, dtype=torch.float16)
            moments, sums, moved = poisoned(cl.count, C, 2), poisoned(cl.count, 2, C), running.clone()
            n, grid = batch_norm(cl, H * W, C, before, after, scale=scale, offset=offset, moments=moments)
            partial, shares = poisoned(cl.samples, n.chunks, C, 2), poisoned(cl.samples, n.chunks, 2, C)
            shortcut = nothing if s is None else Shortcut(x=s, W=W, HS=s.shape[1], WS=s.shape[2], CS=s.shape[3])
            k.launch("batch_norm_look_" + bits, grid, 256, n, x, partial)
            k.batch_norm_moments((up(C, 32), cl.count), 256, n, partial, moved, beyond(moved, C), beyond(moved, 2 * C + 1), apart)
            k.count_batches(cl.count, 64, moved, torch.tensor([2 * C + 1], dtype=torch.int32, device=DEVICE), cl.cohort, apart, 1)
            k.launch("batch_norm_apply_" + bits, grid, 256, n, x, shortcut, y, y16)
            k.launch("batch_norm_backward_look_" + bits, grid, 256, n, x, y if bits == "f32" else y16, dy, d, shares)
            sum_samples(k, cl, shares, sums, per=n.chunks)
            k.launch("batch_norm_backward_" + bits, grid, 256, n, x, d, sums, long(2 * C), dx, dx16, 4.0)
            ys, ds, dxs, dss, runs = [], [], [], [], []
            for i, (v, e) in enumerate(zip(by_client(cl, x), by_client(cl, dy))):
                sc, of, r = (t[i].double().to(REFERENCE) for t in (scale, offset, running[:, :2 * C]))
                if not len(v):
                    ys.append(v), ds.append(v), dxs.append(v), dss.append(torch.zeros(2, C, dtype=torch.float64, device=REFERENCE)), runs.append(r)
                    continue
                sc.requires_grad_(), of.requires_grad_(), v.requires_grad_()
                added = torch.zeros_like(v) if s is None else by_client(cl, s)[i]
                if added.shape[1] != C:
                    missing = C - added.shape[1]
                    added = F.pad(added[:, :, ::2, ::2], (0, 0, 0, 0, missing // 2, missing - missing // 2))
                norm = F.batch_norm(v, None, None, sc, of, training=True)
                out = PHIS[after](norm + added).detach()
                e = e * SLOPES[after](out)
                gv, gs, go = torch.autograd.grad(norm, (v, sc, of), e)
                ys.append(out), ds.append(e), dxs.append((gv * SLOPES[before](v)).detach()), dss.append(torch.stack([gs, go]))
                t, flat = float(steps[i]) + 1, v.detach().transpose(0, 1).reshape(C, -1)
                now = torch.cat([flat.mean(1), flat.var(1, unbiased=False)])
                runs.append((0.9 * (1 - 0.9 ** (t - 1)) * r + 0.1 * now) / (1 - 0.9 ** t))
            name = f"{bits} {before} {after} {'' if s is None else 'shortcut' if s is plain else 'widening'} {what}"
            # In 16 bits a slope is told from a rounded value: where relu's is nearly 0 it may be told wrongly.
            compare(f"batch_norm_apply {name}", cl, y, ys, allowed)
            compare("  in 16 bits", cl, y16, ys, 4e-4)
            compare("  gradient of the shortcut", cl, d, ds, allowed if bits == "f32" else 1e-2)
            compare(f"batch_norm_backward {name}", cl, dx, dxs, 5e-6 if bits == "f32" else 1e-2)
            compare("  in 16 bits", cl, dx16, [4 * v for v in dxs], 4e-4 if bits == "f32" else 1e-2)
            report("  gradients of scale and offset", error(sums, torch.stack(dss)), 5e-6 if bits == "f32" else 1e-2)
            report("  running statistics", error(moved[:, :2 * C], torch.stack(runs)), 1e-6)
            seen = steps + torch.tensor([float(size > 0) for size in cl.sizes], device=DEVICE)
            report("  batches seen", float(not (torch.equal(moved[:, 2 * C + 1], seen) and torch.equal(moved[:, 2 * C::2], torch.stack([running[:, 2 * C], running[:, 2 * C + 2]], 1)))), 0)
            if s is None and after == "relu":
                alone, alone16 = poisoned(*x.shape), poisoned(*x.shape, dtype=torch.float16)
                for t in (plain, widening, None):
                    k.add_shortcut((up(H * W * C, 1024), cl.most, cl.count), 256, plain, nothing if t is None else Shortcut(x=t, W=W, HS=t.shape[1], WS=t.shape[2], CS=t.shape[3]), alone, alone16, cl.cohort, H * W, C, PHI[after])
                    sums_of = []
                    for a, b in zip(by_client(cl, plain), by_client(cl, torch.zeros_like(plain) if t is None else t)):
                        missing = C - b.shape[1]
                        sums_of.append(F.relu(a + (F.pad(b[:, :, ::2, ::2], (0, 0, 0, 0, missing // 2, missing - missing // 2)) if missing else b)))
                    compare(f"add_shortcut {what}", cl, alone, sums_of, 1e-6)
                    compare("  in 16 bits", cl, alone16, sums_of, 4e-4)
        k.batch_norm_running((up(C, 128), cl.count), 128, n, running, beyond(running, C), apart)
        n, grid = batch_norm(cl, H * W, C, scale=scale, offset=offset, moments=moments)
        x, y = torch.randn(cl.samples, H, W, C, device=DEVICE), poisoned(cl.samples, H, W, C)
        k.batch_norm_apply_f32(grid, 256, n, x, nothing, y, None)
        expected = [F.batch_norm(v, *(t[i].double().to(REFERENCE) for t in (running[:, :C], running[:, C:2 * C], scale, offset))) if len(v) else v for i, v in enumerate(by_client(cl, x))]
        compare(f"batch_norm_running {what}", cl, y, expected, 2e-6)
        d, dx = torch.randn(cl.samples, H, W, C, device=DEVICE), poisoned(*widening.shape)
        HS, WS = widening.shape[1:3]
        k.widen_backward((up(HS * WS * half, 256), cl.most, cl.count), 256, d, dx, cl.cohort, HS, WS, half, H, W, C)
        expected = []
        for v in by_client(cl, d):
            e = torch.zeros(len(v), half, HS, WS, dtype=torch.float64, device=REFERENCE)
            e[:, :, ::2, ::2] = v[:, (C - half) // 2:(C - half) // 2 + half]
            expected.append(e)
        compare(f"widen_backward {what}", cl, dx, expected, 1e-7)


@check_of
def pooled_normalisation():
    """pool(norm(phi(x))) in one kernel, and its gradients."""
    k = KERNELS
    for sizes, H, W, C in (([3, 1, 0, 4], 7, 6, 12), ([2, 3], 16, 16, 128), ([5], 1, 2, 8), ([4, 2], 9, 7, 24), ([3], 5, 5, 1032)):
        cl, HO, WO = Clients(sizes), (H + 1) // 2, (W + 1) // 2
        scale, offset = torch.randn(cl.count, C, device=DEVICE), torch.randn(cl.count, C, device=DEVICE)
        for bits, before in (("f32", "identity"), ("f32", "softplus_exact"), ("f16", "relu"), ("f16", "softplus")):
            dtype, phi = torch.float32 if bits == "f32" else torch.float16, PHIS["softplus_exact" if before == "softplus" else before]
            x = phi(0.5 + torch.randn(cl.samples, H, W, C, device=DEVICE)).mul(64).round().div(64).to(dtype)   # with ties, and nothing that nearly is one
            dy, moments, sums = torch.randn(cl.samples, HO, WO, C, device=DEVICE), poisoned(cl.count, C, 2), poisoned(cl.count, 2, C)
            y, y16, places = poisoned(*dy.shape), poisoned(*dy.shape, dtype=torch.float16), torch.zeros(*dy.shape, dtype=torch.uint8, device=DEVICE)
            dx, dx16 = poisoned(*x.shape), poisoned(*x.shape, dtype=torch.float16)
            n, grid = batch_norm(cl, H * W, C, before, scale=scale, offset=offset, moments=moments)
            partial, shares, plane = poisoned(cl.samples, n.chunks, C, 2), poisoned(cl.samples, n.chunks, 2, C), Plane(H=H, W=W)
            k.launch("batch_norm_look_" + bits, grid, 256, n, x, partial)
            k.batch_norm_moments((up(C, 32), cl.count), 256, n, partial, None, None, None, long(0))
            k.launch("norm_pool_" + bits, (up(HO * WO * C, 1024), cl.most, cl.count), 256, n, plane, x, y, y16, places)
            k.launch("norm_pool_backward_look_" + bits, grid, 256, n, plane, x, dy, places, shares)
            sum_samples(k, cl, shares, sums, per=n.chunks)
            k.launch("norm_pool_backward_" + bits, grid, 256, n, plane, x, dy, places, sums, long(2 * C), dx, dx16, 4.0)
            ys, dxs, dss = [], [], []
            for i, (v, e) in enumerate(zip(by_client(cl, x), by_client(cl, dy))):
                sc, of = (t[i].double().to(REFERENCE).requires_grad_() for t in (scale, offset))
                if not len(v):
                    ys.append(e), dxs.append(v), dss.append(torch.zeros(2, C, dtype=torch.float64, device=REFERENCE))
                    continue
                v.requires_grad_()
                out = F.max_pool2d(F.pad(F.batch_norm(v, None, None, sc, of, training=True), (W & 1, 1, H & 1, 1), value=-1e30), 3, 2)
                gv, gs, go = torch.autograd.grad(out, (v, sc, of), e)
                ys.append(out.detach()), dxs.append((gv * SLOPES["softplus_exact" if before == "softplus" else before](v)).detach()), dss.append(torch.stack([gs, go]))
            name = f"{bits} {before} {describe(cl, H, W, C)}"
            compare(f"norm_pool {name}", cl, y, ys, 5e-6), compare("  in 16 bits", cl, y16, ys, 4e-4)
            compare(f"norm_pool_backward {name}", cl, dx, dxs, 1e-5), compare("  in 16 bits", cl, dx16, [4 * v for v in dxs], 4e-4)
            report("  gradients of scale and offset", error(sums, torch.stack(dss)), 1e-5)


@check_of
def mean_pooling():
    k = KERNELS
    for sizes, H, W, C in (([3, 1, 0, 4], 5, 7, 6), ([2, 3], 8, 8, 256), ([4], 1, 1, 70)):
        cl = Clients(sizes)
        x, dy = torch.randn(cl.samples, H, W, C, device=DEVICE), torch.randn(cl.samples, C, device=DEVICE)
        for v, name in ((x, "mean_pool_f32"), (x.half(), "mean_pool_f16")):
            y = poisoned(cl.samples, C)
            k.launch(name, (up(C, 64), cl.most, cl.count), 256, v, y, cl.cohort, H * W, C)
            compare(f"{name} {describe(cl, H, W, C)}", cl, y, [t.mean((2, 3)) for t in by_client(cl, v)], 1e-6)
        dx = poisoned(*x.shape)
        k.mean_pool_backward((up(C, 64), cl.most, cl.count), 256, dy, dx, cl.cohort, H * W, C)
        compare(f"mean_pool_backward {describe(cl, H, W, C)}", cl, dx, [(v / (H * W))[:, :, None, None].expand(-1, -1, H, W) for v in by_client(cl, dy)], 1e-6)


@check_of
def residual_blocks():
    """Blocks put together: both kinds of widening, and the plain one."""
    cases = [([3, 1, 0, 4], 7, 8, 16, 32, True), ([2, 3], 8, 8, 64, 128, False), ([5, 2], 6, 5, 64, 64, False)]
    if not SMALL:
        cases += [([20] * 10, 32, 32, 64, 64, False), ([20] * 10, 32, 32, 64, 128, False), ([10] * 10, 28, 28, 32, 64, True)]
    for sizes, H, W, CI, CO, projected in cases:
        cl = Clients(sizes)
        p, what = block_parameters(cl.count, CI, CO, projected), describe(cl, H, W, CI, CO, "projected" if projected else "")
        for suffix in [""] + ["_sm90", "_planes"] * HOPPER:
            b = Block(KERNELS, cl, p, H, W, CI, CO, suffix, parts=2)
            x = torch.randn(cl.samples, H, W, CI, device=DEVICE).relu()
            x16, dy = x.half(), torch.randn(cl.samples, b.g["1"]["HO"], b.g["1"]["WO"], CO, device=DEVICE)
            b.y.fill_(float("nan")), b.dx.fill_(float("nan"))
            b.forward(x, x16), b.backward(x16, dy)
            ys, dxs, grads = [], [], []
            for i, (v, e) in enumerate(zip(by_client(cl, x), by_client(cl, dy))):
                q = {n: (t[i].permute(0, 3, 1, 2) if t.dim() == 5 else t[i]).double().to(REFERENCE).requires_grad_() for n, t in p.items()}
                v.requires_grad_()
                out = torch_block(q, v, b.g["1"], b.g["2"], b.g.get("s")) if len(v) else torch.zeros(0, CO, *dy.shape[1:3], dtype=torch.float64, device=REFERENCE)
                g = gradients(out, (v, *q.values()), e)
                ys.append(out.detach()), dxs.append(g[0]), grads.append(dict(zip(q, g[1:])))
            seen = [t.clone() for t in (b.y, b.dx, *b.grads.values(), *b.sums.values())]
            b.forward(x, x16), b.backward(x16, dy)
            listed = lambda t: t[cl.listed] if len(t) == cl.samples else t
            same_bits = all(torch.equal(listed(a), listed(c)) for a, c in zip(seen, (b.y, b.dx, *b.grads.values(), *b.sums.values())))
            report(f"residual block{suffix} {what}: the same bits twice", float(not same_bits), 0)
            # A rounding turns gradients on or off where relu's argument is nearly 0; its kernels are held to more on their own.
            compare(f"residual block{suffix} {what}", cl, b.y, ys, 2e-3)
            compare("  by x", cl, b.dx, dxs, 1e-1)
            for n in b.names:
                report(f"  by conv {n}", error(b.grads[n], torch.stack([g[n] for g in grads]).permute(0, 1, 3, 4, 2)), 1e-1)
                report(f"  by norm {n}", error(b.sums[n], torch.stack([torch.stack([g["g" + n], g["o" + n]]) for g in grads])), 1e-1)
