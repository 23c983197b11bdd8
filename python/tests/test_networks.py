"""Networks of Python in runs of fedeq, against federated averaging by hand."""

import importlib.util
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import fedeq
from fedeq.networks import Arrays, Inputs, Network, Targets, TorchNetwork
from tests.harness.methods import methods
from tests.small_networks import CLASSES, Convolutional, cross_entropy

Floats = NDArray[np.float32]
Model = dict[str, NDArray[np.float64]]

CLIENTS = 4
WHITE = 16
"""Of these digits; that of photographs is 255."""

# All clients take part, each with one batch that holds all it has.
ALL = (
    "method=fedavg",
    "data=digits",
    f"data.partition={{ rule = 'iid', clients = {CLIENTS} }}",
    "data.limit.train=40",
    "plan.rounds=2",
    "plan.sampling.fraction=1",
    "training.epochs=3",
    "training.batch_size=1000",
    "training.learning_rate=0.1",
    "engine.checkpoint_every=1",
)


def run(network: Network, out: Path, *settings: str) -> Any:  # noqa: ANN401 - JSON
    """Run a small federation with a network."""
    given = dict(setting.split("=", 1) for setting in (*ALL, *settings))
    values = {key: _value(text) for key, text in given.items()}
    return fedeq.run(network=network, settings=values, out=out, progress=False).summary


def _value(text: str) -> Any:  # noqa: ANN401 - TOML
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def clients(folder: Path) -> list[str]:
    """Give the names of a run's clients."""
    return [client["name"] for client in json.loads((folder / "clients.json").read_text())["clients"]]


def state_dict(folder: Path, client: str) -> dict[str, Floats]:
    """Give the parameters of a client of a finished run."""
    return fedeq.open(folder).client(client).state_dict()


def ordered(x: Inputs) -> NDArray[np.int64]:
    """Give an order of samples that depends on nothing but what they are."""
    return np.lexsort(x.reshape(len(x), -1).T)


class Recorder:
    """A network that notes which batches it was trained on. Each client has one, in another order in every epoch."""

    def __init__(self, network: Network) -> None:
        """Stand in front of a network, with features or without."""
        self.wrapped = network
        self.features = getattr(network, "features", None)
        self.features_and_pullback = getattr(network, "features_and_pullback", None)
        self.batches: dict[bytes, tuple[Inputs, Targets]] = {}
        self.name = "recorder"

    def parameters(self) -> Arrays:
        """Give those of the network."""
        return self.wrapped.parameters()

    def loss_and_gradient(self, parameters: Arrays, x: Inputs, y: Targets) -> tuple[float, Arrays]:
        """Note the batch, whatever its order."""
        order = ordered(x)
        self.batches[x[order].tobytes()] = (x[order], y[order])
        return self.wrapped.loss_and_gradient(parameters, x, y)

    def logits(self, parameters: Arrays, x: Inputs) -> Floats:
        """Ask the network."""
        return self.wrapped.logits(parameters, x)


def averaged(recorder: Recorder, rounds: int, epochs: int, rate: float) -> dict[str, NDArray[np.float64]]:
    """Federated averaging as McMahan et al. wrote it down, in double precision."""
    theta: dict[str, Any] = {name: array.astype(float) for name, array in recorder.wrapped.parameters().items()}
    for _ in range(rounds):
        models, samples = [], []
        for x, y in recorder.batches.values():
            model = dict(theta)
            for _ in range(epochs):
                single = {name: array.astype(np.float32) for name, array in model.items()}
                _, gradient = recorder.wrapped.loss_and_gradient(single, x, y)
                model = {name: array - rate * gradient[name] for name, array in model.items()}
            models.append(model)
            samples.append(len(y))
        shares = np.array(samples) / sum(samples)
        theta = {name: sum(share * model[name] for share, model in zip(shares, models, strict=True)) for name in theta}
    return theta


def assert_close(found: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> None:
    """Compare weights number by number."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=1e-5, err_msg=name)


def test_two_rounds_end_where_federated_averaging_by_hand_does(tmp_path: Path) -> None:
    """Everything around the network is as the paper has it."""
    recorder = Recorder(Convolutional())
    summary = run(recorder, tmp_path / "run")
    assert len(recorder.batches) == CLIENTS
    expected = averaged(recorder, rounds=2, epochs=3, rate=0.1)
    little = 0.01
    moved = max(np.abs(expected[name] - first).max() for name, first in recorder.parameters().items())
    assert moved > little, "it has learned something"
    assert_close(state_dict(tmp_path / "run", clients(tmp_path / "run")[0]), expected)
    assert (summary["model"], summary["computed_by"]) == ("external:recorder", "Python")


def test_a_module_of_pytorch_ends_where_federated_averaging_by_hand_does(tmp_path: Path) -> None:
    """So it is with PyTorch's gradients, against PyTorch's optimiser."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    conv, last = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(4 * 36, CLASSES)
    module = torch.nn.Sequential(conv, torch.nn.ReLU(), torch.nn.Flatten(), last)
    recorder = Recorder(TorchNetwork(module))
    run(recorder, tmp_path / "run")
    # By hand once more, and by PyTorch's own optimiser.
    theta: dict[str, Any] = {name: value.detach().clone() for name, value in module.named_parameters()}
    for _ in range(2):
        states, samples = [], []
        for x, y in recorder.batches.values():
            module.load_state_dict(theta)
            optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
            for _ in range(3):
                optimiser.zero_grad()
                pictures = torch.from_numpy(x).permute(0, 3, 1, 2)
                torch.nn.functional.cross_entropy(module(pictures), torch.from_numpy(y)).backward()
                optimiser.step()
            states.append({name: value.detach().clone() for name, value in module.state_dict().items()})
            samples.append(len(y))
        total = sum(samples)
        theta = {name: sum(n / total * s[name] for n, s in zip(samples, states, strict=True)) for name in theta}
    expected = {name: value.numpy() for name, value in theta.items()}
    assert_close(state_dict(tmp_path / "run", clients(tmp_path / "run")[0]), expected)


def test_dropout_is_drawn_from_the_seed_and_moving_buffers_are_refused(tmp_path: Path) -> None:
    """A module holds no state that a run would not know of."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(0.5), torch.nn.Linear(64, CLASSES))
    network = TorchNetwork(module, personal=["2"], features="2")
    for name, workers in [("one", 1), ("more", 3)]:
        run(network, tmp_path / name, "method=fedper", f"engine.workers={workers}")
    assert journals(tmp_path / "one") == journals(tmp_path / "more")
    assert run(network, tmp_path / "neighbours", "method=knn-per")["evaluation"]["local"]["mean"] > 0.0
    for name, workers in [("contrasted", 1), ("again", 3)]:
        run(network, tmp_path / name, "method=moon", f"engine.workers={workers}")
    assert journals(tmp_path / "contrasted") == journals(tmp_path / "again")
    normalised = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, CLASSES))
    with pytest.raises(fedeq.FedeqError, match=r"the buffer `1.running_mean` changes"):
        run(TorchNetwork(normalised), tmp_path / "refused")


def test_features_of_a_module_are_drawn_and_pulled_back_as_its_loss_is() -> None:
    """By the seed; against PyTorch's own gradient through the whole module."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    body, last = torch.nn.Linear(64, 6), torch.nn.Linear(6, CLASSES)
    module = torch.nn.Sequential(torch.nn.Flatten(), body, torch.nn.Tanh(), torch.nn.Dropout(0.5), last)
    network, x = TorchNetwork(module, features="4"), np.random.default_rng(0).random((5, 8, 8, 1), np.float32)
    parameters, of_z = network.parameters(), np.random.default_rng(1).random((5, 6), np.float32)
    (z, pullback), (same, _), (other, _) = (network.features_and_pullback(parameters, x, seed) for seed in (7, 7, 8))
    assert np.array_equal(z, same)
    assert not np.array_equal(z, other)
    assert np.array_equal(network.features_and_pullback(parameters, x)[0], network.features(parameters, x))
    torch.manual_seed(7)
    seen = module.train()[:4](torch.from_numpy(x).permute(0, 3, 1, 2))
    (seen * torch.from_numpy(of_z)).sum().backward()
    nothing = {name: np.zeros_like(array) for name, array in parameters.items()}
    assert_close(pullback(of_z), {**nothing, "1.weight": body.weight.grad.numpy(), "1.bias": body.bias.grad.numpy()})
    assert not any(
        array.any()
        for array in TorchNetwork(module, features="1")
        .features_and_pullback(parameters, x)[1](x.reshape(5, -1))
        .values()
    )


def journals(folder: Path) -> list[bytes]:
    """Give what is the same for the same experiment."""
    return [(folder / name).read_bytes() for name in ("rounds.jsonl", "evaluations.jsonl", "metrics.csv")]


class Featured(Convolutional):
    """Says by what neighbours are found."""

    def features(self, parameters: Arrays, x: Inputs) -> Floats:
        """Give what stands for a sample."""
        return self.logits(parameters, x)


class Normalised(Convolutional):
    """Calls the bias of its kernels what normalisations are called."""

    def parameters(self) -> dict[str, Floats]:
        """Give the first values."""
        return renamed(super().parameters(), "conv.bias", "norm.bias")

    def loss_and_gradient(self, parameters: Arrays, x: Inputs, y: Targets) -> tuple[float, dict[str, Floats]]:
        """Go forward and back."""
        loss, gradient = super().loss_and_gradient(renamed(parameters, "norm.bias", "conv.bias"), x, y)
        return loss, renamed(gradient, "conv.bias", "norm.bias")

    def logits(self, parameters: Arrays, x: Inputs) -> Floats:
        """Go forward."""
        return super().logits(renamed(parameters, "norm.bias", "conv.bias"), x)


def renamed(arrays: Arrays, old: str, new: str) -> dict[str, Floats]:
    """Give one of the arrays another name."""
    return {new if name == old else name: array for name, array in arrays.items()}


class Pulled(Featured):
    """Offers the gradient of its features, which are its logits."""

    def features_and_pullback(self, parameters: Arrays, x: Inputs) -> tuple[Floats, Callable[[Floats], Arrays]]:
        """Go forward, and say how to go back."""
        windows, before = self._hidden(parameters, x)

        def pullback(of_features: Floats) -> dict[str, Floats]:
            return self._pulled_back(parameters, windows, before, of_features.astype(float))

        return self.features(parameters, x), pullback


# What methods ask of a network.
NEEDS = {"knn-per": Featured, "fedbn": Normalised, "moon": Pulled}


@pytest.mark.parametrize("method", methods())
def test_any_method_gives_the_same_bytes_for_any_number_of_workers(tmp_path: Path, method: str) -> None:
    """Calls come in any order, and results do not depend on it."""
    settings = (f"method={method}", "training.learning_rate=0.02", "training.batch_size=20")
    network = NEEDS.get(method, Convolutional)(personal=("head",))
    for name, workers in [("one", 1), ("more", 4)]:
        run(network, tmp_path / name, *settings, f"engine.workers={workers}")
    assert journals(tmp_path / "one") == journals(tmp_path / "more")
    assert json.loads((tmp_path / "one" / "summary.json").read_text())["computed_by"] == "Python"


class Narrow:
    """`logits = V tanh(W x)`, whose features are what the last layer is given."""

    name = "narrow"
    width = 2

    def parameters(self) -> dict[str, Floats]:
        """Draw the first values."""
        draw = np.random.default_rng(0)
        shapes = {"body": (64, self.width), "last": (self.width, CLASSES)}
        return {name: draw.standard_normal(shape).astype(np.float32) / np.float32(4) for name, shape in shapes.items()}

    def features(self, parameters: Arrays, x: Inputs) -> Floats:
        """Go forward to the last layer."""
        return np.asarray(np.tanh(x.reshape(len(x), -1) @ parameters["body"]), np.float32)

    def logits(self, parameters: Arrays, x: Inputs) -> Floats:
        """Go forward."""
        return self.features(parameters, x) @ parameters["last"]

    def features_and_pullback(self, parameters: Arrays, x: Inputs) -> tuple[Floats, Callable[[Floats], Arrays]]:
        """Go forward to the last layer, and say how to go back."""
        z = self.features(parameters, x)

        def pullback(of_z: Floats) -> dict[str, Floats]:
            body = x.reshape(len(x), -1).T @ (of_z * (1 - z * z))
            return {"body": np.asarray(body, np.float32), "last": np.zeros_like(parameters["last"])}

        return z, pullback

    def loss_and_gradient(self, parameters: Arrays, x: Inputs, y: Targets) -> tuple[float, dict[str, Floats]]:
        """Go forward and back."""
        z, pullback = self.features_and_pullback(parameters, x)
        loss, slope = cross_entropy((z @ parameters["last"]).astype(float), y)
        gradient = pullback(np.asarray(slope @ parameters["last"].T, np.float32))
        return loss, {**gradient, "last": np.asarray(z.T @ slope, np.float32)}


def slopes(objective: Callable[[Model], float], model: Model, step: float = 1e-5) -> Model:
    """Differentiate by central differences, number by number."""
    found = {name: np.zeros_like(array) for name, array in model.items()}
    for name, array in model.items():
        for place in np.ndindex(array.shape):
            sides = []
            for way in (step, -step):
                moved = array.copy()
                moved[place] += way
                sides.append(objective({**model, name: moved}))
            found[name][place] = (sides[0] - sides[1]) / (2 * step)
    return found


def moons_objective(x: Inputs, y: Targets, fixed: tuple[Model, Model]) -> Callable[[Model], float]:
    """Write down what MOON's paper minimises: features are near the global model's, and far from the client's last."""

    def objective(model: Model) -> float:
        z, near, far = (np.tanh(x.reshape(len(x), -1).astype(float) @ one["body"]) for one in (model, *fixed))
        supervised, _ = cross_entropy(z @ model["last"], y)
        towards, away = (np.exp(_cosines(z, other) / TEMPERATURE) for other in (near, far))
        return supervised - WEIGHT * float(np.log(towards / (towards + away)).mean())

    return objective


def _cosines(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    lengths = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return np.asarray((one * other).sum(axis=1) / lengths, np.float64)


# Of MOON.
WEIGHT, TEMPERATURE = 2.0, 0.5


def test_two_rounds_end_where_moon_by_hand_does(tmp_path: Path) -> None:
    """With gradients by finite differences, in double precision: that of the features is what the paper's is."""
    recorder = Recorder(Narrow())
    run(recorder, tmp_path / "run", "method=moon", f"method.weight={WEIGHT}", f"method.temperature={TEMPERATURE}")
    start: Model = {name: array.astype(float) for name, array in recorder.parameters().items()}
    theta, own = start, dict.fromkeys(recorder.batches, start)
    for _ in range(2):
        for key, (x, y) in recorder.batches.items():
            objective, model = moons_objective(x, y, (theta, own[key])), dict(theta)
            for _ in range(3):
                gradient = slopes(objective, model)
                model = {name: array - 0.1 * gradient[name] for name, array in model.items()}
            own[key] = model
        samples = np.array([len(y) for _, y in recorder.batches.values()])
        shares = samples / samples.sum()
        models = list(zip(shares, own.values(), strict=True))
        theta = {name: np.sum([share * model[name] for share, model in models], axis=0) for name in start}
    assert_close(state_dict(tmp_path / "run", clients(tmp_path / "run")[0]), theta)
    run(recorder, tmp_path / "average")
    average, little = state_dict(tmp_path / "average", clients(tmp_path / "average")[0]), 1e-3
    assert np.abs(average["body"] - theta["body"]).max() > little, "the term moves something"


def test_what_is_personal_differs_from_client_to_client_and_what_is_shared_does_not(tmp_path: Path) -> None:
    """Names say nothing of whose a parameter is; `personal` does."""
    run(Convolutional(personal=("conv",)), tmp_path / "run", "method=fedper")
    first, second = (state_dict(tmp_path / "run", name) for name in clients(tmp_path / "run")[:2])
    assert np.abs(first["conv.weight"] - second["conv.weight"]).max() > 0
    run(Convolutional(), tmp_path / "average")
    first, second = (state_dict(tmp_path / "average", name) for name in clients(tmp_path / "average")[:2])
    assert all(np.array_equal(first[name], second[name]) for name in first), "`head` is shared unless it is personal"


def test_a_client_is_asked_through_its_network(tmp_path: Path) -> None:
    """Fedeq refuses, since only Python can compute; parameters and samples are those that it was evaluated by."""
    network = Convolutional(personal=("head",))
    run(network, tmp_path / "run", "method=fedper", "plan.rounds=3")
    row = fedeq.open(tmp_path / "run").clients[1]
    client = fedeq.open(tmp_path / "run").client(row["name"])
    pixels, classes = client.data()["test"]
    for ask in (client.predict, client.logits):
        with pytest.raises(fedeq.FedeqError, match="the network `small-cnn` is computed outside of fedeq"):
            ask(pixels)
    found = network.logits(client.state_dict(), (pixels / WHITE).astype(np.float32)).argmax(axis=1)
    assert (found == classes).mean() == pytest.approx(row["local_accuracy"])


def test_a_text_as_personal_is_one_name(tmp_path: Path) -> None:
    """And not its letters."""
    for name, personal in [("text", "head"), ("list", ["head"])]:
        run(Convolutional(personal=personal), tmp_path / name, "method=fedper")
    assert journals(tmp_path / "text") == journals(tmp_path / "list")


def test_a_module_of_pytorch_that_does_not_fit_is_refused_by_name() -> None:
    """Before any run."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, CLASSES))
    assert TorchNetwork(module, personal="1").personal == ["1"]
    refused: list[tuple[Any, dict[str, Any], str]] = [
        (3, {}, "`module` is of the type `int`"),
        (module, {"personal": 3}, "`personal` is `3`"),
        (module, {"name": 3}, "`name` is of the type `int`"),
        (module, {"features": "2"}, "`features` is `2`, and no submodule is called so"),
        (torch.nn.Flatten(), {}, "no parameters that are trained"),
        (torch.nn.Linear(64, CLASSES).requires_grad_(requires_grad=False), {}, "no parameters that are trained"),
        (torch.nn.Linear(64, CLASSES).double(), {}, "the parameter `weight` is `torch.float64`"),
    ]
    for given, more, words in refused:
        with pytest.raises(fedeq.Refused, match=words):
            TorchNetwork(given, **more)


class Broken(Convolutional):
    """Raises at its n-th batch."""

    def __init__(self, good: int) -> None:
        """Be good for so many batches."""
        super().__init__()
        self.good = good

    def loss_and_gradient(self, parameters: Arrays, x: Inputs, y: Targets) -> tuple[float, dict[str, Floats]]:
        """Raise when the time has come."""
        self.good -= 1
        if self.good < 0:
            message = "out of luck"
            raise ZeroDivisionError(message)
        return super().loss_and_gradient(parameters, x, y)


def test_an_exception_names_its_client_and_leaves_a_run_that_continues(tmp_path: Path) -> None:
    """What is over is kept, and what follows is what would have followed."""
    run(Convolutional(), tmp_path / "whole")
    one_round = 4 * 3
    with pytest.raises(ZeroDivisionError, match="out of luck") as raised:
        run(Broken(one_round + 2), tmp_path / "halted")
    assert re.search(r"fedeq: client `.+`, in `loss_and_gradient` of the network", "".join(raised.value.__notes__))
    assert json.loads((tmp_path / "halted" / "status.json").read_text())["state"] == "failed"
    # Another start is of no consequence: the run has its own.
    fedeq.resume(tmp_path / "halted", network=Convolutional(seed=7), progress=False)
    assert journals(tmp_path / "halted") == journals(tmp_path / "whole")


def test_a_run_is_not_continued_with_another_network(tmp_path: Path) -> None:
    """A run is continued with the network that it began with."""
    with pytest.raises(ZeroDivisionError):
        run(Broken(14), tmp_path / "run")
    other = Convolutional()
    other.name = "other"
    with pytest.raises(fedeq.FedeqError, match="the network is called `other`, and that of the run `small-cnn`"):
        fedeq.resume(tmp_path / "run", network=other, progress=False)
    with pytest.raises(fedeq.FedeqError, match=r"the parameter `conv.bias`"):
        fedeq.resume(tmp_path / "run", network=Convolutional(personal=("conv",)), progress=False)


class Gives(Convolutional):
    """Gives something else than it should."""

    def __init__(self, loss: object = None, gradient: object = None, logits: object = None) -> None:
        """Say what it gives in place of what is right."""
        super().__init__()
        self.given = (loss, gradient, logits)

    def loss_and_gradient(self, parameters: Arrays, x: Inputs, y: Targets) -> Any:  # noqa: ANN401 - that is the point
        """Give something else."""
        right = super().loss_and_gradient(parameters, x, y)
        return tuple(given if given is not None else good for given, good in zip(self.given[:2], right, strict=True))

    def logits(self, parameters: Arrays, x: Inputs) -> Any:  # noqa: ANN401 - that is the point
        """Give something else."""
        return self.given[2] if self.given[2] is not None else super().logits(parameters, x)


GOOD = Convolutional().parameters()


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Gives(loss="much"), "client `.+`: the loss is no number"),
        (Gives(loss=float("nan")), "client `.+`: the training loss is `NaN`"),
        (Gives(gradient=[1.0]), "client `.+`: the gradient is no mapping from names to arrays"),
        (Gives(gradient={}), "client `.+`: the gradient lacks `conv.bias`"),
        (Gives(gradient=GOOD | {"fc": GOOD["conv.bias"]}), "client `.+`: the gradient has `fc`, which is no parameter"),
        (
            Gives(gradient=GOOD | {"conv.bias": np.zeros(5, np.float32)}),
            r"the gradient of `conv.bias` has the shape `\[5\]`",
        ),
        (Gives(gradient=GOOD | {"conv.bias": np.zeros(4)}), "the gradient, `conv.bias` is `float64`"),
        (Gives(gradient=GOOD | {"conv.bias": np.full(4, np.inf, np.float32)}), "the gradient .* is not finite"),
        (
            Gives(logits=np.zeros((3, CLASSES), np.float32)),
            r"client `.+`: `logits` gave an array of the shape `\[3, 10\]`",
        ),
        (Gives(logits=[0.0]), "client `.+`: what `logits` gave is `list`"),
        (Convolutional(personal=3), "`personal` is `3` of the type `int`"),  # type: ignore[arg-type]
        (Convolutional(personal=(3,)), "`personal` is"),  # type: ignore[arg-type]
        (Convolutional(personal="fc"), "`personal` names `fc`, and no parameter is called so"),
        (Convolutional(personal=("fc",)), "`personal` names `fc`, and no parameter is called so"),
        (object(), "`object` is no network: it has no `parameters`"),
    ],
)
def test_what_a_network_should_not_give_is_refused_by_name(tmp_path: Path, network: Any, words: str) -> None:  # noqa: ANN401 - that is the point
    """What comes back is checked before it is used."""
    with pytest.raises(fedeq.FedeqError, match=words) as refused:
        run(network, tmp_path / "run")
    assert "\nhint: " in str(refused.value)


class PullsBack(Pulled):
    """Gives something else than features and a function."""

    def __init__(self, given: object) -> None:
        """Say what it gives."""
        super().__init__()
        self.given = given

    def features_and_pullback(self, parameters: Arrays, x: Inputs) -> Any:  # noqa: ANN401 - that is the point
        """Give something else, the features as they are where there is None."""
        if not isinstance(self.given, tuple):
            return self.given
        features, pullback = self.given
        return (self.features(parameters, x) if features is None else features), pullback


def _raises(of_features: Floats) -> Arrays:
    message = f"no way back from {of_features.shape[1]} numbers"
    raise ArithmeticError(message)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (None, "client `.+`: `features_and_pullback` gave no pair"),
        ((None, 3), "client `.+`: the second that `features_and_pullback` gave cannot be called"),
        ((np.zeros((3, 2), np.float32), dict), r"`features_and_pullback` gave an array of the shape `\[3, 2\]`"),
        ((np.zeros((40, 2), np.float32), dict), "client `.+`: the network gave `2` features, and other numbers before"),
        ((None, lambda _: {}), "client `.+`: the gradient lacks `conv.bias`"),
    ],
)
def test_what_features_should_not_be_is_refused_by_name(tmp_path: Path, given: object, words: str) -> None:
    """Whatever comes back."""
    with pytest.raises(fedeq.FedeqError, match=words) as refused:
        run(PullsBack(given), tmp_path / "run", "method=moon")
    assert "\nhint: " in str(refused.value)


def test_an_exception_on_the_way_back_names_its_client(tmp_path: Path) -> None:
    """Like every other of a network."""
    with pytest.raises(ArithmeticError, match="no way back from 10 numbers") as raised:
        run(PullsBack((None, _raises)), tmp_path / "run", "method=moon")
    assert re.search(r"client `.+`, in `features_and_pullback` of the network", "".join(raised.value.__notes__))


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("model=linear", "`model` does not go with a network of your own"),
        ("engine.device=cuda", "`engine.device = cuda` does not go with the network `small-cnn`"),
        ("method=fedbn", "`method = fedbn` keeps normalisations with clients, and no parameter"),
        ("method=knn-per", "`method = knn-per` needs features, and the network `small-cnn` offers none"),
        ("method=moon", "`method = moon` trains on features, and the network `small-cnn` offers no gradient of them"),
        ("training.warm_start=previous-batch", "`training.warm_start` does not go with"),
    ],
)
def test_what_needs_a_network_of_fedeq_is_refused_by_name(tmp_path: Path, setting: str, words: str) -> None:
    """Nothing is left behind of what is refused."""
    with pytest.raises(fedeq.FedeqError, match=words):
        run(Convolutional(), tmp_path / "run", setting)
    assert not (tmp_path / "run").exists()


def test_a_parameter_may_be_a_single_number(tmp_path: Path) -> None:
    """An array without axes is an array."""

    class Scaled(Convolutional):
        """Has a factor on its logits, which is not trained by hand but stays."""

        def parameters(self) -> dict[str, Floats]:
            return {**super().parameters(), "scale": np.ones((), np.float32)}

        def loss_and_gradient(self, parameters: Arrays, x: Inputs, y: Targets) -> tuple[float, dict[str, Floats]]:
            loss, gradient = super().loss_and_gradient(parameters, x, y)
            return loss, {**gradient, "scale": np.zeros_like(parameters["scale"])}

    run(Scaled(), tmp_path / "run")
    assert state_dict(tmp_path / "run", clients(tmp_path / "run")[0])["scale"] == 1.0


PAGE = Path(__file__).parents[2] / "docs" / "own-network.md"


def test_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its code is run from top to bottom; what needs PyTorch only where it is installed."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python( torch)?\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert [needs for needs, _ in blocks] == ["", " torch", "", ""]
    scope: dict[str, Any] = {}
    for needs, code in blocks:
        if not needs or importlib.util.find_spec("torch"):
            exec(compile(code, str(PAGE), "exec"), scope)  # noqa: S102 - it is our own page
    assert (tmp_path / "runs" / "softmax" / "summary.json").is_file()
