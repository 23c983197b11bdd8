"""The server side of a Flower federation whose nodes are `fedeq node`."""

from fedeq.flower.strategy import Consensus

__all__ = ["Consensus"]
