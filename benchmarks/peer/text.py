"""DEQ-Transformer: a stack of four layers applied until nothing changes any more, then a personal layer."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .equilibrium import settle

WIDTH = 64
HEADS = 4
LAYERS = 4
EPSILON = 1e-5
BLOCKED_SCORE = -1e4


class Attention(nn.Module):
    """Multi-head self-attention; one product gives queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.output = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = attend(query, key, value, mask)
        return self.output(seen.transpose(1, 2).reshape(batch, length, WIDTH))


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """Attention by PyTorch's own kernel."""
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def attend_plainly(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    """The same step by step, for `vmap`, which has no rule for that kernel and would call it client by client."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask
    return scores.softmax(-1) @ value


class Layer(nn.Module):
    """`h <- h + injection`, `h <- h + drop(attention(norm_1(h)))`, `h <- h + drop(mlp(norm_2(h)))`."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.attention = Attention()
        self.norm_2 = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, h: Tensor, injection: Tensor, mask: Tensor, drop: Tensor | None) -> Tensor:
        h = h + injection
        h = h + dropped(self.attention(self.norm_1(h), mask), drop, 0)
        thought = self.narrow(F.gelu(self.widen(self.norm_2(h)), approximate="tanh"))
        return h + dropped(thought, drop, 1)


def dropped(x: Tensor, drop: Tensor | None, site: int) -> Tensor:
    """Applies a mask that was drawn once, so that every step of a solve sees the same one."""
    return x if drop is None else x * drop[site]


class Embedding(nn.Module):
    """Learned vectors of symbols and of positions."""

    def __init__(self, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(length, WIDTH)


class SequenceCell(nn.Module):
    """Four layers and a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)

    def forward(self, z: Tensor, injection: Tensor, mask: Tensor, drops: list[Tensor | None]) -> Tensor:
        for layer, drop in zip(self.layers, drops, strict=True):
            z = layer(z, injection, mask, drop)
        return self.norm(z)


class Head(nn.Module):
    """The personal end: one layer, a normalisation and the logits."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.layer = Layer()
        self.norm = nn.LayerNorm(WIDTH, eps=EPSILON)
        self.output = nn.Linear(WIDTH, classes)

    def forward(self, hidden: Tensor, injection: Tensor, mask: Tensor, drop: Tensor | None) -> Tensor:
        return self.output(self.norm(self.layer(hidden, injection, mask, drop)).flatten(0, 1))


class Hidden(NamedTuple):
    """What the personal part reads."""

    state: Tensor
    injection: Tensor
    mask: Tensor


class DeqTransformer(nn.Module):
    """`[B, T]` symbols to `[B * T, vocabulary]` logits."""

    def __init__(self, length: int, vocabulary: int, solver_steps: int, dropout: float) -> None:
        super().__init__()
        self.embedding = Embedding(vocabulary, length)
        self.cell = SequenceCell()
        self.head = Head(vocabulary)
        self.solver_steps = solver_steps
        self.dropout = dropout

    def represent(self, symbols: Tensor) -> Hidden:
        tokens = self.embedding.tokens(symbols)
        injection = tokens + self.embedding.positions.weight[: symbols.shape[1]]
        mask = scores_mask(symbols)
        drops = [self.draw(injection) for _ in range(LAYERS)]
        state = settle(lambda z: self.cell(z, injection, mask, drops), torch.zeros_like(injection), self.solver_steps)
        return Hidden(state, tokens, mask)

    def predict(self, hidden: Hidden) -> Tensor:
        return self.head(*hidden, self.draw(hidden.state))

    def forward(self, symbols: Tensor) -> Tensor:
        return self.predict(self.represent(symbols))

    def draw(self, like: Tensor) -> Tensor | None:
        """The masks of the two dropout sites of a layer."""
        if self.dropout == 0.0:
            return None
        return F.dropout(like.new_ones(2, *like.shape), self.dropout)


def scores_mask(symbols: Tensor) -> Tensor:
    """What is added to attention's scores: very little where a position may not look (the future, padding)."""
    length = symbols.shape[1]
    future = torch.ones(length, length, dtype=torch.bool, device=symbols.device).triu(1)
    blocked = future | (symbols == 0)[:, None, None, :]
    return torch.zeros(blocked.shape, device=symbols.device).masked_fill(blocked, BLOCKED_SCORE)
