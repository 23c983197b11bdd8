"""Projections of DEQ-MLP, votes of nearest neighbours, the gap to the server's parameters, and GMRES."""
import torch
import torch.nn.functional as F

from harness import *


def onto_sphere(rows, radius):
    """Duchi et al., by sorting, as in crates/equilibrium."""
    size = rows.abs()
    ordered = size.sort(1, descending=True)[0]
    candidates = (ordered.cumsum(1) - radius) / torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype, device=rows.device)
    which = (ordered > candidates).sum(1, keepdim=True) - 1
    return (size - candidates.gather(1, which.clamp_min(0))).clamp_min(0) * torch.where(rows < 0, -1.0, 1.0)


def onto_ball(rows, radius):
    return torch.where(rows.abs().sum(1, keepdim=True) <= radius, rows, onto_sphere(rows, radius))


@check_of
def projections():
    for clients, rows, columns, radius, size in ((3, 7, 5, 0.95, 1.0), (2, 512, 512, 0.95, 0.01), (2, 512, 512, 1.0, 0.002), (1, 33, 130, 2.0, 0.1), (1, 1, 1, 0.5, 1.0)):
        b = size * torch.randn(clients, rows, columns, device=DEVICE)
        b[0, 0] = 0.0   # rows and columns with zeros
        everybody = Clients([1] * clients).cohort
        for name, grid, vectors in (("project_columns", (up(columns, 32), clients), lambda t: t.transpose(1, 2)), ("project_rows", (up(rows, 8), clients), lambda t: t)):
            for ball, rule in ((1, onto_ball), (0, onto_sphere)):
                found = b.clone()
                KERNELS.launch(name, grid, 256, found, everybody, long(rows * columns), rows, columns, radius, ball)
                expected = torch.stack([rule(vectors(b)[i].double(), radius) for i in range(clients)])
                report(f"{name} {'ball' if ball else 'sphere'} {clients} x {rows} x {columns}, {radius}", error(vectors(found), expected), 1e-6)


@check_of
def neighbours():
    k = KERNELS
    cases = [([3, 1, 0, 4], [5, 20, 3, 0], 10, 4, 10), ([33, 20], [100, 7], 128, 62, 10), ([2], [700], 64, 90, 25)] + ([] if SMALL else [([100] * 10, [500] * 10, 128, 10, 10)])
    for queries, entries, width, classes, count in cases:
        ask, answer = Clients(queries), Clients(entries)
        q, e = torch.randn(ask.samples, width, device=DEVICE), torch.randn(answer.samples, width, device=DEVICE)
        logits = torch.randn(ask.samples, classes, device=DEVICE)
        labels, wanted = (torch.randint(classes, (n.samples,), dtype=torch.int32, device=DEVICE) for n in (answer, ask))
        wanted[ask.listed[0]] = -1
        pitch = answer.most
        distances, mixed, losses = poisoned(ask.samples, pitch), poisoned(ask.samples, classes), poisoned(ask.samples)
        right, (scores, losses_of, counts_of) = torch.full((ask.samples,), 7, dtype=torch.uint8, device=DEVICE), scores_of(ask.count)
        k.knn_distances((up(answer.most, 64), up(ask.most, 64), ask.count), 256, q, e, distances, ask.cohort, answer.cohort, width, pitch)
        k.knn_vote((1, ask.most, ask.count), 128, distances, logits, labels, wanted, mixed, losses, right, ask.cohort, answer.cohort, 0.4, count, classes, pitch, shared=classes * 4)
        k.sum_scores(ask.count, 256, losses, right, None, scores, ask.cohort, 1)
        mixes, means, rights = [], [], []
        for of, having, x in zip(ask.of, answer.of, by_client(ask, logits)):
            p = x.softmax(1)
            target = wanted[of].long().to(REFERENCE)
            if having and of:
                near, at = torch.cdist(q[of].double().to(REFERENCE), e[having].double().to(REFERENCE)).topk(min(count, len(having)), largest=False)
                vote = torch.zeros_like(p).scatter_add_(1, labels[having].long().to(REFERENCE)[at], (-near).softmax(1))
                p = 0.4 * vote + 0.6 * p
            mixes.append(p)
            counted = target >= 0
            loss = -p.gather(1, target.clamp_min(0)[:, None])[:, 0].log()
            means.append((loss * counted).sum() / max(len(of), 1)), rights.append(int(((p.argmax(1) == target) & counted).sum()))
        what = f"{describe(ask, width, classes)} of {describe(answer)}"
        compare(f"knn_vote {what}", ask, mixed, mixes, 1e-5)
        report("  mean losses", error(losses_of(), torch.stack(means)), 1e-5)
        report("  correct", float(counts_of() != [rights, queries]), 0)


@check_of
def squared_errors():
    cl = Clients([3, 0, 200])
    y, wanted, indices = torch.randn(cl.samples, device=DEVICE), torch.randn(400, device=DEVICE), torch.randint(400, (cl.samples,), dtype=torch.int32, device=DEVICE)
    losses, dy = poisoned(cl.samples), poisoned(cl.samples)
    KERNELS.squared_error((up(cl.most, 128), cl.count), 128, y, wanted, indices, losses, dy, cl.cohort)
    d = [y[of].double() - wanted[indices[of].long()].double() for of in cl.of]
    compare("squared_error", cl, losses, [(v * v).to(REFERENCE) for v in d], 1e-6)
    compare("  gradient", cl, dy, [(2 * v / max(len(v), 1)).to(REFERENCE) for v in d], 1e-6)


GMRES_MOST = 24
SPACE_BYTES = (GMRES_MOST * GMRES_MOST + 2 * GMRES_MOST + GMRES_MOST + 1 + 2) * 8 + 16


class GmresSolver:
    """(I - J^T) u = b for all samples; `pull_back` gives J^T v of all directions."""

    def __init__(self, kernels, clients, n, memory, relative, max_steps, blocks=2):
        S = clients.samples
        self.k, self.cl, self.n, self.memory, self.blocks, self.max_steps = kernels, clients, n, memory, blocks, max_steps
        self.basis, self.image, self.u = poisoned(memory + 1, S, n), poisoned(S, n), poisoned(S, n)
        self.newest16, self.u16 = poisoned(S, n, dtype=torch.float16), poisoned(S, n, dtype=torch.float16)
        self.partial, self.weights = poisoned(3, S, blocks, GMRES_MOST), poisoned(S, GMRES_MOST)
        self.spaces = torch.zeros(S, SPACE_BYTES, dtype=torch.uint8, device=DEVICE)
        self.rules = GmresRules(relative=relative, absolute=0.0, max_steps=max_steps)
        self.lists = [(clients.spans.clone(), clients.rows.clone()) for _ in range(3)]   # who began the stretch, and two that alternate

    def struct(self, which, b):
        spans, rows = self.lists[which]
        return Gmres(basis=self.basis, newest16=self.newest16, image=self.image, u=self.u, b=b, partial=self.partial, weights=self.weights, spaces=self.spaces,
                     cohort=Cohort(spans=spans, rows=rows), n=self.n, samples=self.cl.samples, memory=self.memory)

    def run(self, pull_back, b):
        grid, k = (self.blocks, self.cl.most, self.cl.count), self.k
        for i in (0, 1):
            self.lists[0][i].copy_((self.cl.spans, self.cl.rows)[i])
        through = None
        for stretch in range(up(self.max_steps, self.memory)):
            g = self.struct(0, b)
            k.gmres_begin(grid, 256, g, through)
            k.gmres_start(self.cl.count, 128, g, self.rules, int(through is None), self.blocks, *self.lists[1])
            k.gmres_unit(grid, 256, self.struct(1, b), 0, 4.0)
            now = 1
            for column in range(min(self.memory, self.max_steps - stretch * self.memory)):
                through = pull_back(self.basis[column])
                g = self.struct(now, b)
                for p in range(3):
                    k.gmres_project(grid, 256, g, through, column, p)
                k.gmres_decide(self.cl.count, 128, g, self.rules, column, self.blocks, *self.lists[3 - now])
                now = 3 - now
                k.gmres_unit(grid, 256, self.struct(now, b), column + 1, 4.0)
            began = self.struct(0, b)
            k.gmres_weigh(self.cl.count, 128, began)
            k.gmres_correct(grid, 256, began, self.u16, 0.5)
            through = pull_back(self.u)
            for i in (0, 1):
                self.lists[0][i].copy_(self.lists[now][i])
        ends = self.spaces.view(torch.int32)[:, -4:].cpu()   # inverse, columns, steps, outcome
        return self.u, ends[:, 2].tolist(), ends[:, 3].tolist()


def gmres_plainly(A, b, memory, relative, max_steps):
    """One sample in float64; the least-squares problem by a library."""
    u, r, scale, steps = torch.zeros_like(b), b, b.norm().item(), 0
    if scale <= relative * scale:
        return u, 0, 1
    while True:
        basis, H = [r / r.norm()], torch.zeros(memory + 1, memory, dtype=b.dtype)
        for j in range(memory):
            w = A @ basis[j]
            for _ in range(2):
                for i, v in enumerate(basis):
                    h = v @ w
                    H[i, j] += h
                    w = w - h * v
            H[j + 1, j] = w.norm()
            basis.append(w / w.norm() if w.norm() > 0 else w)
            steps += 1
            e = torch.zeros(j + 2, dtype=b.dtype)
            e[0] = r.norm()
            y = torch.linalg.lstsq(H[:j + 2, :j + 1], e[:, None]).solution[:, 0]
            residual = (e - H[:j + 2, :j + 1] @ y).norm().item()
            outcome = 1 if residual <= relative * scale else 2 if steps >= max_steps else 0
            if outcome:
                break
        u = u + sum(c * v for c, v in zip(y, basis))
        if outcome:
            return u, steps, outcome
        r = b - A @ u


@check_of
def gmres():
    torch.manual_seed(5)
    torch.set_num_threads(2)
    for sizes, n, memory, relative, max_steps, radius in (([5, 1, 0, 9], 64, 20, 1e-3, 50, 0.9), ([3, 4], 64, 5, 1e-4, 40, 0.8), ([2], 128, 20, 1e-9, 12, 0.9), ([3, 130], 32, 24, 1e-4, 24, 0.5)):
        cl = Clients(sizes)
        J = torch.randn(cl.samples, n, n, dtype=torch.float64, device=DEVICE) * (radius / n ** 0.5)
        b = torch.randn(cl.samples, n, device=DEVICE)
        if cl.samples > 10:
            b[cl.of[0][1]] = 0.0   # nothing to solve
        solver = GmresSolver(KERNELS, cl, n, memory, relative, max_steps)
        u, steps, outcomes = solver.run(lambda v: torch.einsum("sij,si->sj", J, v.double()).float(), b)
        eye, JT, host = torch.eye(n, dtype=torch.float64), J.transpose(1, 2).cpu(), b.double().cpu()
        expected = {s: gmres_plainly(eye - JT[s], host[s], memory, relative, max_steps) for s in cl.listed}
        what = describe(cl, n, memory, relative)
        # Where the residual meets the tolerance but for rounding, one step more or less is right.
        report(f"gmres {what}: steps", float(sum(abs(steps[s] - e[1]) for s, e in expected.items())), 0.05 * len(expected))
        report("  outcomes", float(sum(outcomes[s] != e[2] for s, e in expected.items())), 0)
        report("  solutions", error(torch.stack([u[s] for s in cl.listed]), torch.stack([expected[s][0] for s in cl.listed])), 1e-4)
        left = [(((eye - JT[s]) @ u[s].double().cpu() - host[s]).norm() / host[s].norm().clamp_min(1e-30)).item() for s in cl.listed if outcomes[s] == 1]
        report("  residuals of the converged, in tolerances", max(left, default=0.0) / relative, 1.1)
        report("  in 16 bits", error(torch.stack([solver.u16[s] for s in cl.listed]), torch.stack([0.5 * u[s] for s in cl.listed])), 4e-4)
        report("  others untouched", float(not torch.isnan(u[cl.unlisted]).all()), 0)
