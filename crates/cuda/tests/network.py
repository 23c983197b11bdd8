"""A residual block and a transformer's layer put together from the kernels, in 16-bit factors, with their gradients; and the same in PyTorch."""
import torch
import torch.nn.functional as F

from driver import *

WIDTH, HEADS, MLP = 64, 4, 256


def empty(*shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device=DEVICE)


# ---- a residual block --------------------------------------------------------------------------------------------------------------------------
def block_parameters(clients, CI, CO, projected):
    """Convolutions [clients][out][window][window][in], scales and offsets."""
    draw = lambda *shape: torch.randn(*shape, device=DEVICE)
    p = {"1": draw(clients, CO, 3, 3, CI) / (9 * CI) ** 0.5, "2": draw(clients, CO, 3, 3, CO) / (9 * CO) ** 0.5}
    if projected:
        p["s"] = draw(clients, CO, 1, 1, CI) / CI ** 0.5
    for name in list(p):
        p["g" + name], p["o" + name] = 1 + 0.2 * draw(clients, CO), 0.2 * draw(clients, CO)
    return p


def torch_block(p, x, g1, g2, gs, groups=1):
    """Channels first; `groups` clients side by side, or one. Convolutions [out][in][window][window]."""
    def conv(v, name, g):
        right = lambda size, out, before: max((out - 1) * g["stride"] + g["window"] - size - before, 0)
        v = F.pad(v, (g["left"], right(g["W"], g["WO"], g["left"]), g["above"], right(g["H"], g["HO"], g["above"])))
        return F.conv2d(v, p[name], stride=g["stride"], groups=groups)
    norm = lambda v, name: F.batch_norm(v, None, None, p["g" + name], p["o" + name], training=True)
    inner = norm(conv(F.relu(norm(conv(x, "1", g1), "1")), "2", g2), "2")
    if "s" in p:
        return F.relu(inner + norm(conv(x, "s", gs), "s"))
    missing = (inner.shape[1] - x.shape[1]) // groups
    if missing:
        x = x[:, :, ::2, ::2].unflatten(1, (groups, -1))
        x = F.pad(x, (0, 0, 0, 0, missing // 2, missing - missing // 2)).flatten(1, 2)
    return F.relu(inner + x)


class Block:
    """phi(norm(conv(phi(norm(conv(x))))) + shortcut(x)); a block that widens halves the plane."""

    def __init__(self, kernels, clients, p, H, W, CI, CO, suffix="", scale=1024.0, parts=None):
        self.k, self.cl, self.p, self.scale, self.planes = kernels, clients, p, scale, suffix == "_planes"
        stride, S, K = 1 if CI == CO else 2, clients.samples, clients.count
        self.g = {"1": geometry(H, W, CI, CO, 3, stride)}
        HO, WO = self.g["1"]["HO"], self.g["1"]["WO"]
        self.g["2"] = geometry(HO, WO, CO, CO)
        if "s" in p:
            self.g["s"] = geometry(H, W, CI, CO, 1, stride)
        self.names, self.suffix = list(self.g), "_sm90" if self.planes else suffix
        self.straight, self.turned = {}, {}
        for n in self.names:
            self.straight[n], self.turned[n] = weights_to_f16(kernels, p[n])
        half = lambda: empty(S, HO, WO, CO, dtype=torch.float16)
        self.t, self.dt = {n: half() for n in self.names}, {n: half() for n in self.names}
        self.a16, self.y16, self.y, self.d, self.da = half(), half(), empty(S, HO, WO, CO), empty(S, HO, WO, CO), empty(S, HO, WO, CO)
        self.s, self.dx = (empty(S, HO, WO, CO) if "s" in p else None), (self.d if CI == CO else empty(S, H, W, CI))
        def parts_of(n):
            CI, taps, numbers = self.g[n]["CI"], self.g[n]["window"] ** 2, p[n].numel()
            if self.in_planes(n):
                return parts_for(up(CO, 64) * up(CI, 64) * K, up(clients.most * (HO + 1) * (WO + 1), 128), numbers, 132, 1.7)
            return parts_for(up(CO, 64 if CO <= 64 else 128) * up(taps * CI, 128) * K, up(clients.most * HO * WO, 64), numbers, 264, 0.8 if CO > 64 else 0.5)
        self.parts = {n: parts or parts_of(n) for n in self.names}
        self.grads, self.scratch = {n: torch.empty_like(p[n]) for n in self.names}, {n: empty(self.parts[n], *p[n].shape) for n in self.names}
        self.moments, self.sums = ({n: empty(K, 2, CO) for n in self.names} for _ in range(2))
        self.looks = self.shares = None
        self.shape = H, W, CI, HO, WO, CO

    def in_planes(self, name):
        return self.planes and (self.g[name]["window"], self.g[name]["stride"]) == (3, 1)

    def conv(self, name, x, y, back=False, **more):
        out = self.g[name]["CI" if back else "CO"]
        tile = ("conv" if out > 64 else "conv_64") + self.suffix if out > 32 else "conv_32"
        if self.in_planes(name) and out <= 64:
            tile = PLANES
        convolve(self.k, tile, self.cl, self.g[name], x, (self.turned if back else self.straight)[name], y, back=back, **more)

    def norm(self, name, after):
        _, _, _, HO, WO, CO = self.shape
        n, grid = batch_norm(self.cl, HO * WO, CO, after=after, scale=self.p["g" + name], offset=self.p["o" + name], moments=self.moments[name])
        if self.looks is None:
            self.looks, self.shares = empty(self.cl.samples, n.chunks, CO, 2), empty(self.cl.samples, n.chunks, 2, CO)
        return n, grid

    def normalise(self, name, after, shortcut, y, y16):
        n, grid = self.norm(name, after)
        self.k.batch_norm_look_f16(grid, 256, n, self.t[name], self.looks)
        self.k.batch_norm_moments((up(n.C, 32), self.cl.count), 256, n, self.looks, None, None, None, long(0))
        self.k.batch_norm_apply_f16(grid, 256, n, self.t[name], shortcut, y, y16)

    def back(self, name, after, y16, dy, d):
        n, grid = self.norm(name, after)
        self.k.batch_norm_backward_look_f16(grid, 256, n, self.t[name], y16, dy, d, self.shares)
        sum_samples(self.k, self.cl, self.shares, self.sums[name], per=n.chunks)
        self.k.batch_norm_backward_f16(grid, 256, n, self.t[name], dy if d is None else d, self.sums[name], long(2 * n.C), None, self.dt[name], self.scale)

    def forward(self, x, x16):
        H, W, CI, HO, WO, CO = self.shape
        nothing = Shortcut(x=None, W=WO, HS=HO, WS=WO, CS=CO)
        self.conv("1", x16, self.t["1"])
        self.normalise("1", "relu", nothing, None, self.a16)
        self.conv("2", self.a16, self.t["2"])
        shortcut = Shortcut(x=x, W=WO, HS=H, WS=W, CS=CI)
        if self.s is not None:
            self.conv("s", x16, self.t["s"])
            self.normalise("s", "identity", nothing, self.s, None)
            shortcut = Shortcut(x=self.s, W=WO, HS=HO, WS=WO, CS=CO)
        self.normalise("2", "relu", shortcut, self.y, self.y16)

    def weights(self, name, x16):
        tile = WEIGHT_PLANES if self.in_planes(name) else "conv_weights" + ("_64" if self.shape[5] <= 64 else "") + self.suffix
        weight_gradients(self.k, tile, self.cl, [(self.g[name], x16, self.dt[name], self.grads[name])], 1 / self.scale, self.parts[name], [self.scratch[name]])

    def backward(self, x16, dy):
        """Gradients by all parameters (grads, sums) and by x (dx)."""
        H, W, CI, HO, WO, CO = self.shape
        alpha = 1 / self.scale
        self.back("2", "relu", self.y16, dy, self.d)
        self.conv("2", self.dt["2"], self.da, back=True, alpha=alpha)
        self.weights("2", self.a16)
        self.back("1", "relu", self.a16, self.da, self.da)
        self.weights("1", x16)
        if self.s is not None:
            self.back("s", "identity", None, self.d, None)
            self.weights("s", x16)
            self.conv("s", self.dt["s"], self.dx, back=True, alpha=alpha)
        elif CI != CO:
            self.k.widen_backward((up(H * W * CI, 256), self.cl.most, self.cl.count), 256, self.d, self.dx, self.cl.cohort, H, W, CI, HO, WO, CO)
        self.conv("1", self.dt["1"], self.dx, back=True, alpha=alpha, add=True)


# ---- a transformer's layer ---------------------------------------------------------------------------------------------------------------------
DENSE = {"qkv": (WIDTH, 3 * WIDTH), "o": (WIDTH, WIDTH), "widen": (WIDTH, MLP), "narrow": (MLP, WIDTH)}


def layer_parameters(clients):
    draw = lambda *shape: torch.randn(*shape, device=DEVICE)
    p = {}
    for name, (i, o) in DENSE.items():
        p[name], p["b" + name] = draw(clients, i, o) / i ** 0.5, 0.1 * draw(clients, o)
    for name in "123":
        p["g" + name], p["o" + name] = 1 + 0.2 * draw(clients, WIDTH), 0.2 * draw(clients, WIDTH)
    return p


def torch_layer(p, h, injection, look, masks):
    """h [clients, texts, length, 64], masks two like it, look(q, k, v) by heads; a layer and the norm behind it. Any precision."""
    return torch_norm(p, torch_stream(p, h, injection, look, masks), "3")


def torch_norm(p, v, n):
    return F.layer_norm(v, (WIDTH,)) * p["g" + n][:, None, None] + p["o" + n][:, None, None]


def torch_stream(p, h, injection, look, masks):
    """The same without the norm behind it."""
    K, B, T, _ = h.shape
    linear = lambda v, name: torch.baddbmm(p["b" + name][:, None], v.reshape(K, B * T, -1), p[name]).view(K, B, T, -1)
    norm = lambda v, n: torch_norm(p, v, n)
    h = h + injection
    q, k, v = (t.view(K * B, T, HEADS, -1).transpose(1, 2) for t in linear(norm(h, "1"), "qkv").split(WIDTH, 3))
    seen = look(q, k, v).transpose(1, 2).reshape(K, B, T, WIDTH)
    h = h + masks[0] * linear(seen, "o")
    return h + masks[1] * linear(F.gelu(linear(norm(h, "2"), "widen"), approximate="tanh"), "narrow")


class Layers:
    """Layers one after the other, maybe with a norm behind them, in one launch that keeps nothing: for texts of up to 16 symbols."""

    def __init__(self, kernels, clients, count, text, mask=None, kept=1.0, end=True):
        self.k, self.cl, self.text, self.mask, self.kept, self.end = kernels, clients, text, mask, kept, end
        self.p = [layer_parameters(clients.count) for _ in range(count)]
        for p in self.p:
            p.update({n: p[n].half().float() for n in DENSE})
        self.weights = [[p[n].transpose(1, 2).half().contiguous() for n in DENSE] for p in self.p]
        # A client's other parameters are one row of a table.
        names = ("g1", "o1", "bqkv", "bo", "g2", "o2", "bwiden", "bnarrow")
        columns = [p[n] for p in self.p for n in names] + [self.p[-1]["g3"], self.p[-1]["o3"]]
        self.table = torch.cat(columns, 1).contiguous()
        firsts = [self.table.data_ptr() + 4 * sum(c.shape[1] for c in columns[:i]) for i in range(len(columns))]
        self.layers = []
        for i, w in enumerate(self.weights):
            g1, o1, qkv, o, g2, o2, widen, narrow = firsts[8 * i:8 * i + 8]
            at = lambda site: 0 if mask is None else mask.data_ptr() + site * text.length * WIDTH
            self.layers.append(LayerOfStack(weights=w, biases=[qkv, o, widen, narrow], first=Norm(scale=g1, offset=o1), second=Norm(scale=g2, offset=o2), masks=[at(2 * i), at(2 * i + 1)]))
        self.last = Norm(scale=firsts[-2], offset=firsts[-1]) if end else Norm(scale=None, offset=None)

    def forward(self, h, injection, y):
        call = Stack(layers=self.layers, end=self.last, h=h, injection=injection, y=y, text=self.text, cohort=self.cl.cohort, stride=self.table.shape[1],
                     mask_stride=2 * len(self.p) * self.text.length * WIDTH, kept=self.kept, count=len(self.p))
        self.k.layers_f16((up(self.cl.most, 4), self.cl.count), 256, call, shared=144384)

    def expected(self, client, h, injection, look, masks):
        """What a client's texts [texts, length, 64] give in float64, with masks [texts, 2 * layers, length, 64] or None."""
        p = [{n: t[client:client + 1].to(h) for n, t in of.items()} for of in self.p]
        h = h[None]
        for i, of in enumerate(p):
            h = torch_stream(of, h, injection[None], look, [1, 1] if masks is None else [self.kept * masks[None, :, 2 * i + j] for j in (0, 1)])
        return (torch_norm(p[-1], h, "3") if self.end else h)[0]


class Layer:
    """h1 = h + injection, h2 = h1 + drop(attention(norm1(h1))), norm3(h2 + drop(mlp(norm2(h2))))."""

    def __init__(self, kernels, clients, p, text, mask, kept, suffix="", scale=1024.0):
        self.k, self.cl, self.p, self.text, self.mask, self.kept, self.suffix, self.scale = kernels, clients, p, text, mask, kept, suffix, scale
        S, T = clients.samples, text.length
        self.g = {n: geometry(1, T, i, o, 1, 1) for n, (i, o) in DENSE.items()}
        self.straight, self.turned = {}, {}
        for n in DENSE:
            self.straight[n], self.turned[n] = weights_to_f16(kernels, p[n])
        half = lambda width: empty(S, T, width, dtype=torch.float16)
        for n, width in dict(a=WIDTH, qkv=3 * WIDTH, seen=WIDTH, o=WIDTH, b=WIDTH, wide=MLP, active=MLP, narrow=WIDTH).items():
            setattr(self, n, half(width)), setattr(self, "d" + n, half(width))
        for n in ("h1", "h2", "h3", "y", "dh"):
            setattr(self, n, empty(S, T, WIDTH))
        self.dinjection, self.attention_sums = torch.zeros(S, T, WIDTH, device=DEVICE), empty(S, HEADS, T, 2)
        self.moments, self.shares = {n: empty(S, T, 2) for n in "123"}, {n: empty(S, 2, WIDTH) for n in "123"}
        self.grads = {n: torch.empty_like(t) for n, t in p.items() if n[0] not in "g" and n not in ("o1", "o2", "o3")}
        self.norm_grads, self.scratch = {n: empty(clients.count, 2, WIDTH) for n in "123"}, {}

    def linear(self, name, x, y, back=False):
        out = self.g[name]["CI" if back else "CO"]
        tile = ("conv" if out > 64 else "conv_64") + self.suffix
        w = (self.straight if back else self.turned)[name]   # of [in][out], a 1x1 convolution's weights are the turned ones
        convolve(self.k, tile, self.cl, self.g[name], x, w, y, bias=None if back else self.p["b" + name], back=back)

    def norm(self, name, mask=None):
        T = self.text.length
        at = None if mask is None or self.mask is None else self.mask.view(-1)[mask * T * WIDTH:]
        return LayerNorm(scale=self.p["g" + name], offset=self.p["o" + name], moments=self.moments[name], mask=at, cohort=self.cl.cohort, stride=WIDTH,
                         mask_stride=2 * T * WIDTH, kept=self.kept, length=T), (1, self.cl.most, self.cl.count)

    def attention(self):
        a = Attention(q=self.qkv, k=self.qkv, v=self.qkv, sums=self.attention_sums, text=self.text, cohort=self.cl.cohort, row=3 * WIDTH)
        a.k, a.v = a.q + 2 * WIDTH, a.q + 4 * WIDTH
        return a

    def forward(self, h, injection):
        k, T = self.k, self.text.length
        n, grid = self.norm("1")
        k.layer_norm_f16(grid, 256, n, h, None, injection, self.h1, None, self.a)
        self.linear("qkv", self.a, self.qkv)
        attend(k, self.cl, self.attention(), self.seen)
        self.linear("o", self.seen, self.o)
        n, grid = self.norm("2", 0)
        k.layer_norm_f16(grid, 256, n, self.h1, self.o, None, self.h2, None, self.b)
        self.linear("widen", self.b, self.wide)
        k.gelu_f16((up(T * MLP, 1024), self.cl.most, self.cl.count), 256, self.wide, self.active, self.cl.cohort, T * MLP)
        self.linear("narrow", self.active, self.narrow)
        n, grid = self.norm("3", 1)
        k.layer_norm_f16(grid, 256, n, self.h2, self.narrow, None, self.h3, self.y, None)

    def weights(self, name, x, dy):
        """dw [in][out] = x^T dy is the gradient of a convolution from dy's channels to x's."""
        i, o = DENSE[name]
        tile = "conv_weights" + ("_64" if i <= 64 else "") + self.suffix
        blocks, steps = up(i, 64 if i <= 64 else 128) * up(o, 128) * self.cl.count, up(self.cl.most * self.text.length, 64)
        parts = parts_for(blocks, steps, i * o * self.cl.count, 264, 0.7)
        if parts > 1 and self.scratch.get(name) is None:
            self.scratch[name] = empty(parts, *self.p[name].shape)
        weight_gradients(self.k, tile, self.cl, [(geometry(1, self.text.length, o, i, 1, 1), dy, x, self.grads[name])], 1 / self.scale, parts, [self.scratch.get(name)])
        sum_samples(self.k, self.cl, dy, self.grads["b" + name], 1 / self.scale, self.text.length)

    def back_norm(self, name, mask, total, dy, direct, branch, injection=None):
        n, grid = self.norm(name, mask)
        self.k.layer_norm_backward_f16(grid, 256, n, total, dy, direct, self.dh, branch, injection, self.shares[name], 1 / self.scale, self.scale)
        sum_samples(self.k, self.cl, self.shares[name], self.norm_grads[name])

    def backward(self, dy16):
        """dy16 is `scale` times the gradient of y; gradients by parameters, by h (dh) and, added up, by the injection."""
        k, T = self.k, self.text.length
        self.back_norm("3", 1, self.h3, dy16, None, self.dnarrow)
        self.linear("narrow", self.dnarrow, self.dactive, back=True)
        self.weights("narrow", self.active, self.dnarrow)
        k.gelu_backward_f16((up(T * MLP, 1024), self.cl.most, self.cl.count), 256, self.wide, self.dactive, self.dwide, self.cl.cohort, T * MLP)
        self.linear("widen", self.dwide, self.db, back=True)
        self.weights("widen", self.b, self.dwide)
        self.back_norm("2", 0, self.h2, self.db, self.dh, self.do)
        self.linear("o", self.do, self.dseen, back=True)
        self.weights("o", self.seen, self.do)
        attend_backward(k, self.cl, self.attention(), self.dseen, self.dqkv)
        self.linear("qkv", self.dqkv, self.da, back=True)
        self.weights("qkv", self.a, self.dqkv)
        self.back_norm("1", None, self.h1, self.da, self.dh, None, self.dinjection)
