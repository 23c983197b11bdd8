"""Builds both sides, shows that they compute the same, times them in turn and prints one table. Standard library only."""
