"""DEQ-ResNet's cell put together from the kernels, in 16-bit factors or exact, with its gradients; and the same in PyTorch."""
import torch
import torch.nn.functional as F

from driver import *

NORMS = ("1", "2", "3")


def parameters(clients, C, deviation=0.01, dtype=torch.float32):
    """As the model has them, moved a little so that clients differ; convolutions [clients][out][in][3][3]."""
    draw = lambda *shape: torch.randn(*shape, device=DEVICE, dtype=dtype)
    p = {"a": draw(clients, 2 * C, C, 3, 3) * deviation, "b": draw(clients, C, 2 * C, 3, 3) * deviation}
    for name, c in zip(NORMS, (2 * C, C, C)):
        p["g" + name], p["o" + name] = 1 + 0.1 * draw(clients, c), 0.1 * draw(clients, c)
    return p


def channels_last(w):
    """[clients][out][in][3][3] -> [clients][out][3][3][in]"""
    return w.permute(0, 1, 3, 4, 2).contiguous()


def torch_cell(p, z, u, groups=8, phi=F.softplus):
    """One client, channels first, any precision."""
    y = F.group_norm(phi(F.conv2d(z, p["a"], padding=1)), groups, p["g1"], p["o1"])
    return F.group_norm(phi(z + F.group_norm(u + F.conv2d(y, p["b"], padding=1), groups, p["g2"], p["o2"])), groups, p["g3"], p["o3"])


class Cell:
    """Buffers for a cohort of images, and the launches of a step and of its gradients."""

    def __init__(self, kernels, clients, p, H, W, C, groups=8, exact=False, phi="softplus", tile="conv", scale=1024.0):
        self.k, self.cl, self.H, self.W, self.C, self.exact, self.phi, self.tile, self.scale = kernels, clients, H, W, C, exact, phi, tile, scale
        self.p = {n: (channels_last(t) if n in "ab" else t.contiguous()) for n, t in p.items()}
        wide = dict(dtype=torch.float32 if exact else torch.float16, device=DEVICE)
        S, n = clients.samples, clients.count
        self.channels = {"a": (C, 2 * C), "b": (2 * C, C)}
        self.g = {name: geometry(H, W, *channels) for name, channels in self.channels.items()}
        self.wide = [torch.empty(S, H, W, 2 * C, **wide) for _ in range(4)]   # phi(conv_a), GN1 of it, the gradients of both
        self.narrow = [torch.empty(S, H, W, C, device=DEVICE) for _ in range(4)]   # t and u + t, activated, dz, du
        self.moments = [torch.empty(S, groups, 2, device=DEVICE) for _ in range(3)]
        self.partial = [torch.empty(S, 2, c, device=DEVICE) for c in (2 * C, C, C)]
        self.du16 = torch.empty(S, H, W, C, device=DEVICE, dtype=torch.float16)
        self.grads = {name: torch.empty_like(self.p[name]) for name in "ab"}
        self.norm_grads = [torch.empty(n, 2, c, device=DEVICE) for c in (2 * C, C, C)]
        self.launch1, self.launch2 = norm_launch(clients, H * W, 1, 2 * C, groups), norm_launch(clients, H * W, 1, C, groups)
        self.parts = 4 if tile == PLANES else 1
        self.scratch = [torch.empty(self.parts, *self.p[name].shape, device=DEVICE) for name in "ab"] if self.parts > 1 else None
        if not exact:
            self.straight = {name: torch.empty_like(self.p[name], dtype=torch.float16) for name in "ab"}
            self.turned = {name: torch.empty_like(self.p[name], dtype=torch.float16) for name in "ab"}
            self.prepare()

    def prepare(self):
        narrow_weights(self.k, [(self.p[name], self.straight[name], self.turned[name]) for name in "ab"])

    def affine(self, name):
        return Affine(scale=self.p["g" + name], offset=self.p["o" + name], stride=self.p["g" + name].shape[1])

    def conv(self, name, x, y, back=False, **more):
        convolve(self.k, self.tile, self.cl, self.g[name], x, (self.turned if back else self.straight)[name], y, back=back, **more)

    def conv_exact(self, name, x, w, y, ci, co, *more, grid=None):
        c = ConvExact(x=x, w=w, bias=None, y=y, cohort=self.cl.cohort, w_stride=w[0].numel(), bias_stride=0, **geometry(self.H, self.W, ci, co))
        self.k.launch(name, grid or (up(co, 64), up(self.cl.most * self.H * self.W, 64), self.cl.count), 256, c, *more)

    def step(self, z, z16, u, image, save=False):
        """image = g(z; u)"""
        C, (v, y), t = self.C, self.wide[:2], self.narrow[0]
        phi = "" if self.phi == "identity" else "_" + self.phi
        if self.exact:
            self.conv_exact("conv_exact" + phi, z, self.p["a"], v, C, 2 * C)
        else:
            self.conv("a", z16, v, phi=self.phi)
        grid, threads, shape = self.launch1
        norm = GroupNorm(affine=self.affine("1"), moments=self.moments[0], cohort=self.cl.cohort, shape=shape)
        self.k.launch("group_norm_f32" if self.exact else "group_norm_f16", grid, threads, norm, v, y)
        if self.exact:
            self.conv_exact("conv_exact", y, self.p["b"], t, 2 * C, C)
        else:
            self.conv("b", y, t)
        self.outer(t, u, z, image, save)

    def outer_struct(self):
        return Outer(second=self.affine("2"), third=self.affine("3"), moments=self.moments[1:], cohort=self.cl.cohort, shape=self.launch2[2])

    def outer_name(self):
        return "outer" + phi_name(self.phi, self.exact)

    def outer(self, t, u, z, image, save):
        grid, threads, _ = self.launch2
        self.k.launch(self.outer_name(), grid, threads, self.outer_struct(), t, u, z, image, t if save else None, self.narrow[1] if save else None)

    def backward(self, z, z16, dimage, dz=True):
        """After a step that saved: gradients by all parameters, by u (narrow[3]) and, if wanted, by z (narrow[2], without the direct way's sum)."""
        C, cl = self.C, self.cl
        v, y, dy, dv = self.wide
        summed, activated, direct, du = self.narrow
        grid, threads, _ = self.launch2
        self.k.launch(self.outer_name() + "_backward", grid, threads, self.outer_struct(), dimage, summed, activated, direct, du,
                      None if self.exact else self.du16, self.scale, self.partial[1], self.partial[2])
        grid, threads, shape = self.launch1
        norm = GroupNorm(affine=self.affine("1"), moments=self.moments[0], cohort=cl.cohort, shape=shape)
        phi = "" if self.phi == "identity" else "_" + self.phi
        scale = 1.0 if self.exact else self.scale
        if self.exact:
            pixels = up(cl.most * self.H * self.W, 64)
            self.conv_exact("conv_exact_input", None, self.p["b"], du, 2 * C, C, dy, grid=(up(2 * C, 64), pixels, cl.count))
            self.k.launch("group_norm_backward_f32" + phi, grid, threads, norm, v, dy, dv, self.partial[0])
            self.conv_exact("conv_exact_weights", y, self.p["b"], du, 2 * C, C, self.grads["b"], grid=(up(18 * C, 64), up(C, 64), cl.count))
            self.conv_exact("conv_exact_weights", z, self.p["a"], dv, C, 2 * C, self.grads["a"], grid=(up(9 * C, 64), up(2 * C, 64), cl.count))
            self.through_a = torch.empty_like(du) if dz else None
            if dz:
                self.conv_exact("conv_exact_input", None, self.p["a"], dv, C, 2 * C, self.through_a, grid=(up(C, 64), pixels, cl.count))
        else:
            self.conv("b", self.du16, dy, back=True)
            self.k.launch("group_norm_backward_f16" + phi, grid, threads, norm, v, dy, dv, self.partial[0])
            self.weights(z16, y, dv)
            if dz:
                self.through_a = torch.empty_like(du)
                self.conv("a", dv, self.through_a, back=True, alpha=1 / self.scale)
        for partial, grads, alpha in zip(self.partial, self.norm_grads, (1 / scale, 1.0, 1.0)):
            sum_samples(self.k, cl, partial, grads, alpha)

    def weights(self, z16, y, dv):
        name = {"conv_sm90": "conv_weights_sm90", PLANES: WEIGHT_PLANES}.get(self.tile, "conv_weights")
        weight_gradients(self.k, name, self.cl, [(self.g["a"], z16, dv, self.grads["a"]), (self.g["b"], y, self.du16, self.grads["b"])], 1 / self.scale, self.parts, self.scratch)


def phi_name(phi, exact):
    return "_softplus_exact" if phi == "softplus" and exact else "_" + phi
