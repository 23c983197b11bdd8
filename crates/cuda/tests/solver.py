"""A solve on the device, and the same algorithm written down plainly in float64."""
import torch

from driver import *

OUTCOMES = ("running", "converged", "step limit", "not finite")


class Settings:
    def __init__(self, memory=5, mixing=1.0, ridge=1e-6, ridge_is_relative=True, delay=0, restart=0, relative=1e-3, absolute=0.0, max_steps=20):
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})

    def rules(self):
        return Rules(relative=self.relative, absolute=self.absolute, ridge=self.ridge, max_steps=self.max_steps,
                     ridge_is_relative=int(self.ridge_is_relative), delay=self.delay, restart=self.restart)


class Solver:
    """Buffers of a solve of states of n numbers, with residuals kept in 16 bits if `narrow`. `cohorts` alternate: a step reads one and lists those that go on in the other.
    Kernels for little memory are used where they apply, but for `general`."""

    def __init__(self, kernels, clients, n, settings, blocks=4, narrow=False, general=False):
        S, m = clients.samples, settings.memory
        self.bits, self.memory = "_f16" if narrow else "", "_5" if m <= LITTLE and not general else ""
        self.k, self.cl, self.s, self.n, self.blocks = kernels, clients, settings, n, blocks
        new = lambda *shape, **kw: torch.full(shape, float("nan"), device=DEVICE, **kw)
        self.z, self.z16 = new(S, n), new(S, n, dtype=torch.float16)
        self.residuals, self.plain = new(m + 1, S, n, dtype=torch.float16 if narrow else torch.float32), new(m + 1, S, n)
        self.best_z, self.best_image = new(S, n), new(S, n)
        self.partial, self.gamma = new(S, blocks, SUMS), new(S, MOST)
        self.gram = torch.zeros(S, max(m, 1), max(m, 1), dtype=torch.float64, device=DEVICE)
        self.progress = torch.zeros(S, 8, dtype=torch.int32, device=DEVICE)
        self.lists = [(clients.spans.clone(), clients.rows.clone()) for _ in range(2)]
        self.cohorts = [Cohort(spans=spans, rows=rows) for spans, rows in self.lists]

    def start(self, z0):
        self.z.copy_(z0)
        self.z16.copy_(z0)
        self.progress.zero_()
        self.lists[0][0].copy_(self.cl.spans)
        self.lists[0][1].copy_(self.cl.rows)

    def slot(self, step):
        return self.plain[step % (self.s.memory + 1)]

    def step(self, step):
        """After the map has written f(z) into `slot(step)` for the samples of cohorts[step % 2]."""
        cl, old, (spans, rows) = self.cl, self.cohorts[step % 2], self.lists[(step + 1) % 2]
        solve = Solve(z=self.z, z16=self.z16, residuals=self.residuals, plain=self.plain, best_z=self.best_z, best_image=self.best_image,
                      partial=self.partial, gram=self.gram, gamma=self.gamma, progress=self.progress, cohort=old, n=self.n, samples=cl.samples,
                      memory=self.s.memory, mixing=self.s.mixing)
        grid = (self.blocks, cl.most, cl.count)
        self.k.launch("anderson_look" + self.bits + self.memory, grid, 256, solve, step)
        self.k.launch("anderson_decide" + self.memory, cl.count, 128, solve, self.s.rules(), step, self.blocks, spans, rows)
        self.k.launch("anderson_mix" + self.bits + self.memory, grid, 256, solve, step)

    def run(self, f, z0):
        """f(z) for all samples; those that have left are computed in vain, and their results must not matter."""
        self.start(z0)
        for step in range(self.s.max_steps):
            self.slot(step).copy_(f(self.z))
            self.step(step)
        p = self.progress.cpu()
        return {"z": self.best_z, "image": self.best_image, "steps": p[:, 3].tolist(), "best": p[:, 4].tolist(), "outcome": [OUTCOMES[i] for i in p[:, 5].tolist()],
                "relative": p[:, 2].contiguous().view(torch.float32).tolist()}


def plainly(f, z0, s):
    """One sample (n numbers, float64): the algorithm of crates/equilibrium with weights over differences, solved by a library."""
    z, best, usable = z0.clone(), None, 0
    residuals, plains = [], []
    for step in range(s.max_steps):
        image = f(z)
        r = image - z
        norm, scale = r.norm().item(), image.norm().item()
        if not (norm < float("inf") and scale < float("inf")):
            outcome = "not finite"
        else:
            if best is None or norm < best[2]:
                best = (z, image, norm, norm / scale, step)
            outcome = "converged" if norm <= s.absolute + s.relative * scale else "step limit" if step + 1 >= s.max_steps else "running"
        if outcome != "running":
            best = best or (z, z, float("inf"), float("inf"), 0)
            return {"z": best[0], "image": best[1], "relative": best[3], "best": best[4], "steps": step + 1, "outcome": outcome}
        p = z + s.mixing * r
        residuals, plains = (residuals + [r])[-s.memory - 1:], (plains + [p])[-s.memory - 1:]
        usable = min(usable + 1, s.memory) if len(residuals) > 1 else 0
        if s.restart and step % s.restart == 0:
            usable = 0
        z = p
        if usable and step + 1 > s.delay:
            dr = torch.stack([b - a for a, b in zip(residuals[-usable - 1:], residuals[-usable:])])
            dp = torch.stack([b - a for a, b in zip(plains[-usable - 1:], plains[-usable:])])
            gram, rhs = dr @ dr.T, dr @ r
            if s.ridge_is_relative:
                gram = gram + s.ridge * torch.diag(gram.diagonal())
            else:   # ridge times the sum of squares of the iterates' weights gamma_0, gamma_1 - gamma_0, ..., 1 - gamma_last
                T = torch.zeros(usable + 1, usable, dtype=z.dtype, device=z.device)
                for j in range(usable):
                    T[j, j], T[j + 1, j] = 1.0, -1.0
                last = torch.zeros(usable + 1, dtype=z.dtype, device=z.device)
                last[-1] = 1.0
                gram, rhs = gram + s.ridge * T.T @ T, rhs - s.ridge * T.T @ last
            z = p - torch.linalg.solve(gram, rhs) @ dp
