"""The mathematics of fedeq in PyTorch, written as a PyTorch user would write it for speed on a CPU."""
