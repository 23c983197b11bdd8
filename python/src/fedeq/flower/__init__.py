"""The server side of a Flower federation whose nodes are `fedeq node`.

The server itself is Rust (`fedeq._native`): it decides who is asked for what, checks replies, averages, evaluates and
writes the run folder. What is here sends messages over Flower's grid, and knows which client is on which node.
"""

from importlib.util import find_spec

if find_spec("flwr") is None:
    message = "`flwr` is not installed\nhint: install the extra `flower`: `pip install 'fedeq[flower]'`"
    raise ImportError(message, name="flwr")
