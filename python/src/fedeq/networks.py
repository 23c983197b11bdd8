"""Networks of your own: an object of Python computes, fedeq does everything around it.

A network holds no state. A run asks it for its parameters once, keeps one model a client, and calls it back for every
batch: `loss_and_gradient(parameters, x, y)` in training, `logits(parameters, x)` in evaluations. Methods, optimisers,
sampling, aggregation, checkpoints and reports are those of every other run.

It is slower than a network of fedeq: arrays are copied at every call, and one call is made at a time, whatever the
number of workers. The run says so: its title ends with `computed by Python`.
"""

import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedeq import _given, _native
from fedeq._extra import not_installed

__all__ = ["Arrays", "Inputs", "Network", "Targets", "TorchNetwork"]

Arrays = Mapping[str, NDArray[np.float32]]
"""Parameters or gradients by name."""

Inputs = NDArray[np.float32] | NDArray[np.int64]
"""A batch: pictures `[samples, height, width, channels]`, vectors `[samples, width]` or tokens `[samples, length]`."""

Targets = NDArray[np.int64]
"""Classes `[samples]`, or next tokens `[samples, length]` that are -100 where they do not count."""


@runtime_checkable
class Network(Protocol):
    """What a run asks of a network. Any object will do.

    The same arguments must give the same numbers, whatever was asked before: calls come one at a time, but in any order
    of clients and from several threads. Whatever is random comes from the seed: a `loss_and_gradient` with a parameter
    `seed` is given a whole number that differs from batch to batch, or `None` where nothing may be random.

    Two attributes may be added: `personal`, the parameters that stay with each client, by name or by what they have in
    front of a dot (none otherwise; a text is one name), and `name`, what the run calls it (the name of its class
    otherwise). And two methods, for what needs more than losses: `features(parameters, x)` gives `[samples, width]`, by
    which nearest neighbours are found (`method="knn-per"`); `features_and_pullback(parameters, x)` gives those of a
    training pass, and a function that turns a gradient with respect to them into one with respect to every parameter.
    With both, features are trained on (`method="moon"`). A `seed` is as in `loss_and_gradient`.

    >>> import numpy as np
    >>> class Mean:
    ...     "Says the same of everything."
    ...     def parameters(self):
    ...         return {"bias": np.zeros(10, np.float32)}
    ...     def loss_and_gradient(self, parameters, x, y):
    ...         bias = parameters["bias"].astype(float)
    ...         p = np.exp(bias) / np.exp(bias).sum()
    ...         gradient = p - np.bincount(y, minlength=10) / len(y)
    ...         return -np.log(p[y]).mean(), {"bias": gradient.astype(np.float32)}
    ...     def logits(self, parameters, x):
    ...         return np.tile(parameters["bias"], (len(x), 1))
    >>> isinstance(Mean(), Network)
    True
    """

    def parameters(self) -> Arrays:
        """Give the values that all clients start from, as float32. Asked once, when a run begins."""
        ...

    def loss_and_gradient(self, parameters: Arrays, x: Any, y: Any) -> tuple[float, Arrays]:  # noqa: ANN401 - as wide as it likes
        """Give the mean loss over the predictions of a batch, and its gradient: one array for every parameter."""
        ...

    def logits(self, parameters: Arrays, x: Any) -> NDArray[np.float32]:  # noqa: ANN401 - as wide as it likes
        """Give one number a class for every prediction, `[samples, classes]`; tokens have `[samples, length, classes]`.

        The largest is what is predicted. The loss of evaluations is their cross-entropy, whatever is trained on.
        """
        ...


class TorchNetwork:
    """A `torch.nn.Module` as a network.

    Pictures reach the module as PyTorch has them, `[samples, channels, height, width]`. Parameters with
    `requires_grad=False` and buffers belong to the module and not to the run: they stay as they are, and are not sent.

    Args:
        module: what computes; its parameters are float32, on whatever device it is.
        loss: a function of logits and targets that gives the mean loss; PyTorch's `cross_entropy` if left out.
        personal: the parameters that stay with each client, by name or by what they have in front of a dot: `["fc"]`.
        name: what the run calls it; the name of the module's class if left out.
        features: the submodule whose input stands for a sample, such as the last layer (`"knn-per"` and `"moon"`).

    >>> import fedeq, torch
    >>> from fedeq.networks import TorchNetwork
    >>> module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    >>> network = TorchNetwork(module, name="softmax")
    >>> {name: array.shape for name, array in network.parameters().items()}
    {'1.weight': (10, 64), '1.bias': (10,)}
    >>> run = fedeq.run(network=network, method="fedavg", rounds=1, out="runs/softmax", progress=False)
    >>> run.summary["model"], run.client("client-07").state_dict()["1.weight"].shape
    ('external:softmax', (10, 64))

    """

    personal: list[str]
    """The parameters that stay with each client, as they were given."""
    name: str
    """What the run calls it."""
    features: Callable[[Arrays, Inputs], NDArray[np.float32]]
    """What stands for samples, as `Network` says; only where a submodule was named."""
    features_and_pullback: Callable[..., tuple[NDArray[np.float32], Callable[[NDArray[np.float32]], Arrays]]]
    """The same in a training pass, and the way back, as `Network` says; only where a submodule was named."""

    def __init__(
        self,
        module: Any,  # noqa: ANN401 - torch need not be there to read this
        *,
        loss: Callable[[Any, Any], Any] | None = None,
        personal: str | Sequence[str] = (),
        name: str | None = None,
        features: str | None = None,
    ) -> None:
        """Take a module over: while a run is under way nothing else should use it."""
        self._torch = _torch()
        if not isinstance(module, self._torch.nn.Module):
            _given.refuse(f"`module` is of the type `{type(module).__name__}`", "give a `torch.nn.Module`")
        self._module = module
        self._loss = loss or self._torch.nn.functional.cross_entropy
        self._lock = threading.Lock()
        self._parameters = {name: value for name, value in module.named_parameters() if value.requires_grad}
        if not self._parameters:
            hint = "let it have some with `requires_grad=True`"
            _given.refuse("the module has no parameters that are trained", hint)
        self.personal = [personal] if isinstance(personal, str) else _given.texts(personal, "personal", '["fc"]')
        self.name = type(module).__name__ if name is None else _given.text(name, "name", "small-cnn")
        for path, value in self._parameters.items():
            if value.dtype != self._torch.float32:
                _given.refuse(f"the parameter `{path}` is `{value.dtype}`", "make it float32: `module.float()`")
        if features is not None:
            found = dict(module.named_modules())
            if features not in found:
                hint = f"name one of {', '.join(f'`{path}`' for path in found if path)}"
                _given.refuse(f"`features` is `{features}`, and no submodule is called so", hint)
            self._last = found[features]
            self.features = self._features
            self.features_and_pullback = self._features_and_pullback

    def parameters(self) -> dict[str, NDArray[np.float32]]:
        """Give what the module's parameters are now."""
        return {name: _array(value) for name, value in self._parameters.items()}

    def loss_and_gradient(
        self, parameters: Arrays, x: Inputs, y: Targets, seed: int | None = None
    ) -> tuple[float, dict[str, NDArray[np.float32]]]:
        """Compute the loss and its gradient; dropout and the like are drawn from the seed, or off without one."""
        with self._lock, self._drawing(seed):
            values, logits = self._training_pass(parameters, x)
            loss = self._loss(self._classes_last(logits, y), self._tensor(y))
            gradient = self._gradient(loss, values)
        return float(loss.detach()), gradient

    def logits(self, parameters: Arrays, x: Inputs) -> NDArray[np.float32]:
        """Compute logits; nothing is random."""
        with self._lock:
            return _array(self._forward(parameters, x))

    def _features(self, parameters: Arrays, x: Inputs) -> NDArray[np.float32]:
        with self._lock, self._watched() as seen:
            self._forward(parameters, x)
        return _array(seen[-1])

    def _features_and_pullback(
        self, parameters: Arrays, x: Inputs, seed: int | None = None
    ) -> tuple[NDArray[np.float32], Callable[[NDArray[np.float32]], dict[str, NDArray[np.float32]]]]:
        with self._lock, self._drawing(seed), self._watched() as seen:
            values, _ = self._training_pass(parameters, x)
        features = seen[-1]

        def pullback(of_features: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
            if not features.requires_grad:  # No parameter comes before them.
                return {name: np.zeros(array.shape, np.float32) for name, array in parameters.items()}
            with self._lock:
                return self._gradient(features, values, self._tensor(of_features))

        return _array(features), pullback

    @contextmanager
    def _drawing(self, seed: int | None) -> Iterator[None]:
        """Draw from a seed, or not at all; afterwards PyTorch draws as if nothing had been."""
        with self._torch.random.fork_rng(devices=self._gpus()):
            if seed is not None:
                self._torch.manual_seed(seed)
            self._module.train(seed is not None)
            yield

    @contextmanager
    def _watched(self) -> Iterator[list[Any]]:
        """Collect what the last layer is given."""
        seen: list[Any] = []
        hook = self._last.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
        try:
            yield seen
        finally:
            hook.remove()

    def _training_pass(self, parameters: Arrays, x: Inputs) -> tuple[dict[str, Any], Any]:
        """Go forward; give the parameters as tensors, and the logits."""
        values = {name: self._tensor(array).requires_grad_() for name, array in parameters.items()}
        buffers = {name: value.clone() for name, value in self._module.named_buffers()}
        logits = self._torch.func.functional_call(self._module, {**values, **buffers}, (self._input(x),))
        self._require_unchanged(buffers)
        return values, logits

    def _gradient(self, of: Any, values: Mapping[str, Any], by: Any = None) -> dict[str, NDArray[np.float32]]:  # noqa: ANN401 - tensors
        """Go back; zero for what had no part in it."""
        gradients = self._torch.autograd.grad(of, list(values.values()), by, allow_unused=True)
        found = zip(values.items(), gradients, strict=True)
        return {name: _array(self._torch.zeros_like(value) if g is None else g) for (name, value), g in found}

    def _forward(self, parameters: Arrays, x: Inputs) -> Any:  # noqa: ANN401 - a tensor
        self._module.eval()
        values = {name: self._tensor(array) for name, array in parameters.items()}
        with self._torch.no_grad():
            return self._torch.func.functional_call(self._module, values, (self._input(x),))

    def _tensor(self, array: NDArray[Any]) -> Any:  # noqa: ANN401 - a tensor
        device = next(iter(self._parameters.values())).device
        return self._torch.from_numpy(np.ascontiguousarray(array)).to(device)

    def _input(self, x: Inputs) -> Any:  # noqa: ANN401 - a tensor
        pictures = 4
        return self._tensor(np.moveaxis(x, -1, 1) if x.ndim == pictures else x)

    def _classes_last(self, logits: Any, y: Targets) -> Any:  # noqa: ANN401 - tensors
        """Bring the classes of every position to where PyTorch's losses look for them."""
        return logits if y.ndim == 1 else logits.movedim(-1, 1)

    def _gpus(self) -> list[int]:
        devices = {value.device for value in self._parameters.values()}
        return [device.index for device in devices if device.type == "cuda"]

    def _require_unchanged(self, buffers: Mapping[str, Any]) -> None:
        for name, value in self._module.named_buffers():
            if not self._torch.equal(value, buffers[name]):
                message = (
                    f"the buffer `{name}` changes while the module trains, and a network holds no state\n"
                    "hint: replace batch normalisation by `GroupNorm`, or give it `track_running_stats=False`"
                )
                raise _native.FedeqError(message)


def _torch() -> Any:  # noqa: ANN401 - a module that need not be there
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ImportError(not_installed("torch", "torch"), name="torch") from error


def _array(tensor: Any) -> NDArray[np.float32]:  # noqa: ANN401 - a tensor
    array: NDArray[np.float32] = tensor.detach().cpu().numpy().astype(np.float32, copy=True)
    return array
