"""What a step of training is made of beside the network: arithmetic on parameters, optimisers, steps by tables, tallies, dropout's masks, losses on embeddings, changed pictures,
warm starts."""
import ctypes as C
import struct as packing_of_bytes

import numpy as np
import torch

from harness import *

integers = lambda v: torch.tensor(v, dtype=torch.int32, device=DEVICE)


@check_of
def lanes():
    k = KERNELS
    for count, n, stride in ((1, 7, 7), (10, 5001, 5008), (100, 1025, 1025)):
        a, b, out = torch.randn(count, stride, device=DEVICE), torch.randn(count, stride, device=DEVICE), poisoned(count, stride)
        host, other, f = a.cpu().numpy(), b.cpu().numpy(), np.float32(-0.37)
        grid, what = (up(n, 1024), count), f"{count} x {n}"
        for name, strides, expected in (("of each", (stride, stride), host[:, :n] + f * other[:, :n]), ("one for all", (stride, 0), host[:, :n] + f * other[:1, :n]), ("to one", (0, stride), host[:1, :n] + f * other[:, :n])):
            out.fill_(float("nan"))
            k.lanes_plus(grid, 256, out, a, b, long(stride), *map(long, strides), long(n), float(f))
            report(f"lanes_plus {name} {what}, to the bit", float(not np.array_equal(out.cpu().numpy()[:, :n], expected)), 0)
            report("  padding untouched", float(not torch.isnan(out[:, n:]).all()), 0)
        factors = torch.randn(count, device=DEVICE)
        k.lanes_plus_each(grid, 256, out, a, b, factors, *[long(stride)] * 3, long(n))
        report(f"lanes_plus_each {what}, to the bit", float(not np.array_equal(out.cpu().numpy()[:, :n], host[:, :n] + factors.cpu().numpy()[:, None] * other[:, :n])), 0)
        k.lanes_plus(grid, 256, out, a, None, long(stride), long(0), long(0), long(n), 0.0)
        report(f"lanes_plus as a copy {what}", float(not torch.equal(out[:, :n], a[:1, :n].expand(count, n))), 0)
        k.lanes_scale(grid, 256, out, a, long(stride), long(stride), long(n), float(f))
        report(f"lanes_scale {what}, to the bit", float(not np.array_equal(out.cpu().numpy()[:, :n], f * host[:, :n])), 0)
        out.fill_(float("nan"))
        k.lanes_fill(grid, 256, out, long(stride), long(n), 0.5)
        report(f"lanes_fill {what}", float(not (out[:, :n] == 0.5).all() or not torch.isnan(out[:, n:]).all()), 0)
        blocks = 13
        partial, norms = poisoned(count, blocks, dtype=torch.float64), poisoned(count, dtype=torch.float64)
        for name, other, apart in (("of differences", b, stride), ("of differences from one", b, 0), ("", None, 0)):
            k.lanes_norm_partial((blocks, count), 256, a, other, partial, long(stride), long(apart), long(n))
            k.lanes_norm(up(count, 128), 128, partial, norms, blocks, count)
            from_here = 0 if other is None else (b if apart else b[:1])[:, :n].double()
            report(f"lanes_norm {name} {what}", error(norms, (a[:, :n].double() - from_here).norm(dim=1)), 1e-12)
        for name, apart in (("", stride), (" with one", 0)):
            k.lanes_dot_partial((blocks, count), 256, a, b, partial, long(stride), long(apart), long(n))
            k.lanes_sum(up(count, 128), 128, partial, norms, blocks, count)
            report(f"lanes_dot{name} {what}", error(norms, (a[:, :n].double() * (b if apart else b[:1])[:, :n].double()).sum(1)), 1e-11)
        bad, wanted = torch.zeros(count, dtype=torch.int32, device=DEVICE), [0] * count
        for lane, at, value in ((0, n - 1, float("inf")), (count // 2, 0, float("nan")), (count - 1, n // 2, float("-inf"))):
            a[lane, at], wanted[lane] = value, 1
        if stride > n:
            a[1, n:] = float("nan")   # beyond the numbers that count
        k.lanes_finite(grid, 256, a, long(stride), long(n), bad)
        k.lanes_finite(grid, 256, b, long(stride), long(n), bad)   # what was found stays
        report(f"lanes_finite {what}", float(bad.tolist() != wanted), 0)


@check_of
def steps():
    k = KERNELS
    for clients, n, stride in ((1, 7, 7), (10, 5001, 5008), (100, 1025, 1025)):
        cl = Clients([1 + i % 3 if i != 1 else 0 for i in range(clients)])
        before, g, offsets = (torch.randn(clients, stride, device=DEVICE) for _ in range(3))
        counts, trains = integers([3 * i for i in range(clients)]), torch.tensor([s > 0 for s in cl.sizes], device=DEVICE)[:, None]
        t, gd = before[:, :n].double(), g[:, :n].double()
        for offset, apart, shares, strength in ((None, 0, None, 0.0), (offsets, stride, None, 0.01), (offsets, 0, counts, 0.5), (offsets, stride, counts, 0.01), (None, 0, counts, 0.0)):
            theta, copy = before.clone(), poisoned(clients, stride, dtype=torch.float16)
            k.descend((up(n, 1024), clients), 256, theta, g, offset, copy, cl.cohort, shares, None, None, long(stride), long(apart), long(n), 0.1, strength)
            pull = strength * t + (0 if offset is None else (offsets if apart else offsets[:1])[:, :n].double())
            share = 1 if shares is None else counts.clamp_min(1).double()[:, None]
            expected = torch.where(trains, t - 0.1 * (gd + pull / share), t)
            report(f"descend {clients} x {n}, offset {'none' if offset is None else apart}, shares {shares is not None}", error(theta[:, :n], expected), 1e-7)
            report("  16-bit copy", float(not torch.equal(copy[:, :n][trains[:, 0]], theta[:, :n][trains[:, 0]].half())), 0)
            report("  the others and the padding untouched", float(not (torch.equal(theta[:, n:], before[:, n:]) and torch.equal(theta[~trains[:, 0]], before[~trains[:, 0]]))), 0)
        rates, step, theta = torch.rand(3, clients, device=DEVICE), integers([2]), before.clone()
        k.descend((up(n, 1024), clients), 256, theta, g, None, None, cl.cohort, None, rates, step, long(stride), long(0), long(n), 9.0, 0.0)
        expected = torch.where(trains, t - rates[2].double()[:, None] * gd, t)
        report(f"descend {clients} x {n}, rates by a table", error(theta[:, :n], expected), 1e-7)
        weight, mean = torch.rand(clients, dtype=torch.float64, device=DEVICE), poisoned(n)
        k.mean_of_clients(up(n, 256), 256, theta, weight, mean, long(stride), long(n), clients)
        host, total, sums = theta.cpu().numpy()[:, :n].astype(np.float64), 0.0, np.zeros(n)
        for c, w in enumerate(weight.tolist()):
            sums, total = sums + w * host[c], total + w
        report("mean_of_clients, to the bit", float(not np.array_equal(mean.cpu().numpy(), (sums / total).astype(np.float32))), 0)


OPTIMISERS = {
    "momentum": (torch.optim.SGD, dict(momentum=0.9)),
    "Nesterov": (torch.optim.SGD, dict(momentum=0.8, nesterov=True, weight_decay=0.05)),
    "weight decay": (torch.optim.SGD, dict(weight_decay=0.1)),
    "clipping alone": (torch.optim.SGD, dict()),
    "Adam": (torch.optim.Adam, dict(betas=(0.8, 0.95), eps=1e-6, weight_decay=0.02)),
    "AdamW": (torch.optim.AdamW, dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)),
}


@check_of
def optimisers():
    """Four steps of clients that are not all in each of them, beside PyTorch's optimisers in 64 bits."""
    k, clients, n, stride, total, blocks = KERNELS, 5, 2051, 2056, 4, 64
    for name, (rule, settings) in OPTIMISERS.items():
        adam = rule is not torch.optim.SGD
        for pulled, clipped, shared in ((False, False, False), (True, False, True), (False, True, False), (True, True, False)):
            theta, offset = (torch.randn(clients, stride, device=DEVICE) for _ in range(2))
            first, second = (torch.zeros(clients, stride, device=DEVICE) if needed else None for needed in (adam or "momentum" in settings, adam))
            before, strength, longest = theta.clone(), 0.3, 40.0
            weights = [w[:n].double().clone().requires_grad_() for w in before]
            beside = [rule([w], lr=1.0, **settings) for w in weights]
            rates, table, taken = torch.rand(total, clients) * 0.1, torch.zeros(total, clients, 3 if adam else 1), [0] * clients
            for step in range(total):
                cl = Clients([(step + c) % 3 for c in range(clients)])
                size = torch.linspace(0.1, 3.0, clients, device=DEVICE)[:, None]   # some gradients are too long
                gradient, counts = size * torch.randn(clients, stride, device=DEVICE), integers([3 * c for c in range(clients)])
                for c in range(clients):
                    rate = rates[step, c].item()
                    table[step, c, 0] = rate
                    if cl.sizes[c] == 0:
                        continue
                    taken[c] += 1
                    if adam:
                        (b1, b2), decay = settings["betas"], settings["weight_decay"] if rule is torch.optim.AdamW else 0.0
                        table[step, c] = torch.tensor([1 - rate * decay, rate / (1 - b1 ** taken[c]), (1 - b2 ** taken[c]) ** -0.5])
                    g = gradient[c, :n].double()
                    if clipped and g.norm() > longest:
                        g = g * (longest / g.norm())
                    if pulled:
                        g = g + (strength * weights[c].detach() + offset[c, :n].double()) / (max(3 * c, 1) if shared else 1)
                    beside[c].param_groups[0]["lr"], weights[c].grad = rate, g
                    beside[c].step()
                partial, norms = poisoned(clients, blocks, dtype=torch.float64), poisoned(clients, dtype=torch.float64)
                k.lanes_norm_partial((blocks, clients), 256, gradient, None, partial, long(stride), long(0), long(n))
                k.lanes_norm(1, 128, partial, norms, blocks, clients)
                coupled = settings.get("weight_decay", 0.0) if rule is not torch.optim.AdamW else 0.0
                on_device, counter = table.to(DEVICE), integers([step])
                s = OptimiserStep(theta=theta, first=first, second=second, gradient=gradient, offset=offset if pulled else None, cohort=cl.cohort, counts=counts if shared else None,
                                  norms=norms if clipped else None, rates=on_device, counter=counter, stride=stride, n=n, longest=longest, strength=strength, decay=coupled)
                if adam:
                    b1, b2 = settings["betas"]
                    k.adam_step((up(n, 1024), clients), 256, s, b1, b2, 1 - b1, 1 - b2, settings["eps"])
                else:
                    k.momentum_step((up(n, 1024), clients), 256, s, settings.get("momentum", 0.0), int(settings.get("nesterov", False)))
            what = f"{name}{', pulled' * pulled}{' by prediction' * shared}{', clipped' * clipped}"
            report(f"optimisers: {what}", error(theta[:, :n], torch.stack([w.detach() for w in weights])), 1e-6)
            moments = [m for m in (first, second) if m is not None]
            report("  padding untouched", float(not torch.equal(theta[:, n:], before[:, n:]) or any(m[:, n:].any() for m in moments)), 0)


@check_of
def contrasts():
    """A loss on embeddings, of pictures and of texts some of whose positions do not count."""
    for length, width, is_text in ((1, 300, False), (5, 64, True)):
        cl, places, step, weight, temperature = Clients([3, 0, 2]), 7, 1, 2.0, 0.5
        z, near, far = torch.randn(cl.samples, length, width, device=DEVICE), *(torch.randn(cl.count, places, length, width, device=DEVICE) for _ in range(2))
        at, symbols, indices = torch.randint(places, (2, cl.count, cl.most)), torch.randint(3, (10, length)), torch.randint(10, (cl.samples,))
        counts_here = [(symbols[indices[of]] != 0) if is_text else torch.ones(len(of), length, dtype=torch.bool) for of in cl.of]
        gradient, losses = poisoned(cl.samples, length, width), poisoned(cl.samples, length, dtype=torch.float64)
        tables = [integers(v.tolist()) for v in (at, symbols, indices)] + [integers([int(c.sum()) for c in counts_here]), integers([step])]
        c = Contrast(z=z, near=near, far=far, at=tables[0], counter=tables[4], counts=tables[3], gradient=gradient, losses=losses, cohort=cl.cohort,
                     text=Text(symbols=tables[1] if is_text else None, indices=tables[2], length=length), weight=weight, temperature=temperature, places=places, width=width)
        KERNELS.contrast((length, cl.most, cl.count), 128, c)
        scores, losses_of, _ = scores_of(cl.count)
        scores[:, 0] = 0.25
        KERNELS.add_losses(cl.count, 128, losses, scores, cl.cohort, length)
        expected, sums = [], []
        for lane, of in enumerate(cl.of):
            own = z[of].double().to(REFERENCE).requires_grad_()
            n, f = (v[lane][at[step, lane, :len(of)].to(DEVICE)].double().to(REFERENCE) for v in (near, far))
            s, r = (F.cosine_similarity(own, v, dim=-1, eps=0.0) / temperature for v in (n, f))
            counts = counts_here[lane].to(REFERENCE)
            loss = weight * (F.softplus(r - s) * counts).sum() / counts.sum().clamp_min(1)
            expected.append(torch.autograd.grad(loss, own)[0]), sums.append(loss.detach() + 0.25)
        compare(f"contrast, length {length}", cl, gradient, expected, 1e-6)
        report("  add_losses", error(losses_of(), torch.stack(sums)), 1e-9)


@check_of
def changed_pictures():
    for height, width, C, padded, white in ((8, 8, 1, 8, 16.0), (5, 9, 3, 8, 255.0)):
        cl, steps, step, border, pixels = Clients([3, 0, 4]), 2, 1, 4, height * width
        data = torch.randint(int(white) + 1, (50, height, width, C), dtype=torch.uint8)
        mean, deviation, indices = torch.rand(C), 0.2 + torch.rand(C), torch.randint(50, (cl.samples,), dtype=torch.int32)
        moves, mirrored = torch.randint(-border, border + 1, (steps, cl.count, cl.most, 2)), torch.randint(2, (steps, cl.count, cl.most))
        changes = (moves[..., 0] + 16384 << 16 | moves[..., 1] + 16384 << 1 | mirrored).int().to(DEVICE)
        x, x16 = poisoned(cl.samples, pixels, C), poisoned(cl.samples, pixels, padded, dtype=torch.float16)
        on_device, counter = [v.to(DEVICE) for v in (data, indices, mean, deviation)], integers([step])
        KERNELS.changed_images((up(pixels * padded, 256), cl.most, cl.count), 256, on_device[0], on_device[1], counter, changes, on_device[2], on_device[3], x, x16, cl.cohort, white, height, width, C, padded)
        expected = poisoned(cl.samples, pixels, C).cpu()
        for lane, of in enumerate(cl.of):
            for i, sample in enumerate(of):
                (down, right), around = moves[step, lane, i].tolist(), torch.zeros(height + 2 * border, width + 2 * border, C)
                around[border:border + height, border:border + width] = data[indices[sample]]
                cut = around[border - down:border - down + height, border - right:border - right + width]
                cut = cut.flip(1) if mirrored[step, lane, i] else cut
                expected[sample] = ((cut / white - mean) / deviation).reshape(pixels, C)
        same = lambda a, b: torch.equal(a.nan_to_num(7e4), b.nan_to_num(7e4))
        report(f"changed_images {height} x {width} x {C}, to the bit", float(not same(x.cpu(), expected)), 0)
        wide = F.pad(expected, (0, padded - C)).half()
        wide[cl.unlisted] = float("nan")
        report("  in 16 bits", float(not same(x16.cpu().float(), wide.float())), 0)


@check_of
def schedule():
    """Three steps of four lanes, told by tables, as one captured graph would take them."""
    k, lanes, most, total = KERNELS, 4, 150, 3
    counts, samples = torch.randint(0, most + 1, (total, lanes)), torch.randint(0, 10 ** 6, (total, lanes, most))
    counts[1, 2] = 0
    counter, spans, rows, indices = integers([0]), integers([[-1, -1]] * lanes), integers([-1] * lanes * most), integers([-1] * lanes * most)
    table, written = poisoned(total, lanes, 2, dtype=torch.float64), []
    tables = integers(counts.tolist()), integers(samples.tolist())
    for step in range(total):
        k.begin_step(lanes, 128, counter, *tables, spans, rows, indices, lanes, most)
        wrong = spans.tolist() != [[l * most, int(counts[step, l])] for l in range(lanes)]
        for l in range(lanes):
            here = slice(l * most, l * most + int(counts[step, l]))
            wrong |= rows[here].tolist() != list(range(here.start, here.stop)) or indices[here].tolist() != samples[step, l, :here.stop - here.start].tolist()
        report(f"begin_step, step {step}", float(wrong), 0)
        own = integers([-1] * lanes)
        k.count_samples(1, 128, Cohort(spans=spans, rows=rows), own, lanes)
        report("  count_samples", float(own.tolist() != counts[step].tolist()), 0)
        scores = torch.randn(lanes, 2, dtype=torch.float64, device=DEVICE)
        k.end_step(1, 128, counter, scores, table, lanes)
        written.append(scores)
    report("end_step: the scores of every step", float(not torch.equal(table, torch.stack(written)) or counter.item() != total), 0)


@check_of
def tallies():
    k, lanes = KERNELS, 3
    cl = Clients([5, 0, 300])
    progress, warm, expected = torch.zeros(cl.samples, 8, dtype=torch.int32), torch.randint(0, 2, (cl.samples,), dtype=torch.uint8, device=DEVICE), [[0.25, 1, 2, 3, 4, 5] for _ in range(lanes)]
    relative, steps, outcome = torch.rand(cl.samples), torch.randint(1, 21, (cl.samples,)), torch.randint(1, 4, (cl.samples,))
    relative[cl.of[0][1]], relative[cl.of[2][7]] = float("inf"), float("nan")
    progress[:, 2], progress[:, 3], progress[:, 5] = relative.view(torch.int32), steps, outcome
    tally = torch.tensor(list(packing_of_bytes.pack("=d5Q", *expected[0])) * lanes, dtype=torch.uint8, device=DEVICE)
    for warm_of in (warm, None):
        k.tally_solves(lanes, 128, progress.to(DEVICE), warm_of, tally, cl.cohort)
        for e, of in zip(expected, cl.of):
            for s in of:
                if relative[s].isfinite():
                    e[0] += float(relative[s])
                e[1], e[2], e[3], e[4], e[5] = e[1] + 1, e[2] + int(steps[s]), e[3] + int(outcome[s] != 1), e[4] + int(outcome[s] == 3), e[5] + (int(warm[s]) if warm_of is not None else 0)
    found = [list(packing_of_bytes.unpack("=d5Q", bytes(tally.tolist()[48 * l:48 * l + 48]))) for l in range(lanes)]
    report("tally_solves, to the bit", float(found != expected), 0)


def chacha8(key, stream, block):
    """The 16 words of a block, as rand_chacha 0.10 lays it out."""
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *key, block & 0xFFFFFFFF, block >> 32, stream & 0xFFFFFFFF, stream >> 32]
    x = list(start)

    def quarter(a, b, c, d):
        for to, other, turned, by in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[to] = (x[to] + x[other]) & 0xFFFFFFFF
            v = x[turned] ^ x[to]
            x[turned] = (v << by | v >> (32 - by)) & 0xFFFFFFFF
    for _ in range(4):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return [(a + b) & 0xFFFFFFFF for a, b in zip(x, start)]


@check_of
def dropout_masks():
    known = packing_of_bytes.pack("<16I", *chacha8([0] * 8, 0, 0)).hex()
    report("ChaCha8 of zeros is the known one", float(not known.startswith("3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e")), 0)
    for sizes, each, rate in (([3, 0, 2], 2 * 2 * 64, 0.1), ([1, 2], 4 * 5 * 64, 0.5), ([2], 8 * 300, 0.0)):
        cl, steps, step = Clients(sizes), 3, 1
        keys = torch.randint(0, 1 << 32, (steps, cl.count, 8))
        stream, stride, threshold = 0xDEADBEEF12345678, each + 16, int(-(-rate * 2 ** 53 // 1))
        mask = torch.full((cl.samples, stride), 7, dtype=torch.uint8, device=DEVICE)
        words = torch.tensor([v - (1 << 32) if v >> 31 else v for v in keys.flatten().tolist()], dtype=torch.int32, device=DEVICE)
        KERNELS.draw_masks((up(each, 2048), cl.most, cl.count), 256, integers([step]), words, mask, cl.cohort, C.c_ulonglong(stream), C.c_ulonglong(threshold), long(stride), each)
        expected = torch.full((cl.samples, stride), 7, dtype=torch.uint8)
        for lane, of in enumerate(cl.of):
            for i, sample in enumerate(of):
                for b in range(each // 8):
                    w = chacha8(keys[step, lane].tolist(), stream, i * each // 8 + b)
                    for j in range(8):   # the CPU's comparison of 53 bits as a number in [0, 1)
                        expected[sample, b * 8 + j] = int(not ((w[2 * j] | w[2 * j + 1] << 32) >> 11) / 2 ** 53 < rate)
        report(f"draw_masks {describe(cl, each, rate)}", float((mask.cpu() != expected).sum()), 0)


@check_of
def warm_starts():
    k = KERNELS
    for bits, dtype in (("f16", torch.float16), ("f32", torch.float32)):
        for n in (12, 4100):
            cl, slots, most, steps, step = Clients([3, 0, 5], shuffled=True), 6, 7, 2, 1
            places = torch.full((steps, cl.count, most), -1)
            places[step, 0, :3], places[step, 2, :5] = torch.tensor([4, -1, 0]), torch.tensor([0, 1, 2, 3, 5])
            memory, known = torch.randn(cl.count, slots, n, device=DEVICE).to(dtype), torch.zeros(cl.count, slots, dtype=torch.uint8, device=DEVICE)
            known[2, 3], known[0, 1] = 1, 1
            z = 3 * torch.randn(cl.samples, n, device=DEVICE)
            z[cl.of[2][1], n - 1], z[cl.of[2][3], 0] = float("nan"), 1e6   # the second one cannot be kept in 16 bits
            table, w16 = integers(places.tolist()), bits == "f16"
            w = Warm(counter=(counter := integers([step])), places=table, known=known, cohort=cl.cohort, n=n, slots=slots, most=most)
            before, was = memory.clone(), known.clone()
            for lane, i in ((0, 0), (0, 2), (2, 0), (2, 2), (2, 3), (2, 4)):
                if not (w16 and (lane, i) == (2, 3)):
                    before[lane, places[step, lane, i]], was[lane, places[step, lane, i]] = z[cl.of[lane][i]].to(dtype), 1
            k.launch("remember_" + bits, (1, cl.most, cl.count), 1024, w, z, memory)
            report(f"remember_{bits} {n}, to the bit", float(not (torch.equal(memory, before) and torch.equal(known, was))), 0)
            own = torch.randn(cl.samples, n, device=DEVICE)
            start, start16, warm = own.clone(), poisoned(cl.samples, n, dtype=torch.float16), torch.full((cl.samples,), 7, dtype=torch.uint8, device=DEVICE)
            wanted, warm_of = own.clone(), torch.full((cl.samples,), 7, dtype=torch.uint8, device=DEVICE)
            for lane, of in enumerate(cl.of):
                for i, sample in enumerate(of):
                    place = int(places[step, lane, i])
                    warm_of[sample] = known[lane, place] if place >= 0 else 0
                    if warm_of[sample]:
                        wanted[sample] = memory[lane, place].float()
            k.launch("recall_" + bits, (up(n, 1024), cl.most, cl.count), 256, w, memory, start, start16, warm)
            report(f"recall_{bits} {n}, to the bit", float(not (torch.equal(start, wanted) and torch.equal(warm, warm_of))), 0)
            taken = warm_of == 1
            report("  in 16 bits", float(not (torch.equal(start16[taken], wanted[taken].half()) and torch.isnan(start16[~taken]).all())), 0)
