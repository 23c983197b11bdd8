"""Checks every kernel against PyTorch in float64. usage: run.py [--small] [--list] [names of checks]

Prints ||found - expected|| / ||expected|| for every case beside what is allowed. --small leaves out the large cases, for compute-sanitizer.
"""
import sys
import time

import torch
import torch.nn.functional as F

from cell import *
from harness import *
from solver import *
import mixtures, residual, texts, training  # noqa: their checks

CASES = [([3], 5, 7, 8, 16), ([1, 4, 2, 0, 7], 14, 14, 64, 128), ([2, 5, 1], 9, 3, 24, 40), ([3, 1], 8, 8, 256, 72), ([1], 1, 1, 8, 8)]
if not SMALL:
    CASES += [([20] * 10, 16, 16, 128, 256), ([20] * 10, 16, 16, 256, 128), ([7, 20, 1, 13] * 25, 8, 8, 64, 64)]
@check_of
def convolution():
    k = KERNELS
    variants = ["conv", "conv_64", "conv_32"] + ["conv_sm90", "conv_64_sm90", PLANES] * HOPPER
    for sizes, H, W, CI, CO in CASES:
        cl = Clients(sizes)
        x = torch.randn(cl.samples, H, W, CI, device=DEVICE).half()
        w = torch.randn(cl.count, CO, CI, 3, 3, device=DEVICE) / (9 * CI) ** 0.5
        bias = torch.randn(cl.count, CO, device=DEVICE)
        last, g = channels_last(w), geometry(H, W, CI, CO)
        straight, turned = weights_to_f16(k, last)
        report("weights in 16 bits " + describe(cl, CI, CO), error(straight, last.half()) + error(turned, last.half().flip(2, 3).permute(0, 4, 2, 3, 1)), 0)
        wd = straight.permute(0, 1, 4, 2, 3).double().to(REFERENCE)
        plain = [F.conv2d(v, wd[i], bias[i].double().to(REFERENCE), padding=1) for i, v in enumerate(by_client(cl, x))]
        for tile in variants:
            for phi_of, phi, dtype, allowed in (("identity", lambda v: v, torch.float32, SUMS_32), ("relu", F.relu, torch.float32, SUMS_32), ("softplus", F.softplus, torch.float32, SUMS_32),
                                                ("softplus", F.softplus, torch.float16, 4e-4)):
                y = poisoned(cl.samples, H, W, CO, dtype=dtype)
                convolve(k, tile, cl, g, x, straight, y, phi=phi_of, bias=bias)
                compare(f"{tile} {phi_of} {str(dtype)[6:]} {describe(cl, H, W, CI, CO)}", cl, y, [phi(v) for v in plain], allowed)
            dy = torch.randn(cl.samples, H, W, CO, device=DEVICE).half()
            dx = poisoned(cl.samples, H, W, CI)
            convolve(k, tile, cl, g, dy, turned, dx, alpha=0.5, back=True)
            expected = [0.5 * torch.nn.grad.conv2d_input((v.shape[0], CI, H, W), wd[i], v, padding=1) if len(v) else v for i, v in enumerate(by_client(cl, dy))]
            compare(f"gradient by input, {tile} {describe(cl, H, W, CI, CO)}", cl, dx, expected, SUMS_32)
        expected = torch.stack([2 * torch.nn.grad.conv2d_weight(a, wd[i].shape, b, padding=1) if len(a) else torch.zeros_like(wd[i])
                                for i, (a, b) in enumerate(zip(by_client(cl, x), by_client(cl, dy)))])
        for name in ["conv_weights", "conv_weights_64"] + ["conv_weights_sm90", "conv_weights_64_sm90", WEIGHT_PLANES] * HOPPER:
            both = [poisoned(cl.count, CO, 3, 3, CI) for _ in range(2)]
            weight_gradients(k, name, cl, [(g, x, dy, dw) for dw in both], alpha=2.0)
            report(f"{name} {describe(cl, H, W, CI, CO)}", error(both[0].permute(0, 1, 4, 2, 3), expected), SUMS_32)
            report("  both problems agree to the bit", float(not torch.equal(both[0], both[1])), 0)


@check_of
def narrowing():
    """The weights of several layers of a lane in 16 bits by one launch: straight and turned, either alone, and in any shape."""
    shapes, clients = [(64, 1, 192), (8, 9, 40), (130, 1, 33), (1, 4, 1), (256, 9, 16)], 3
    places = [16]
    for CO, taps, CI in shapes:
        places.append(places[-1] + CO * taps * CI + 5)
    lanes, made, first, results = torch.randn(clients, places[-1], device=DEVICE), Layers(), 0, []
    for i, ((CO, taps, CI), at) in enumerate(zip(shapes, places)):
        straight, turned = (poisoned(clients, CO * taps * CI, dtype=torch.float16) for _ in range(2))
        results.append((straight, turned))
        made.of[i] = Weights(w=lanes.data_ptr() + 4 * at, straight=None if i == 1 else straight, turned=None if i == 2 else turned, packed=CO * taps * CI, CI=CI, CO=CO, taps=taps, first=first)
        first += up(CI, 32) * up(CO, 32) * taps
    KERNELS.weights_to_f16((first, clients), (32, 8), made, len(shapes), long(places[-1]))
    for i, ((CO, taps, CI), at, (straight, turned)) in enumerate(zip(shapes, places, results)):
        w = lanes[:, at:at + CO * taps * CI].reshape(clients, CO, taps, CI).half()
        wrong = not (torch.isnan(straight).all() if i == 1 else torch.equal(straight.view_as(w), w))
        wrong |= not (torch.isnan(turned).all() if i == 2 else torch.equal(turned.view(clients, CI, taps, CO), w.flip(2).permute(0, 3, 2, 1)))
        report(f"weights in 16 bits, layer {i} of {len(shapes)}: {CO} x {taps} x {CI}", float(bool(wrong)), 0)


@check_of
def packing():
    """What a sample gets does not depend on who else is in the cohort."""
    H, W, CI, CO = 6, 5, 16, 24
    x, w = torch.randn(9, H, W, CI, device=DEVICE).half(), torch.randn(2, CO, 3, 3, CI, device=DEVICE).half()
    results = []
    for sizes in ([5, 4], [9, 0]):
        cl = Clients(sizes, shuffled=False, spare=0)
        y = poisoned(9, H, W, CO)
        convolve(KERNELS, "conv", cl, geometry(H, W, CI, CO), x, w, y)
        results.append(y[:5])
    report("a sample's convolution in another cohort, to the bit", float(not torch.equal(*results)), 0)


@check_of
def exact_convolution():
    k = KERNELS
    for sizes, H, W, CI, CO, window, stride in (([3, 1, 0, 4], 7, 5, 3, 10, 3, 1), ([2, 5], 8, 6, 5, 7, 3, 2), ([2], 9, 9, 70, 66, 3, 2), ([1, 3], 8, 8, 6, 12, 1, 2), ([2, 1], 7, 8, 4, 6, 3, 2)):
        cl, g = Clients(sizes), geometry(H, W, CI, CO, window, stride)
        HO, WO = g["HO"], g["WO"]
        x, dy = torch.randn(cl.samples, H, W, CI, device=DEVICE), torch.randn(cl.samples, HO, WO, CO, device=DEVICE)
        w, bias, y = torch.randn(cl.count, CO, window, window, CI, device=DEVICE), torch.randn(cl.count, CO, device=DEVICE), poisoned(cl.samples, HO, WO, CO)
        c = lambda y, bias: ConvExact(x=x, w=w, bias=bias, y=y, cohort=cl.cohort, w_stride=w[0].numel(), bias_stride=CO, **g)
        wd = w.permute(0, 1, 4, 2, 3).double().to(REFERENCE)
        plain, dxs, dws = [], [], []
        for i, (a, b) in enumerate(zip(by_client(cl, x), by_client(cl, dy))):
            a.requires_grad_(), (wi := wd[i].clone()).requires_grad_()
            out = F.conv2d(padded(a, g), wi, bias[i].double().to(REFERENCE), stride=stride)
            grads = torch.autograd.grad(out, (a, wi), b) if len(a) else (a.detach(), torch.zeros_like(wi))
            plain.append(out.detach()), dxs.append(grads[0]), dws.append(grads[1])
        what = describe(cl, H, W, CI, CO, f"{window}x{window}/{stride}")
        for name, phi in (("conv_exact", lambda v: v), ("conv_exact_relu", F.relu), ("conv_exact_softplus", F.softplus)):
            y = poisoned(cl.samples, HO, WO, CO)
            k.launch(name, (up(CO, 64), up(cl.most * HO * WO, 64), cl.count), 256, c(y, bias))
            compare(f"{name} {what}", cl, y, [phi(v) for v in plain], 1e-6)
        dx, dw = poisoned(cl.samples, H, W, CI), poisoned(*w.shape)
        k.conv_exact_input((up(CI, 64), up(cl.most * H * W, 64), cl.count), 256, c(dy, None), dx)
        compare(f"conv_exact_input {what}", cl, dx, dxs, 1e-6)
        k.conv_exact_weights((up(window ** 2 * CI, 64), up(CO, 64), cl.count), 256, c(dy, None), dw)
        report(f"conv_exact_weights {what}", error(dw.permute(0, 1, 4, 2, 3), torch.stack(dws)), 1e-6)


@check_of
def group_normalisation():
    k = KERNELS
    for sizes, H, W, C, G, by_row in (([3, 1, 0, 4], 5, 7, 48, 8, False), ([2, 3], 16, 16, 256, 8, False), ([2, 3], 14, 14, 64, 8, True), ([4], 1, 1, 32, 8, False), ([3], 4, 4, 16, 8, False)):
        cl = Clients(sizes)
        regions, pixels = (H, W) if by_row else (1, H * W)
        grid, threads, shape = norm_launch(cl, pixels, regions, C, G)
        scale, offset = 1 + 0.3 * torch.randn(cl.count, C, device=DEVICE), torch.randn(cl.count, C, device=DEVICE)
        for dtype, allowed in ((torch.float32, SUMS_32), (torch.float16, 4e-4)):
            bits = "f16" if dtype == torch.float16 else "f32"
            for phi_of, phi in (("", lambda v: v), ("_relu", F.relu), ("_softplus", F.softplus)):
                a = (0.5 + torch.randn(cl.samples, H, W, C, device=DEVICE)).double()
                # The kernel sees phi's values; the gradient is by what came before, of the same rounded values.
                x = phi(a).to(dtype).contiguous()
                dy, y, moments = torch.randn_like(x), poisoned(*x.shape, dtype=dtype), poisoned(cl.samples, regions, G, 2)
                norm = GroupNorm(affine=Affine(scale=scale, offset=offset, stride=C), moments=moments, cohort=cl.cohort, shape=shape)
                k.launch(f"group_norm_{bits}", grid, threads, norm, x, y)
                dx, partial, sums = poisoned(*x.shape, dtype=dtype), poisoned(cl.samples, regions, 2, C), poisoned(cl.count, 2, C)
                k.launch(f"group_norm_backward_{bits}{phi_of}", grid, threads, norm, x, dy, dx, partial)
                sum_samples(k, cl, partial, sums, per=regions)
                ys, dxs, dss = [], [], []
                for i, (v, d) in enumerate(zip(by_client(cl, x), by_client(cl, dy))):
                    s, o = scale[i].double().to(REFERENCE).requires_grad_(), offset[i].double().to(REFERENCE).requires_grad_()
                    v.requires_grad_()
                    rows = (lambda t: t.permute(0, 2, 1, 3).reshape(-1, C, 1, W)) if by_row else (lambda t: t)
                    out = F.group_norm(rows(v), G, s, o) if len(v) else v * s.sum()
                    g = torch.autograd.grad(out, (v, s, o), rows(d)) if len(v) else (v, torch.zeros_like(s), torch.zeros_like(o))
                    back = (lambda t: t.reshape(-1, H, C, W).permute(0, 2, 1, 3)) if by_row else (lambda t: t)
                    slope = {"": lambda t: torch.ones_like(t), "_relu": lambda t: (t > 0).double(), "_softplus": lambda t: -torch.expm1(-t)}[phi_of](v.detach())
                    ys.append(back(out.detach())), dxs.append((g[0] * slope).detach()), dss.append(torch.stack(g[1:]).detach())
                what = describe(cl, H, W, C, "by row" if by_row else "")
                compare(f"group_norm_{bits} {what}", cl, y, ys, allowed)
                compare(f"group_norm_backward_{bits}{phi_of} {what}", cl, dx, dxs, allowed)
                report("  gradients of scale and offset", error(sums, torch.stack(dss)), 3e-6)


@check_of
def cell():
    cases = [([2, 3, 1], 5, 4, 16), ([1], 7, 7, 64)] + ([] if SMALL else [([20] * 10, 16, 16, 128), ([7, 20, 1, 13] * 3, 14, 14, 64)])
    for sizes, H, W, C in cases:
        cl = Clients(sizes)
        p = parameters(cl.count, C, 0.05)
        u, z, d = (torch.randn(cl.samples, H, W, C, device=DEVICE) for _ in range(3))
        z16 = z.half()
        for phi_of, phi in (("softplus", F.softplus), ("relu", F.relu)):
            expected = []
            for i, (zi, ui, di) in enumerate(zip(by_client(cl, z), by_client(cl, u), by_client(cl, d))):
                q = {n: t[i].double().to(REFERENCE).requires_grad_() for n, t in p.items()}
                zi.requires_grad_(), ui.requires_grad_()
                out = torch_cell(q, zi, ui, phi=phi)
                expected.append((out.detach(), dict(zip(["z", "u", *q], torch.autograd.grad(out, [zi, ui, *q.values()], di)))))
            for exact, variants in ((True, ["conv_exact"]), (False, ["conv"] + ["conv_sm90", "conv_planes_sm90"] * HOPPER)):
                for tile in variants:
                    c = Cell(KERNELS, cl, p, H, W, C, exact=exact, phi=phi_of, tile=tile)
                    image = poisoned(cl.samples, H, W, C)
                    c.step(z, z16, u, image, save=True)
                    c.backward(z, z16, d)
                    allowed, what = 5e-6 if exact else 1.5e-3, f"cell by {tile}, {phi_of} {describe(cl, H, W, C)}"
                    compare(what, cl, image, [e[0] for e in expected], allowed)
                    du = c.narrow[3]
                    dz = c.narrow[2] + c.through_a
                    of = lambda x: torch.cat([first(x[o]) for o in cl.of if o])
                    wanted = lambda n: torch.cat([e[1][n] for e in expected])
                    stacked = lambda n: torch.stack([e[1][n] for e in expected])
                    # Where relu's argument is nearly 0 a rounding turns a whole gradient on or off; its kernels are held to more on their own.
                    allowed = {("softplus", True): 1e-5, ("softplus", False): 2e-3, ("relu", True): 3e-3, ("relu", False): 1e-1}[phi_of, exact]
                    report("  by u", error(of(du), wanted("u")), allowed)
                    report("  by z", error(of(dz), wanted("z")), allowed)
                    for n in "ab":
                        report(f"  by conv_{n}", error(c.grads[n].permute(0, 1, 4, 2, 3), stacked(n)), allowed)
                    for j, n in enumerate(NORMS):
                        report(f"  by norm_{n}", error(c.norm_grads[j], torch.stack([stacked("g" + n), stacked("o" + n)], 1)), allowed)


@check_of
def determinism():
    """The same numbers in, the same bits out."""
    cl, H, W, C = Clients([5, 2, 9]), 8, 8, 64
    p, (u, z, d) = parameters(cl.count, C, 0.05), (torch.randn(cl.samples, H, W, C, device=DEVICE) for _ in range(3))
    for tile in ["conv_exact", "conv"] + ["conv_sm90", "conv_planes_sm90"] * HOPPER:
        runs = []
        for _ in range(2):
            c, image = Cell(KERNELS, cl, p, H, W, C, exact=tile == "conv_exact", tile=tile), torch.zeros_like(u)
            c.narrow[3].zero_()
            c.step(z, z.half(), u, image, save=True)
            c.backward(z, z.half(), d)
            runs.append([image, c.narrow[3], *c.grads.values(), *c.norm_grads])
        report(f"the cell and its gradients twice, {tile}, to the bit", float(not all(torch.equal(a, b) for a, b in zip(*runs))), 0)


@check_of
def anderson():
    n = 64
    torch.manual_seed(3)
    A = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0].to(DEVICE) * torch.linspace(0.1, 0.9, n, dtype=torch.float64, device=DEVICE)
    for label, sizes, settings, gain, allowed in (
            ("defaults", [5, 1, 0, 9], Settings(relative=1e-4), 1.0, 1e-4),
            ("five steps", [5, 3], Settings(relative=1e-9, max_steps=5), 1.0, 1e-5),
            ("absolute ridge", [4], Settings(ridge=1e-4, ridge_is_relative=False, relative=1e-3), 1.0, 1e-4),
            ("memory 3, mixing 0.8, delay 2, restart 4", [3, 130], Settings(memory=3, mixing=0.8, delay=2, restart=4, relative=1e-3, max_steps=40), 1.0, 1e-4),
            ("damped iteration", [6], Settings(memory=0, mixing=0.7, relative=1e-3, max_steps=60), 1.0, 1e-4),
            ("damped iteration that diverges", [3], Settings(memory=0, mixing=1.0, relative=1e-3, max_steps=6), 40.0, 1e-5),
            ("plain steps that diverge, best rescued", [3], Settings(memory=2, delay=99, relative=1e-6, max_steps=9), 40.0, 1e-5)):
        cl = Clients(sizes)
        b = torch.randn(cl.samples, n, dtype=torch.float64, device=DEVICE)
        linear, host = "diverge" in label, b.cpu()
        f64 = lambda z, c: z @ (gain * A.T.to(z.device)) + c if linear else torch.tanh(z @ (gain * A.T.to(z.device)) + c)
        z0 = torch.randn(cl.samples, n, device=DEVICE)
        solver = Solver(KERNELS, cl, n, settings, blocks=2)
        found = solver.run(lambda z: f64(z.double(), b).float(), z0)
        torch.set_num_threads(1)   # 64 numbers are not worth more
        expected = {s: plainly(lambda z: f64(z, host[s]), z0[s].double().cpu(), settings) for s in cl.listed}
        for key in ("outcome", "steps", "best"):
            wrong = sum(found[key][s] != e[key] for s, e in expected.items())
            report(f"anderson, {label}: {key} of {len(expected)} samples differ", float(wrong), 0 if key != "best" else len(expected) * 0.05)
        of = lambda t: torch.stack([t[s].double() for s in cl.listed])
        report(f"anderson, {label}: state", error(of(found["z"]), torch.stack([expected[s]["z"] for s in cl.listed])), allowed)
        report(f"anderson, {label}: image", error(of(found["image"]), torch.stack([expected[s]["image"] for s in cl.listed])), allowed)
        left = solver.lists[settings.max_steps % 2][0][:, 1].tolist()
        report(f"anderson, {label}: nobody is left", float(sum(left)), 0)
        wrote = torch.isfinite(found["z"][cl.unlisted]).any().item() if cl.unlisted else False
        report(f"anderson, {label}: others untouched", float(wrote), 0)
    # Kernels for little memory and those for any do the same.
    for narrow in (False, True):
        cl, settings = Clients([5, 1, 0, 9]), Settings(relative=1e-4)
        b, z0 = torch.randn(cl.samples, n, dtype=torch.float64, device=DEVICE), torch.randn(cl.samples, n, device=DEVICE)
        little, general = (Solver(KERNELS, cl, n, settings, blocks=2, narrow=narrow, general=general).run(lambda z: torch.tanh(z.double() @ A.T + b).float(), z0) for general in (False, True))
        report(f"anderson, kernels for little memory, residuals in {16 if narrow else 32} bits", error(little["z"][cl.listed], general["z"][cl.listed]), 1e-5)
    for label, settings in (("defaults", Settings()), ("memory 3, mixing 0.8, restart 4", Settings(memory=3, mixing=0.8, restart=4, max_steps=40))):
        cl = Clients([5, 0, 40])
        b, z0 = torch.randn(cl.samples, n, dtype=torch.float64, device=DEVICE), torch.randn(cl.samples, n, device=DEVICE)
        f = lambda z: torch.tanh(z.double() @ A.T + b)
        found, wide = (Solver(KERNELS, cl, n, settings, blocks=2, narrow=narrow).run(lambda z: f(z).float(), z0) for narrow in (True, False))
        z = found["z"].double()
        residual = ((f(z) - z).norm(dim=1) / f(z).norm(dim=1))[cl.listed].max().item()
        taken, before = (sum(r["steps"][s] for s in cl.listed) for r in (found, wide))
        report(f"anderson, residuals in 16 bits, {label}: largest relative residual", residual, 1e-3)
        report(f"  its image", error(found["image"][cl.listed], f(z)[cl.listed]), 1e-6)
        report(f"  {taken} steps, {before} with residuals in 32 bits: more by", max(taken / before - 1, 0.0), 0.05)
    cl = Clients([3])
    z0 = torch.randn(cl.samples, n, device=DEVICE)
    z0[cl.of[0][1], 5] = float("nan")
    found = Solver(KERNELS, cl, n, Settings(relative=1e-3)).run(lambda z: torch.tanh(z.double() @ A.T + 0.5).float(), z0)
    report("anderson: what is not finite is told", float([found["outcome"][s] for s in cl.of[0]] != ["converged", "not finite", "converged"]), 0)


@check_of
def dense():
    k = KERNELS
    for sizes, per, n_in, n_out, parts in (([3, 1, 0, 4], 1, 10, 7, 1), ([33, 20], 1, 300, 130, 3), ([3, 5, 0], 11, 64, 90, 1)) + (() if SMALL else (([20] * 4, 1, 1024, 256, 8),)):
        cl = Clients(sizes)
        x, dy, more = (torch.randn(cl.samples, per, n, device=DEVICE) for n in (n_in, n_out, n_out))
        w, bias = torch.randn(cl.count, n_in, n_out, device=DEVICE), torch.randn(cl.count, n_out, device=DEVICE)
        d = Dense(x=x, w=w, dy=dy, cohort=cl.cohort, w_stride=n_in * n_out, **{"in": n_in, "out": n_out, "per": per})
        partial = poisoned(parts, cl.samples, per, n_out)
        k.dense_forward((up(n_out, 128), up(cl.most * per, 32) * parts, cl.count), 256, d, partial, parts, cl.samples)
        wd, bd = w.double().to(REFERENCE), bias.double().to(REFERENCE)
        what = describe(cl, per, n_in, n_out)
        for name, phi in (("identity", lambda v: v), ("relu", F.relu), ("softplus_exact", F.softplus)):
            for added in (None, more):
                y = poisoned(cl.samples, per, n_out)
                k.dense_finish((up(n_out, 256), cl.most * per, cl.count), 256, partial, bias, added, y, cl.cohort, long(n_out), n_out, per, parts, cl.samples, PHI[name])
                sums = [v @ wd[i] + bd[i] for i, v in enumerate(by_client(cl, x))]
                if added is not None:   # DEQ-MLP's cell
                    sums = [a + b for a, b in zip(sums, by_client(cl, more))]
                compare(f"dense {name} {'with more ' if added is not None else ''}{what}", cl, y, [phi(v) for v in sums], 1e-6)
        dx, dw, db = poisoned(cl.samples, per, n_in), poisoned(*w.shape), poisoned(cl.count, n_out)
        back = poisoned(parts, cl.samples, per, n_in)
        k.dense_input((up(n_in, 128), up(cl.most * per, 32) * parts, cl.count), 256, d, back, parts, cl.samples)
        k.dense_finish((up(n_in, 256), cl.most * per, cl.count), 256, back, None, None, dx, cl.cohort, long(0), n_in, per, parts, cl.samples, 0)
        compare(f"dense_input {what}", cl, dx, [v @ wd[i].T for i, v in enumerate(by_client(cl, dy))], 1e-6)
        k.dense_weights((up(n_out, 128), up(n_in, 32), cl.count), 256, d, dw)
        flat = lambda v: v.reshape(-1, v.shape[-1])
        report(f"dense_weights {what}", error(dw, torch.stack([flat(a).T @ flat(b) for a, b in zip(by_client(cl, x), by_client(cl, dy))])), 1e-6)
        sum_samples(k, cl, dy, db, 0.5, per)
        report(f"sum_samples {what}", error(db, torch.stack([0.5 * flat(v).sum(0) for v in by_client(cl, dy)])), 1e-6)
        sum_samples(k, cl, dy.half(), db, 0.5, per)
        report(f"sum_samples_f16 {what}", error(db, torch.stack([0.5 * flat(v).sum(0) for v in by_client(cl, dy.half())])), 1e-6)
        if n_out % 2 == 0:
            out, out16 = poisoned(cl.samples, per, n_out), poisoned(cl.samples, per, n_out, dtype=torch.float16)
            k.combine((up(per * n_out, 512), cl.most, cl.count), 256, dy, more, out, out16, cl.cohort, 0.3, -2.0, 4.0, per * n_out)
            sums = [0.3 * a - 2 * b for a, b in zip(by_client(cl, dy), by_client(cl, more))]
            compare(f"combine {what}", cl, out, sums, 1e-6), compare(f"combine in 16 bits {what}", cl, out16, [4 * v for v in sums], 4e-4)


@check_of
def dense_of_few():
    """Many weights, few samples: other kernels for the same products."""
    k = KERNELS
    for sizes, n_in, n_out, parts in (([3, 1, 0, 4], 12, 8, 1), ([33, 20, 0], 300, 132, 3), ([32, 7], 1028, 256, 8), ([20, 70], 260, 36, 1)) + (() if SMALL else (([20] * 10, 8192, 256, 13), ([20, 3] * 2, 3136, 256, 32))):
        cl, rows = Clients(sizes), up(max(sizes), 32)
        x, dy, w = torch.randn(cl.samples, n_in, device=DEVICE), torch.randn(cl.samples, n_out, device=DEVICE), torch.randn(cl.count, n_in, n_out, device=DEVICE)
        d = Dense(x=x, w=w, dy=dy, cohort=cl.cohort, w_stride=n_in * n_out, **{"in": n_in, "out": n_out, "per": 1})
        wd, what = w.double().to(REFERENCE), describe(cl, n_in, n_out, f"{parts} parts")
        for name, n, inner, shared, expected in (("dense_forward_few", n_out, n_in, 0, [v @ wd[i] for i, v in enumerate(by_client(cl, x))]),
                                                 ("dense_input_few", n_in, n_out, 69120, [v @ wd[i].T for i, v in enumerate(by_client(cl, dy))])):
            for cut in {parts, 1}:
                found = []
                for _ in range(2):
                    partial = poisoned(cut, cl.samples, n)
                    k.launch(name, (up(n, 128), rows * cut, cl.count), 128, d, partial, cut, cl.samples, shared=shared)
                    found.append(partial)
                compare(f"{name} {what}, cut into {cut}", cl, found[0].sum(0) if cut > 1 else found[0][0], expected, 1e-6)
                report("  twice, to the bit", float(not torch.equal(*[torch.nan_to_num(f) for f in found])), 0)
        if max(sizes) > 32:
            continue
        dw = poisoned(*w.shape)
        k.dense_weights_few((up(n_out, 128), up(n_in, 128), cl.count), 128, d, dw)
        report(f"dense_weights_few {what}", error(dw, torch.stack([a.T @ b for a, b in zip(by_client(cl, x), by_client(cl, dy))])), 1e-6)


@check_of
def pooling():
    for sizes, H, W, C in (([3, 1, 0, 4], 7, 6, 5), ([2, 3], 16, 16, 32), ([1], 1, 2, 3), ([2], 9, 7, 12)):
        cl, HO, WO = Clients(sizes), (H + 1) // 2, (W + 1) // 2
        x = torch.randn(cl.samples, H, W, C, device=DEVICE).mul(4).round()   # with ties
        dy = torch.randn(cl.samples, HO, WO, C, device=DEVICE)
        y, dx, places = poisoned(cl.samples, HO, WO, C), poisoned(cl.samples, H, W, C), torch.zeros(cl.samples, HO, WO, C, dtype=torch.uint8, device=DEVICE)
        by, V = ("_by_4", 4) if C % 4 == 0 else ("", 1)
        KERNELS.launch("max_pool" + by, (up(HO * WO * C, 256 * V), cl.most, cl.count), 256, x, y, places, cl.cohort, H, W, C)
        KERNELS.launch("max_pool_backward" + by, (up(H * W * C, 256 * V), cl.most, cl.count), 256, dy, places, dx, cl.cohort, H, W, C)
        ys, dxs = [], []
        for v, d in zip(by_client(cl, x), by_client(cl, dy)):
            v.requires_grad_()
            out = F.max_pool2d(F.pad(v, (W & 1, 1, H & 1, 1), value=-1e30), 3, 2) if len(v) else v.sum() * d
            ys.append(out.detach()), dxs.append(torch.autograd.grad(out, v, d)[0] if len(v) else v)
        compare(f"max_pool {describe(cl, H, W, C)}", cl, y, ys, 0)
        compare(f"max_pool_backward {describe(cl, H, W, C)}", cl, dx, dxs, 1e-7)


@check_of
def ends():
    k = KERNELS
    for sizes, classes in (([3, 1, 0, 4], 10), ([20, 33], 62), ([5], 2)):
        cl = Clients(sizes)
        logits, labels = 3 * torch.randn(cl.samples, classes, device=DEVICE), torch.randint(classes, (500,), device=DEVICE, dtype=torch.int32)
        indices = torch.randint(500, (cl.samples,), device=DEVICE, dtype=torch.int32)
        losses, dlogits, (scores, losses_of, counts_of) = poisoned(cl.samples), poisoned(cl.samples, classes), scores_of(cl.count)
        k.cross_entropy(cl.count, 128, logits, labels, indices, losses, dlogits, scores, cl.cohort, classes)
        dls, means, right = [], [], []
        for of, v in zip(cl.of, by_client(cl, logits)):
            target = labels[indices[of].long()].long().to(REFERENCE) if of else torch.zeros(0, dtype=torch.long, device=REFERENCE)
            v.requires_grad_()
            loss = F.cross_entropy(v, target) if of else v.sum()
            dls.append(torch.autograd.grad(loss, v)[0]), means.append(loss.detach()), right.append((v.argmax(1) == target).sum())
        compare(f"cross_entropy gradient {describe(cl, classes)}", cl, dlogits, dls, 1e-6)
        report("  mean losses", error(losses_of(), torch.stack(means)), 1e-6)
        report("  correct, and of how many", float(counts_of() != [[int(r) for r in right], sizes]), 0)
    cl, n = Clients([3, 0, 2]), 37
    y, dy = F.softplus(torch.randn(cl.samples, n, device=DEVICE)), torch.randn(cl.samples, n, device=DEVICE)
    for name, slope in (("relu", lambda v: (v > 0).double()), ("softplus_exact", lambda v: -torch.expm1(-v))):
        dx = poisoned(cl.samples, n)
        k.activation_backward((up(n, 256), cl.most, cl.count), 256, y, dy, dx, cl.cohort, n, PHI[name])
        x, v, v16 = torch.randn(cl.samples, n, device=DEVICE), poisoned(cl.samples, n), poisoned(cl.samples, n, dtype=torch.float16)
        k.activation((up(n, 256), cl.most, cl.count), 256, x, v, v16, cl.cohort, n, PHI[name])
        values = [(F.relu if name == "relu" else F.softplus)(t) for t in by_client(cl, x)]
        compare(f"activation {name}", cl, v, values, 1e-6), compare("  in 16 bits", cl, v16, values, 4e-4)
        compare(f"activation_backward {name}", cl, dx, [slope(a) * b for a, b in zip(by_client(cl, y), by_client(cl, dy))], 1e-6)
    for pixels, C, padded, white in ((64, 1, 8, 16.0), (1024, 3, 8, 255.0)):
        data = torch.randint(int(white) + 1, (50, pixels, C), device=DEVICE, dtype=torch.uint8)
        mean, deviation = torch.rand(C, device=DEVICE), 0.2 + torch.rand(C, device=DEVICE)
        indices = torch.randint(50, (cl.samples,), device=DEVICE, dtype=torch.int32)
        x, x16 = poisoned(cl.samples, pixels, C), poisoned(cl.samples, pixels, padded, dtype=torch.float16)
        k.images((up(pixels * padded, 256), cl.most, cl.count), 256, data, indices, mean, deviation, x, x16, cl.cohort, white, pixels, C, padded)
        expected = [(data[indices[of].long()].double() / white - mean.double()) / deviation.double() for of in cl.of]
        expected = [e.to(REFERENCE) for e in expected]
        compare(f"images {pixels} x {C}", cl, x, expected, 1e-6)
        compare("images in 16 bits", cl, x16, [F.pad(e, (0, padded - C)) for e in expected], 4e-4)
    numbers, indices, x = torch.randn(50, 38, device=DEVICE), torch.randint(50, (cl.samples,), device=DEVICE, dtype=torch.int32), poisoned(cl.samples, 38)
    k.vectors((1, cl.most, cl.count), 256, numbers, indices, x, cl.cohort, 38)
    compare("vectors", cl, x, [numbers[indices[of].long()].double() for of in cl.of], 0)
    x, y = torch.randn(cl.samples, 38, device=DEVICE), poisoned(cl.samples, 38, dtype=torch.float16)
    k.to_f16((1, cl.most, cl.count), 256, x, y, cl.cohort, 4.0, 38)
    compare("to_f16", cl, y, [4 * v for v in by_client(cl, x)], 4e-4)


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    print(torch.cuda.get_device_name())
    names = [a for a in sys.argv[1:] if not a.startswith("-")]
    if "--list" in sys.argv:
        sys.exit(print(*[f.__name__ for f in checks]))
    for f in checks:
        if not names or f.__name__ in names:
            at = time.time()
            try:
                f()
                torch.cuda.synchronize()
            except Exception as problem:
                failures.append(f"{f.__name__}: {problem!r}")
                import traceback
                traceback.print_exc()
            print(f"--- {f.__name__}: {time.time() - at:.1f} s", flush=True)
    print(f"{len(failures)} failures", *failures, sep="\n")
    sys.exit(bool(failures))
