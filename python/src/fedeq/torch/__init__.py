"""Networks of fedeq as PyTorch modules: the same parameters, the same logits.

A network is data (`docs/pytorch.md` says in which form), and one module runs it: `Network`. Its parameters are
ordinary ones under the names of our files, so that a trained client goes on in PyTorch:

>>> import torch
>>> import fedeq.torch
>>> task = {"input": {"kind": "image", "height": 8, "width": 8, "channels": 1}, "classes": 10}
>>> network = fedeq.torch.create("deq-resnet-xs", task, seed=7)
>>> pictures = torch.zeros(2, 8, 8, 1)  # channels last
>>> network(pictures).shape
torch.Size([2, 10])
>>> loss = torch.nn.functional.cross_entropy(network(pictures), torch.tensor([3, 7]))
>>> loss.backward()  # through the fixed point, as the network's settings say

`load` reads what `fedeq export` wrote, or a run.
"""

from collections.abc import Mapping
from typing import Any

from fedeq._extra import not_installed

try:
    import torch  # noqa: F401 (an extra)
except ImportError as error:
    raise ImportError(not_installed("torch", "torch"), name="torch") from error

from fedeq import _given, _native
from fedeq._network_file import Source, read
from fedeq.torch.network import Network
from fedeq.torch.solve import SolveReport

__all__ = ["Network", "SolveReport", "create", "load"]


def load(source: Source, client: str | None = None) -> Network:
    """Load the model of a client, ready to be used (`eval`).

    `source` is a safetensors file or a folder that `fedeq export` wrote, the folder of a finished run, or a run. The
    client need not be named where there is only one.

    >>> import fedeq, fedeq.torch, torch
    >>> run = fedeq.run(method="fedavg", model="mlp", rounds=1, out="runs/first", progress=False)
    >>> pixels, classes = run.client("client-07").data()["test"]
    >>> network = fedeq.torch.load(run, "client-07")
    >>> with torch.inference_mode():
    ...     found = network(network.prepare(pixels)).argmax(dim=1)
    >>> bool((found.numpy() == run.client("client-07").predict(pixels)).all())
    True
    """
    return Network.from_file(read(source, client)).eval()


def create(model: str | Mapping[str, Any], task: Mapping[str, Any], seed: int = 0) -> Network:
    """Make a new network of the catalog, with the first values that the engine draws for this seed.

    `model` is a name (`fedeq settings model` lists them) or a name with settings, such as
    `{"name": "deq-mlp", "hidden": 64}`; `task` is the shape of an input and the number of classes, as in `export.json`:

    >>> network = create({"name": "deq-mlp", "hidden": 16}, {"input": {"kind": "vector", "width": 4}, "classes": 3})
    >>> sorted(name for name, _ in network.named_parameters())
    ['c.weight', 'cell.b.weight', 'dense.bias', 'dense.weight', 'head.bias', 'head.weight']
    """
    settings = model if isinstance(model, str) else _given.as_json(model, "model", '{"name": "deq-mlp", "hidden": 64}')
    shape = _given.as_json(task, "task", '{"input": {"kind": "vector", "width": 4}, "classes": 3}')
    return Network.from_file(read(_native.Engine(settings, shape).file(_given.whole(seed, "seed"))))
