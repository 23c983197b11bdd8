"""What transformers need: embeddings, the stream with layer normalisation and dropout, attention, GELU, cross-entropy of symbols."""
import torch
import torch.nn.functional as F

from driver import attend as attend_by_kernel
from harness import *
from network import Layer, Layers, layer_parameters, torch_layer

WIDTH, HEADS = 64, 4   # of all transformers


def texts(clients, length, vocabulary=90, stored=50):
    """Texts of a data set with padding at the end, one of nothing but padding and one that begins with it; and what a sample's is."""
    symbols = torch.randint(1, vocabulary, (stored, length), dtype=torch.int32)
    for i in range(0, stored, 3):
        symbols[i, length - i % length:] = 0
    symbols[1], symbols[2, :min(3, length - 1)] = 0, 0
    indices = torch.randint(stored, (clients.samples,), dtype=torch.int32)
    indices[[s for s in clients.listed[:3]]] = torch.arange(3, dtype=torch.int32)[:len(clients.listed[:3])]
    symbols, indices = symbols.to(DEVICE), indices.to(DEVICE)
    return symbols, indices, Text(symbols=symbols, indices=indices, length=length)


def torch_attention(q, k, v, symbols):
    """q, k, v [n, length, width] and symbols [n, length]."""
    n, length, width = q.shape
    split = lambda x: x.view(n, length, HEADS, width // HEADS).transpose(1, 2)
    return attend(symbols)(split(q), split(k), split(v)).transpose(1, 2).reshape(n, length, width)


def attend(symbols):
    """By heads; blocked scores are -1e4, so that a query which may see nothing looks at all keys alike."""
    length = symbols.shape[1]
    blocked = (symbols == 0)[:, None, None, :] | torch.ones(length, length, dtype=torch.bool, device=symbols.device).triu(1)
    return lambda q, k, v: (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(blocked, -1e4).softmax(3) @ v


LENGTHS = (([3, 1, 0, 4], 16), ([2, 3], 80), ([2], 1), ([1, 2], 37), ([3], 128))


@check_of
def attention():
    for sizes, length in LENGTHS if SMALL else LENGTHS + (([16] * 20, 80),):
        cl = Clients(sizes)
        symbols, indices, text = texts(cl, length)
        for dtype, allowed, allowed_back in ((torch.float32, 2e-6, 5e-6), (torch.float16, 4e-4, 6e-4)):
            bits = "f16" if dtype == torch.float16 else "f32"
            qkv, dout = torch.randn(cl.samples, length, 3 * WIDTH, device=DEVICE).mul(1.5).to(dtype), torch.randn(cl.samples, length, WIDTH, device=DEVICE).to(dtype)
            out, sums, d = poisoned(cl.samples, length, WIDTH, dtype=dtype), poisoned(cl.samples, HEADS, length, 2), poisoned(*qkv.shape, dtype=dtype)
            a = Attention(q=qkv, k=qkv, v=qkv, sums=sums, text=text, cohort=cl.cohort, row=3 * WIDTH)
            size = qkv.element_size() * WIDTH
            a.k, a.v = a.q + size, a.q + 2 * size
            attend_by_kernel(KERNELS, cl, a, out), attend_backward(KERNELS, cl, a, dout, d)
            outs, ds = [], []
            for of, x, e in zip(cl.of, by_client(cl, qkv), by_client(cl, dout)):
                x.requires_grad_()
                y = torch_attention(*x.split(WIDTH, 2), symbols[indices[of].long()].to(REFERENCE)) if of else x[:, :, :WIDTH]
                outs.append(y.detach()), ds.append(gradients(y, (x,), e)[0])
            compare(f"attention_{bits} {describe(cl, length)}", cl, out, outs, allowed)
            compare(f"attention_backward_{bits} {describe(cl, length)}", cl, d, ds, allowed_back)


@check_of
def layer_normalisation():
    for sizes, length in LENGTHS:
        cl = Clients(sizes)
        scale, offset = 1 + 0.3 * torch.randn(cl.count, WIDTH, device=DEVICE), torch.randn(cl.count, WIDTH, device=DEVICE)
        mask = (torch.rand(cl.samples, 2, length, WIDTH, device=DEVICE) > 0.1).to(torch.uint8)
        h, injection, direct = (torch.randn(cl.samples, length, WIDTH, device=DEVICE) for _ in range(3))
        for bits, dtype in (("f32", torch.float32), ("f16", torch.float16)):
            branch, dy = (torch.randn(cl.samples, length, WIDTH, device=DEVICE).to(dtype) for _ in range(2))
            for with_h, with_branch, with_mask, with_injection in ((1, 1, 1, 1), (0, 0, 0, 1), (1, 1, 0, 0), (1, 1, 1, 0)):
                new = lambda dtype=torch.float32: poisoned(cl.samples, length, WIDTH, dtype=dtype)
                total, y, y16, dh, dbranch, moments, partial, sums = new(), new(), new(torch.float16), new(), new(dtype), poisoned(cl.samples, length, 2), poisoned(cl.samples, 2, WIDTH), poisoned(cl.count, 2, WIDTH)
                dinjection = torch.randn(cl.samples, length, WIDTH, device=DEVICE)
                dinjection[cl.unlisted] = float("nan")
                had = by_client(cl, dinjection)
                second = mask.view(-1)[length * WIDTH:]   # masks of several places lie in one buffer: the second here
                n = LayerNorm(scale=scale, offset=offset, moments=moments, mask=second if with_mask else None, cohort=cl.cohort, stride=WIDTH, mask_stride=2 * length * WIDTH, kept=1 / 0.9, length=length)
                grid = (1, cl.most, cl.count)
                KERNELS.launch("layer_norm_" + bits, grid, 256, n, h if with_h else None, branch if with_branch else None, injection if with_injection else None, total, y, y16)
                KERNELS.launch("layer_norm_backward_" + bits, grid, 256, n, total, dy, direct if with_h else None, dh, dbranch, dinjection, partial, 0.25, 8.0)
                sum_samples(KERNELS, cl, partial, sums)
                totals, ys, dhs, dbs, dis, dss = [], [], [], [], [], []
                parts = [by_client(cl, t) for t in (h, branch, injection, mask[:, 1].contiguous(), dy, direct)]
                for i, (a, b, c, m, e, f) in enumerate(zip(*parts)):
                    factor = m / 0.9 if with_mask else torch.ones_like(b)
                    v = ((a if with_h else 0) + (factor * b if with_branch else 0) + (c if with_injection else torch.zeros_like(c))).requires_grad_()
                    s, o = scale[i].double().to(REFERENCE).requires_grad_(), offset[i].double().to(REFERENCE).requires_grad_()
                    out = F.layer_norm(v, (WIDTH,), s, o)
                    gv, gs, go = gradients(out, (v, s, o), 0.25 * e)
                    gv = gv + f if with_h else gv
                    totals.append(v.detach()), ys.append(out.detach()), dhs.append(gv), dbs.append(8 * factor * gv), dis.append(had[i] + gv), dss.append(torch.stack([gs, go]))
                what = f"{bits} {'h ' * with_h}{'branch ' * with_branch}{'mask ' * with_mask}{'injection ' * with_injection}{describe(cl, length)}"
                compare(f"layer_norm sum {what}", cl, total, totals, 1e-6)
                compare("  norm", cl, y, ys, 2e-6), compare("  in 16 bits", cl, y16, ys, 4e-4)
                compare("  by h", cl, dh, dhs, 3e-6), compare("  by branch", cl, dbranch, dbs, 3e-6 if bits == "f32" else 4e-4), compare("  by injection", cl, dinjection, dis, 3e-6)
                report("  by scale and offset", error(sums, torch.stack(dss)), 3e-6)
                if bits == "f16":
                    # What comes is not rounded, and nobody wants the shares.
                    other, half = new(), new(dtype)
                    KERNELS.layer_norm_backward_to_f16(grid, 256, n, total, dy.float(), direct if with_h else None, other, half, None, None, 0.25, 8.0)
                    compare("  by h, from 32 bits", cl, other, dhs, 3e-6), compare("  by branch", cl, half, dbs, 4e-4)
                # A sum that is not normalised.
                n.scale, n.offset, n.moments = None, None, None
                total, dh, dbranch = new(), new(), new(dtype)
                KERNELS.launch("layer_norm_" + bits, grid, 256, n, h if with_h else None, branch if with_branch else None, injection if with_injection else None, total, None, None)
                compare("  no norm", cl, total, totals, 1e-6)
                KERNELS.launch("layer_norm_backward_" + bits, grid, 256, n, None, None, direct, dh, dbranch, None, None, 1.0, 8.0)
                compare("  by h", cl, dh, parts[5], 0), compare("  by branch", cl, dbranch, [8 * f * (m / 0.9 if with_mask else 1) for f, m in zip(parts[5], parts[3])], 3e-6 if bits == "f32" else 4e-4)


@check_of
def gelu():
    for sizes, n in (([3, 1, 0, 4], 38), ([2], 80 * 256)):
        cl = Clients(sizes)
        for bits, dtype, allowed in (("f32", torch.float32, 1e-6), ("f16", torch.float16, 4e-4)):
            x, dy = (torch.randn(cl.samples, n, device=DEVICE).mul(2).to(dtype) for _ in range(2))
            y, dx = poisoned(cl.samples, n, dtype=dtype), poisoned(cl.samples, n, dtype=dtype)
            KERNELS.launch("gelu_" + bits, (up(n, 1024), cl.most, cl.count), 256, x, y, cl.cohort, n)
            KERNELS.launch("gelu_backward_" + bits, (up(n, 1024), cl.most, cl.count), 256, x, dy, dx, cl.cohort, n)
            ys, dxs = [], []
            for v, e in zip(by_client(cl, x), by_client(cl, dy)):
                v.requires_grad_()
                out = F.gelu(v, approximate="tanh")
                ys.append(out.detach()), dxs.append(gradients(out, (v,), e)[0])
            compare(f"gelu_{bits} {describe(cl, n)}", cl, y, ys, allowed), compare(f"gelu_backward_{bits}", cl, dx, dxs, allowed)


@check_of
def mlp():
    for sizes, length in LENGTHS:
        cl = Clients(sizes)
        x, w1, w2 = (torch.randn(*shape, device=DEVICE).div(shape[-1] ** 0.5).half() for shape in ((cl.samples, length, WIDTH), (cl.count, 256, WIDTH), (cl.count, WIDTH, 256)))
        x, both, y = 8 * x, torch.randn(cl.count, 256 + WIDTH, device=DEVICE), poisoned(cl.samples, length, WIDTH, dtype=torch.float16)
        p = Mlp(x=x, w1=w1, w2=w2, b1=both, b2=both.view(-1)[256:], y=y, cohort=cl.cohort, stride=256 + WIDTH, length=length)
        KERNELS.mlp_f16((up(cl.most * length, 64), cl.count), 256, p, shared=79872)
        expected = [F.linear(F.gelu(F.linear(v, a, b[:256]), approximate="tanh"), c, b[256:]) for v, a, c, b in zip(by_client(cl, x), *(t.double().to(REFERENCE) for t in (w1, w2, both)))]
        compare(f"mlp_f16 {describe(cl, length)}", cl, y, expected, 6e-4)


@check_of
def layers_at_once():
    cases = (([3, 1, 0, 5], 16, 1, 1, 0, 0), ([3, 1, 0, 5], 16, 4, 1, 1, 1), ([2, 4], 5, 2, 0, 1, 1), ([1], 1, 3, 1, 0, 1), ([6], 13, 16, 1, 1, 0))
    for sizes, length, count, with_h, with_mask, end in cases if SMALL else cases + (([16] * 20, 16, 4, 1, 1, 1),):
        cl = Clients(sizes)
        symbols, indices, text = texts(cl, length)
        mask = (torch.rand(cl.samples, 2 * count, length, WIDTH, device=DEVICE) > 0.1).to(torch.uint8) if with_mask else None
        h, injection = (torch.randn(cl.samples, length, WIDTH, device=DEVICE) for _ in range(2))
        layers, y = Layers(KERNELS, cl, count, text, mask, 1 / 0.9, bool(end)), poisoned(cl.samples, length, WIDTH)
        layers.forward(h if with_h else None, injection, y)
        expected = []
        for i, (of, a, c) in enumerate(zip(cl.of, by_client(cl, h), by_client(cl, injection))):
            look = attend(symbols[indices[of].long()].to(REFERENCE)) if of else None
            expected.append(layers.expected(i, a if with_h else 0 * a, c, look, mask[of].to(a) if with_mask else None) if of else a)
        what = f"layers_f16 {count} of them {'h ' * with_h}{'mask ' * with_mask}{'norm ' * end}{describe(cl, length)}"
        compare(what, cl, y, expected, 1e-3)
        seen = y.clone()
        layers.forward(h if with_h else None, injection, y)
        report("  the same bits twice", float(not torch.equal(seen[cl.listed], y[cl.listed])), 0)


@check_of
def embeddings():
    for (sizes, length), width in zip(LENGTHS, (64, 64, 10, 64, 96)):
        cl, vocabulary = Clients(sizes), 90
        symbols, indices, text = texts(cl, length, vocabulary)
        stride = (vocabulary + length) * width
        both = torch.randn(cl.count, stride, device=DEVICE)
        tokens, positions = both, both.view(-1)[vocabulary * width:]
        d, dtokens = torch.randn(cl.samples, length, width, device=DEVICE), poisoned(cl.count, stride)
        dpositions = poisoned(cl.count, length * width)
        for place in (None, positions):
            out = poisoned(cl.samples, length, width)
            KERNELS.embed((up(length * width, 256), cl.most, cl.count), 256, tokens, place, out, text, cl.cohort, long(stride), width)
            outs = []
            for i, of in enumerate(cl.of):
                t, p = both[i, :vocabulary * width].view(vocabulary, width).double(), both[i, vocabulary * width:].view(length, width).double()
                outs.append((t[symbols[indices[of].long()].long()] + (p if place is not None else 0)).to(REFERENCE))
            compare(f"embed {describe(cl, length, width)}", cl, out, outs, 1e-7)
        KERNELS.embed_backward((vocabulary, cl.count), 256, d, dtokens, text, cl.cohort, long(stride), width, 0)
        sum_samples(KERNELS, cl, d, dpositions)
        expected = []
        for of, e in zip(cl.of, by_client(cl, d)):
            t = torch.zeros(vocabulary, width, dtype=torch.float64, device=REFERENCE)
            if of:
                t.index_add_(0, symbols[indices[of].long()].long().to(REFERENCE).view(-1), e.reshape(-1, width))
            expected.append(t)
        report(f"embed_backward {describe(cl, length, width)}", error(dtokens[:, :vocabulary * width].view(cl.count, vocabulary, width), torch.stack(expected)), 1e-6)
        KERNELS.embed_backward((vocabulary, cl.count), 256, d, dtokens, text, cl.cohort, long(stride), width, 1)
        report("  added to itself", error(dtokens[:, :vocabulary * width].view(cl.count, vocabulary, width), 2 * torch.stack(expected)), 1e-6)
        report("  by positions", error(dpositions, torch.stack([e.sum(0).reshape(-1) for e in by_client(cl, d)])), 1e-6)
        report("  others untouched", float(not torch.isnan(dtokens[:, vocabulary * width:]).all()), 0)


@check_of
def symbol_losses():
    for (sizes, length), (classes, pitch) in zip(LENGTHS, ((90, 96), (90, 90), (7, 8), (33, 33), (90, 96))):
        cl = Clients(sizes)
        symbols, indices, text = texts(cl, length)
        labels = torch.randint(classes, symbols.shape, dtype=torch.int32, device=DEVICE)
        logits = poisoned(cl.samples, length, pitch)
        logits[:, :, :classes] = 3 * torch.randn(cl.samples, length, classes, device=DEVICE)
        counts, (scores, losses_of, counts_of) = torch.full((cl.count,), -1, dtype=torch.int32, device=DEVICE), scores_of(cl.count)
        losses, right = poisoned(cl.samples, length), torch.full((cl.samples, length), 7, dtype=torch.uint8, device=DEVICE)
        d, d16 = poisoned(*logits.shape), poisoned(*logits.shape, dtype=torch.float16)
        KERNELS.count_symbols(cl.count, 256, text, counts, cl.cohort)
        KERNELS.symbol_cross_entropy((up(length, 8), cl.most, cl.count), 256, logits, labels, text, counts, losses, right, d, d16, cl.cohort, 64.0, classes, pitch)
        KERNELS.sum_scores(cl.count, 256, losses, right, counts, scores, cl.cohort, length)
        ds, means, rights, numbers = [], [], [], []
        for of, x in zip(cl.of, by_client(cl, logits)):
            x = x[:, :, :classes].clone().requires_grad_()
            inside, target = (t[indices[of].long()].long().to(REFERENCE) for t in (symbols, labels))
            counted = inside > 0
            loss = F.cross_entropy(x[counted], target[counted], reduction="sum") / max(int(counted.sum()), 1)
            ds.append(F.pad(torch.autograd.grad(loss, x)[0] if of else torch.zeros_like(x), (0, pitch - classes)))
            means.append(loss.detach()), rights.append(int(((x.argmax(2) == target) & counted).sum())), numbers.append(int(counted.sum()))
        what = describe(cl, length, classes, pitch)
        compare(f"symbol_cross_entropy {what}", cl, d, ds, 1e-6), compare("  in 16 bits", cl, d16, [64 * v for v in ds], 1e-3)
        report("  mean losses", error(losses_of(), torch.stack(means)), 1e-6)
        report("  counted", float(counts.tolist() != numbers), 0)
        report("  correct", float(counts_of() != [rights, numbers]), 0)


@check_of
def transformer_layer():
    """A layer and the norm behind it put together, with dropout and padding."""
    for sizes, length in (([3, 1, 0, 4], 16), ([2, 3], 80)) + (() if SMALL else (([16] * 20, 80),)):
        cl = Clients(sizes)
        symbols, indices, text = texts(cl, length)
        p, kept = layer_parameters(cl.count), 1 / 0.9
        mask = (torch.rand(cl.samples, 2, length, WIDTH, device=DEVICE) > 0.1).to(torch.uint8)
        h, injection, dy = (torch.randn(cl.samples, length, WIDTH, device=DEVICE) for _ in range(3))
        for suffix in [""] + ["_sm90"] * HOPPER:
            layer = Layer(KERNELS, cl, p, text, mask, kept, suffix)
            layer.y.fill_(float("nan")), layer.dh.fill_(float("nan")), layer.dinjection[cl.unlisted].fill_(float("nan"))
            layer.forward(h, injection), layer.backward((layer.scale * dy).half())
            ys, dhs, dis, grads = [], [], [], []
            for i, (of, a, c, m, e) in enumerate(zip(cl.of, *(by_client(cl, t) for t in (h, injection, mask.view(cl.samples, 2, -1), dy)))):
                q = {n: t[i:i + 1].double().to(REFERENCE).requires_grad_() for n, t in p.items()}
                a.requires_grad_(), c.requires_grad_()
                if of:
                    m = m.view(len(of), 2, length, WIDTH).transpose(0, 1) * kept
                    out = torch_layer(q, a[None], c[None], attend(symbols[indices[of].long()].to(REFERENCE)), m[:, None])[0]
                else:
                    out = a * 0
                g = gradients(out, (a, c, *q.values()), e)
                ys.append(out.detach()), dhs.append(g[0]), dis.append(g[1]), grads.append(dict(zip(q, (t[0] for t in g[2:]))))
            what = f"transformer layer{suffix} {describe(cl, length)}"
            results = lambda: (layer.y[cl.listed], layer.dh[cl.listed], *layer.grads.values(), *layer.norm_grads.values())
            seen, injected = [t.clone() for t in results()], layer.dinjection.clone()
            layer.forward(h, injection), layer.backward((layer.scale * dy).half())
            report(f"{what}: the same bits twice", float(not all(torch.equal(a, c) for a, c in zip(seen, results()))), 0)
            layer.dinjection.copy_(injected)
            compare(what, cl, layer.y, ys, 2e-3)
            compare("  by h", cl, layer.dh, dhs, 4e-3)
            at = [s for of in cl.of for s in of]
            report("  by injection", error(layer.dinjection[at], torch.cat([d for d in dis if len(d)])), 4e-3)
            for n in layer.grads:
                report(f"  by {n}", error(layer.grads[n], torch.stack([g[n] for g in grads])), 4e-3)
            for n in "123":
                report(f"  by norm {n}", error(layer.norm_grads[n], torch.stack([torch.stack([g["g" + n], g["o" + n]]) for g in grads])), 4e-3)
