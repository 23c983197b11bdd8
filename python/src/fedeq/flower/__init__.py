"""The server side of a Flower federation whose nodes are `fedeq node`.

The server itself is Rust (`fedeq._native`): it decides who is asked for what, checks replies, averages, evaluates and
writes the run folder. What is here sends messages over Flower's grid, and knows which client is on which node.
"""

from importlib.util import find_spec

from fedeq._extra import not_installed

if find_spec("flwr") is None:
    raise ImportError(not_installed("flwr", "flower"), name="flwr")
