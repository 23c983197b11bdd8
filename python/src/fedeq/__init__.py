"""Personalised federated learning with deep equilibrium models."""
