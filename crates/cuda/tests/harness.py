"""What all checks share: references in float64, and what is reported."""
import sys

import torch
import torch.nn.functional as F

from driver import *

SMALL = "--small" in sys.argv
REFERENCE = "cpu" if SMALL else DEVICE
KERNELS = Kernels()
HOPPER = torch.cuda.get_device_capability() == (9, 0)
failures, checks = [], []


def check_of(f):
    checks.append(f)
    return f


def report(name, error, allowed):
    bad = not error <= allowed
    if bad:
        failures.append(name)
    print(f"{'WRONG ' if bad else 'ok    '}{name:88s} {error:9.2e}  (allowed {allowed:.0e})", flush=True)


def error(found, expected):
    found, expected = found.double().to(REFERENCE), expected.double().to(REFERENCE)
    return ((found - expected).norm() / expected.norm().clamp_min(1e-30)).item() if expected.numel() else 0.0


def poisoned(*shape, dtype=torch.float32):
    return torch.full(shape, float("nan"), device=DEVICE, dtype=dtype)


def scores_of(count):
    """Room for `Score` of so many clients, and functions that read the mean losses, how many were right and how many there were."""
    scores = poisoned(count, 2, dtype=torch.float64)
    return scores, lambda: scores[:, 0], lambda: scores[:, 1].clone(memory_format=torch.contiguous_format).view(torch.int32).view(-1, 2).T.tolist()


def compare(name, clients, found, expected, allowed):
    """expected: by client, [samples of it, ...] channels first or flat, in float64; samples that are not listed must be untouched."""
    for k, of in enumerate(clients.of):
        if of:
            e = error(first(found[of]), expected[k])
            report(f"{name}, client {k} of {clients.sizes}"[:88], e, allowed) if not e <= allowed else None
    whole = error(torch.cat([first(found[of]) for of in clients.of if of]), torch.cat([e for e, of in zip(expected, clients.of) if of]))
    report(name, whole, allowed)
    if clients.unlisted and not torch.isnan(found[clients.unlisted].float()).all():
        report(name + ": wrote where it must not", float("inf"), 0)


def first(x):
    """[N, H, W, C] -> [N, C, H, W]"""
    return x.permute(0, 3, 1, 2) if x.dim() == 4 else x


def by_client(clients, x):
    """What PyTorch wants of a buffer [samples, H, W, C]: a list by client of [n, C, H, W] in float64."""
    x = x.to(REFERENCE)
    return [first(x[of]).double() for of in clients.of]


SUMS_32 = 1e-5   # tensor cores cut off what does not fit while they add up; it grows with the number of terms


def describe(clients, *rest):
    sizes = clients.sizes
    return f"{sizes if len(sizes) < 6 else f'{len(sizes)} clients, {sum(sizes)} samples'} {' '.join(map(str, rest))}"


def padded(x, g):
    """Images, channels first, with the zeros around them that a convolution of geometry g sees."""
    right = lambda size, out, before: max((out - 1) * g["stride"] + g["window"] - size - before, 0)
    return F.pad(x, (g["left"], right(g["W"], g["WO"], g["left"]), g["above"], right(g["H"], g["HO"], g["above"])))


def gradients(out, inputs, d):
    """Of <out, d> by the inputs; zeros where a client has no samples."""
    return torch.autograd.grad(out, inputs, d) if out.numel() else [torch.zeros_like(v) for v in inputs]
