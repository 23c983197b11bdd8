"""Networks in PyTorch give the logits and gradients of the engine; finite differences confirm the gradients."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[torch]'")

import fedeq.torch  # noqa: E402
from fedeq import FedeqError, _native  # noqa: E402
from fedeq._network_file import read  # noqa: E402
from fedeq.torch import network, solve  # noqa: E402
from tests.harness.networks import COLOURS, FEW, PICTURES, Sample, catalog, sample, settings_of, task_of  # noqa: E402
from tests.harness.program import PROGRAM  # noqa: E402
from tests.harness.program import fedeq as program  # noqa: E402

IMPLICIT = {"implicit": {"solver": {"gmres": {"memory": 20}}, "stop": {"relative": 1e-6, "max_steps": 200}}}
Network = fedeq.torch.Network


def logits_of(loaded: Network, given: Sample) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Give what PyTorch says, without gradients."""
    with torch.inference_mode():
        return np.asarray(loaded.eval()(torch.from_numpy(given.x)).numpy())


@pytest.mark.parametrize("name", catalog())
def test_every_network_gives_the_engines_logits(name: str) -> None:
    """To 1e-5, as large as they are."""
    given = sample(settings_of(name, **FEW), task_of(name))
    found, expected = logits_of(fedeq.torch.load(given.file), given), given.logits()
    assert np.abs(expected).max() > 1e-2  # noqa: PLR2004 (zeros would say nothing)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "task"),
    [
        ({"name": "deq-resnet-xs", "cell_norm": "row-wise", "activation": "softplus", "norm": "group"}, PICTURES),
        ({"name": "deq-resnet-s", "pooling": "mean"}, COLOURS),
        ({"name": "resnet-20"}, COLOURS),
        ({"name": "resnet-14", "norm": "group", "activation": "softplus"}, PICTURES),
        ({"name": "deq-mlp", "bias": True, "norm": "group", "hidden": 32}, PICTURES),
        ({"name": "deq-transformer", "layers": 2, "tied": True, "injection": 8.0, "injection_norm": True}, None),
        ({"name": "transformer-4", "personal": "output"}, None),
    ],
    ids=lambda each: "-".join(map(str, each.values())) if each and "name" in each else "",
)
def test_so_do_networks_with_other_settings(settings: dict[str, Any], task: dict[str, Any] | None) -> None:
    """Whatever layer they need."""
    if settings["name"].startswith("deq-"):
        settings = {**settings, "equilibrium": FEW}
    given = sample(settings, task or task_of(settings["name"]))
    # Rows of four pixels are normalised by what is little more than rounding in places.
    close = 1e-4 if settings.get("cell_norm") == "row-wise" else 1e-5
    np.testing.assert_allclose(logits_of(fedeq.torch.load(given.file), given), given.logits(), atol=close, rtol=1e-5)


@pytest.mark.parametrize("name", ["deq-mlp", "deq-resnet-xs", "deq-transformer"])
@pytest.mark.parametrize(
    "solver",
    [
        {"anderson": {}},
        {"anderson": {"memory": 3, "ridge": {"absolute": 1e-4}, "mixing": 0.8, "delay": 2, "restart": 6}},
        {"broyden": {}},
        {"fixed-point": {"damping": 0.2}},
    ],
    ids=["anderson", "anderson-with-settings", "broyden", "damped"],
)
def test_a_solve_takes_the_steps_of_the_engine(name: str, solver: dict[str, Any]) -> None:
    """Stopped early, so that only the same iterates give the same logits."""
    few = {"relative": 0.0, "absolute": 0.0, "max_steps": 7}
    given = sample(settings_of(name, solver=solver, stop=few), task_of(name), samples=20)
    loaded = fedeq.torch.load(given.file)
    np.testing.assert_allclose(logits_of(loaded, given), given.logits(), atol=1e-5, rtol=1e-4)
    assert loaded.last_solve is not None
    assert loaded.last_solve.steps.tolist() == [7] * 20
    assert not loaded.last_solve.converged.any()


def test_with_the_usual_tolerance_nearly_all_samples_stop_where_the_engines_do() -> None:
    """All but those whose residual is within rounding of the tolerance; these differ by what the tolerance allows."""
    given = sample({"name": "deq-resnet-xs"}, PICTURES, samples=100)
    far = np.abs(logits_of(fedeq.torch.load(given.file), given) - given.logits()).max(axis=1)
    assert np.quantile(far, 0.95) < 2e-4  # noqa: PLR2004 (twenty steps that amplify rounding)
    assert far.max() < 1e-2  # noqa: PLR2004


def gradients_of(loaded: Network, given: Sample) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Run a training step's passes in PyTorch, in double precision; give the logits and their gradient."""
    x = torch.from_numpy(given.x)
    logits = loaded.double().train()(x.double() if x.is_floating_point() else x)
    logits.retain_grad()
    flat, targets = logits.reshape(-1, given.classes), torch.from_numpy(given.targets).reshape(-1)
    torch.nn.functional.cross_entropy(flat, targets).backward()
    assert logits.grad is not None
    return logits.detach().numpy(), logits.grad.numpy().astype(np.float32)


def assert_gradients_agree(loaded: Network, given: Sample) -> None:
    """Compare logits in training, gradients and statistics with the engine's.

    PyTorch computes in double precision, so that all of the difference is the engine's rounding, which a normalisation
    over few samples makes larger. It is measured by the gradients of a layer: that of a bias which is normalised away
    is a sum of these, and next to nothing.
    """
    logits, of_logits = gradients_of(loaded, given)
    expected_logits, expected = given.gradients(of_logits)
    np.testing.assert_allclose(logits, expected_logits, atol=3e-4, rtol=1e-4)
    for name, parameter in loaded.named_parameters():
        assert parameter.grad is not None, name
        layer = [gradient for path, gradient in expected.items() if path.rpartition(".")[0] == name.rpartition(".")[0]]
        found, scale = parameter.grad.numpy(), max(np.abs(gradient).max() for gradient in layer)
        np.testing.assert_allclose(found, expected[name], atol=1e-3 * scale + 1e-6, err_msg=name)
    for name, statistic in loaded.named_buffers():
        np.testing.assert_allclose(statistic.numpy(), expected[name], atol=2e-5, rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("name", catalog())
def test_every_network_has_the_engines_gradients(name: str) -> None:
    """Those of equilibrium networks are Jacobian-free, as is usual."""
    given = sample(settings_of(name, **FEW), task_of(name))
    assert_gradients_agree(fedeq.torch.load(given.file), given)


@pytest.mark.parametrize("name", ["deq-mlp", "deq-resnet-xs", "deq-transformer"])
@pytest.mark.parametrize(
    "way",
    [
        IMPLICIT,
        {"implicit": {**IMPLICIT["implicit"], "solver": {"anderson": {"memory": 5}}}},
        {"implicit": {**IMPLICIT["implicit"], "solver": {"broyden": {"memory": 20}}}},
        {"phantom": {"steps": 3, "damping": 0.3}},
    ],
    ids=["gmres", "anderson", "broyden", "phantom"],
)
def test_other_adjoints_give_the_engines_gradients_too(name: str, way: dict[str, Any]) -> None:
    """Implicit by every linear solver, and phantom."""
    given = sample(settings_of(name, **FEW, adjoint=way), task_of(name))
    if name == "deq-resnet-xs":
        given = contracting(given)
    assert_gradients_agree(fedeq.torch.load(given.file), given)


def contracting(given: Sample) -> Sample:
    """Give a network with a residual cell other numbers, for which it contracts.

    With those that it starts with, the solve for the gradient amplifies the engine's rounding.
    """
    file = read(given.file)
    less = {"cell.conv_b.weight": 0.1, "cell.norm_3.scale": 0.3}
    assert less.keys() <= file.arrays.keys(), sorted(file.arrays)
    arrays = {name: np.float32(less.get(name, 1.0)) * array for name, array in file.arrays.items()}
    return replace(given, file=safetensors.numpy.save(arrays, metadata={"fedeq": json.dumps(file.notes)}))


def test_a_step_of_sgd_is_the_engines_step() -> None:
    """Parameters minus rate times gradient, head and shared part alike."""
    given = sample({"name": "resnet-xs"}, PICTURES)
    loaded = fedeq.torch.load(given.file)
    optimiser = torch.optim.SGD(loaded.parameters(), lr=0.1)
    _, of_logits = gradients_of(loaded, given)
    optimiser.step()
    _, gradients = given.gradients(of_logits)
    before = read(given.file).arrays
    for name, parameter in loaded.named_parameters():
        expected = before[name] - 0.1 * gradients[name]
        np.testing.assert_allclose(parameter.detach().numpy(), expected, atol=3e-5, err_msg=name)


def precise_network(name: str, way: object) -> tuple[Network, Callable[[], Any]]:
    """Make a network in double precision with fixed points to 1e-12, and a smooth loss of it."""
    stop = {"relative": 1e-12, "max_steps": 500}
    settings = settings_of(name, stop=stop, adjoint=way)
    if "transformer" not in name:
        settings["activation"] = "softplus"  # Differences across a kink would say nothing.
    given = sample(settings, task_of(name), samples=3)
    loaded = fedeq.torch.load(given.file).double().train()  # A cell contracts on normalised inputs.
    x = torch.from_numpy(given.x)
    x = x.double() if x.is_floating_point() else x
    weights = torch.from_numpy(np.random.default_rng(5).normal(size=(*given.targets.shape, given.classes)))

    def loss() -> Any:  # noqa: ANN401
        return (loaded(x) * weights).sum()

    return loaded, loss


def assert_derivative(loaded: Network, loss: Callable[[], Any]) -> None:
    """Compare the gradient with central differences along a direction that moves every parameter."""
    loaded.zero_grad()
    loss().backward()
    generator = torch.Generator().manual_seed(3)
    ways = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in loaded.parameters()]
    found = sum(float((each.grad * way).sum()) for each, way in zip(loaded.parameters(), ways, strict=True))
    sides, step = [], 1e-6
    for move in (step, -2.0 * step):
        with torch.no_grad():
            for each, way in zip(loaded.parameters(), ways, strict=True):
                each.add_(way, alpha=move)
        sides.append(float(loss().detach()))
        assert loaded.last_solve is not None
        assert bool(loaded.last_solve.converged.all()), loaded.last_solve
    assert found == pytest.approx((sides[0] - sides[1]) / (2.0 * step), rel=1e-5)


# DEQ-Transformer has no fixed point to 1e-12 with these weights; its layers' gradients are compared with the engine's.
@pytest.mark.parametrize("name", ["deq-mlp", "deq-resnet-xs"])
def test_implicit_gradients_are_those_of_finite_differences(name: str) -> None:
    """Of the whole network, solved to 1e-12."""
    way = {"implicit": {"solver": {"gmres": {"memory": 30}}, "stop": {"relative": 1e-11, "max_steps": 300}}}
    assert_derivative(*precise_network(name, way))


@pytest.mark.parametrize("way", ["jacobian-free", {"phantom": {"steps": 4, "damping": 0.2}}], ids=["one", "phantom"])
@pytest.mark.parametrize("name", ["deq-mlp", "deq-resnet-xs"])
def test_other_gradients_are_those_with_the_fixed_point_held(
    name: str, way: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what the cell makes of a state that does not move: once, or some steps for phantom gradients."""
    loaded, loss = precise_network(name, way)
    held: list[solve.Solution] = []

    def solve_once(*arguments: Any) -> solve.Solution:  # noqa: ANN401
        held.append(held[0] if held else solve.solve(*arguments))
        return held[0]

    monkeypatch.setattr(network, "solve", solve_once)
    assert_derivative(loaded, loss)


def test_a_network_is_an_ordinary_module(tmp_path: Path) -> None:
    """It is copied, saved, loaded, and its state has the names of the file."""
    given = sample({"name": "deq-resnet-xs"}, PICTURES)
    loaded = fedeq.torch.load(given.file)
    assert set(loaded.state_dict()) == set(read(given.file).arrays)
    assert loaded.personal == ("head.weight", "head.bias")
    loaded.save(tmp_path / "again.safetensors")
    for other in (copy.deepcopy(loaded), fedeq.torch.load(tmp_path / "again.safetensors")):
        np.testing.assert_array_equal(logits_of(other, given), logits_of(loaded, given))
    assert loaded.equilibrium is not None
    loaded.equilibrium["solver"] = {"bisection": {}}
    with pytest.raises(FedeqError, match="no solver `bisection`"):
        loaded(torch.from_numpy(given.x))


def test_gradients_of_inputs_pass_too() -> None:
    """Also through an implicit adjoint, with parameters that are frozen."""
    given = sample(settings_of("deq-mlp", **FEW, adjoint=IMPLICIT), task_of("deq-mlp"))
    loaded = fedeq.torch.load(given.file).requires_grad_(requires_grad=False)
    x = torch.from_numpy(given.x).requires_grad_()
    loaded(x).sum().backward()
    assert x.grad is not None
    assert float(x.grad.abs().max()) > 0.0


def test_dropout_is_drawn_in_training_alone() -> None:
    """From PyTorch's generator."""
    given = sample({"name": "transformer-4", "dropout": 0.3}, task_of("transformer-4"))
    loaded = fedeq.torch.load(given.file)
    np.testing.assert_allclose(logits_of(loaded, given), given.logits(), atol=1e-5, rtol=1e-5)
    x = torch.from_numpy(given.x)
    first, second = (loaded.train()(x).detach() for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    first = loaded(x).detach()
    torch.manual_seed(1)
    assert torch.equal(first, loaded(x).detach())


@pytest.mark.parametrize(
    ("name", "x", "message"),
    [
        ("mlp", torch.zeros(2, 7), r"shape `\[2, 7\]`.*\n.*\[B, 6\]"),
        ("mlp", torch.zeros(2, 6, dtype=torch.int64), "`torch.int64`"),
        ("resnet-xs", torch.zeros(2, 1, 9, 8), r"\[B, 9, 8, 1\]"),
        ("transformer-4", torch.zeros(2, 5), "`torch.float32`"),
        ("transformer-4", torch.zeros(2, 13, dtype=torch.int64), "1 to 12"),
        ("transformer-4", torch.full((2, 5), 20), "not below 20"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(name: str, x: Any, message: str) -> None:  # noqa: ANN401
    """By name."""
    with pytest.raises(FedeqError, match=message):
        fedeq.torch.create(name, task_of(name))(x)


def test_files_that_hold_no_network_are_refused(tmp_path: Path) -> None:
    """Whatever is wrong with them."""
    given = sample({"name": "mlp"}, task_of("mlp"))
    file = read(given.file)
    arrays = {name: array for name, array in file.arrays.items() if name != "head.bias"}
    for content, message in [
        (b"nothing", "cannot be read"),
        (safetensors.numpy.save(file.arrays), "does not say which network"),
        (safetensors.numpy.save(arrays, metadata={"fedeq": json.dumps(file.notes)}), "`head.bias` is missing"),
    ]:
        path = tmp_path / "model.safetensors"
        path.write_bytes(content)
        with pytest.raises(FedeqError, match=message):
            fedeq.torch.load(path)


def test_a_network_that_cannot_be_made_or_written_is_refused_by_name(tmp_path: Path) -> None:
    """With a hint, as everything else is."""
    task = task_of("mlp")
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((3, task), "`model` is of the type `int`"),
        (({"name": "mlp", "hidden": [np.int64(3)]}, task), "`model` has what no file can"),
        (("mlp", 3), "`task` is of the type `int`"),
        (("mlp", task, -1), "`seed` is `-1`"),
    ]
    for given, words in wrong:
        with pytest.raises(fedeq.Refused, match=rf"{words}.*\nhint: ."):
            fedeq.torch.create(*given)
    with pytest.raises(fedeq.Refused, match=r"cannot write to it: .*\nhint: check that"):
        fedeq.torch.create("mlp", task).save(tmp_path / "nowhere" / "mlp.safetensors")


def test_a_client_of_a_run_trains_on_in_pytorch(tmp_path: Path) -> None:
    """From where the run ended, on the client's own samples: the loss falls from what the engine left."""
    run = fedeq.run(method="fedeq", data="digits", rounds=3, out=tmp_path / "run", progress=False)
    client = run.client("client-03")
    pixels, classes = client.data()["train"]
    loaded = fedeq.torch.load(run, "client-03")
    x, y = loaded.prepare(pixels), torch.from_numpy(classes.astype(np.int64))
    np.testing.assert_allclose(loaded(x).detach().numpy(), client.logits(pixels), atol=1e-4, rtol=1e-4)
    optimiser = torch.optim.SGD(loaded.parameters(), lr=0.05)
    losses = []
    for _ in range(10):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(loaded.train()(x), y)
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0], losses


@pytest.mark.parametrize("model", ["resnet-xs", {"name": "deq-resnet-xs", "equilibrium": FEW}], ids=["explicit", "deq"])
def test_a_trained_client_has_the_engines_logits(model: Any, tmp_path: Path) -> None:  # noqa: ANN401
    """To 1e-5 of the largest, for an equilibrium after the same number of steps."""
    run = fedeq.run(method="fedrep", model=model, data="digits", rounds=5, out=tmp_path / "run", progress=False)
    for name in run.clients["name"][:5]:
        client, loaded = run.client(name), fedeq.torch.load(run, name)
        pixels = np.concatenate([x for x, _ in client.data().values()])
        with torch.inference_mode():
            found = loaded(loaded.prepare(pixels)).numpy()
        expected = client.logits(pixels)
        # A logit near zero is what is left of sums as large as the others.
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
        if loaded.last_solve is not None:
            assert set(loaded.last_solve.steps.tolist()) == {FEW["stop"]["max_steps"]}


# In single precision a residual of 1e-6 leaves a cell that hardly contracts more room than 1e-5.
@pytest.mark.parametrize(("model", "close"), [("deq-mlp", 1e-5), ("deq-resnet-xs", 1e-4)])
def test_a_trained_equilibrium_has_the_engines_logits_where_it_is_found(
    model: str, close: float, tmp_path: Path
) -> None:
    """By whatever steps: where a solve ends at a fixed point, both end at the same one."""
    run = fedeq.run(method="fedrep", model=model, data="digits", rounds=3, out=tmp_path / "run", progress=False)
    stop = {"relative": 1e-6, "absolute": 0.0, "max_steps": 200}
    settings = run.config["model"]
    tight = {**settings, "equilibrium": {**settings["equilibrium"], "stop": stop}}
    found, expected, converged = [], [], []
    for name in run.clients["name"][:3]:
        loaded, content = fedeq.torch.load(run, name), _native.client_file(run.folder, name)
        assert loaded.equilibrium is not None
        loaded.equilibrium["stop"] = stop
        pixels, _ = run.client(name).data()["test"]
        x, task = loaded.prepare(pixels).numpy(), loaded.graph["task"]
        engine = _native.Engine(json.dumps(tight), json.dumps(task))
        given = Sample(engine, content, x, np.zeros(len(x), np.int64), task["classes"])
        found.append(logits_of(loaded, given))
        expected.append(given.logits())
        assert loaded.last_solve is not None
        converged.append(loaded.last_solve.converged.numpy())
    reached = np.concatenate(converged)
    assert reached.mean() > 0.5, "there is something to compare"  # noqa: PLR2004
    ours, theirs = np.concatenate(found)[reached], np.concatenate(expected)[reached]
    np.testing.assert_allclose(ours, theirs, atol=close, rtol=1e-5)


@pytest.mark.skipif(not PROGRAM.exists(), reason="needs the program `fedeq`: build it, or name it with FEDEQ_PROGRAM")
def test_a_client_of_a_run_predicts_in_pytorch_what_it_predicts_in_the_engine(tmp_path: Path) -> None:
    """From the run folder, the folder of an export and a file."""
    run, models = tmp_path / "run", tmp_path / "models"
    program("run", "--set=model=deq-resnet-xs", "--set=plan.rounds=20", "--out", run)
    program("export", run, "--out", models)
    # On what it was trained for, its cell has a fixed point that all solves reach.
    pixels = fedeq.Run(run).client("client-01").data()["test"][0].reshape(-1, 64)
    rows = [",".join(f"p{at}" for at in range(64)), *(",".join(map(str, row)) for row in pixels)]
    (tmp_path / "pixels.csv").write_text("\n".join(rows) + "\n")
    said = program("predict", run, "--client", "client-01", "--input", tmp_path / "pixels.csv", "--json")
    expected = np.array([json.loads(line)["probabilities"] for line in said.splitlines()])
    exported = json.loads((models / "export.json").read_text())
    assert exported["clients"][1]["name"] == "client-01"
    for source, client in [(run, "client-01"), (models, "client-01"), (models / exported["clients"][1]["file"], None)]:
        loaded = fedeq.torch.load(source, client)
        with torch.inference_mode():
            found = torch.softmax(loaded.eval()(loaded.prepare(pixels.reshape(-1, 8, 8, 1))), dim=1)
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)
    with pytest.raises(FedeqError, match="none was named"):
        fedeq.torch.load(models)
    with pytest.raises(FedeqError, match="no client `client-99`"):
        fedeq.torch.load(models, "client-99")
    with pytest.raises(FedeqError, match="not of `client-02`"):
        fedeq.torch.load(models / exported["clients"][1]["file"], "client-02")
