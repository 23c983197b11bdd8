"""Personalised federated learning with deep equilibrium models."""

from fedeq._native import FedeqError, Stopped

__all__ = ["FedeqError", "Stopped"]
