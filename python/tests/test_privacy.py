"""Differential privacy over a real SuperLink.

A simulation draws its noise from the experiment's seed, which every node of a federation knows and could subtract. So
a federation draws it from secrets, and no simulation has the same bytes. What is compared instead: the account, and
the noise, as the difference to a federation that clips alike and adds none.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import FederationFactory
from tests.harness.compare import assert_finished, lines
from tests.harness.fake import theta_of
from tests.harness.processes import until
from tests.harness.program import TIMEOUT, fedeq
from tests.harness.settings import SMALL

pytestmark = [pytest.mark.federation, pytest.mark.hostile]

FEDREP = ("method=fedrep", "method.weighting=uniform", "model=mlp", "plan.sampling.fraction=1")
ONE_ROUND = (*FEDREP, "plan.rounds=1")
CLIPPED = "plan.aggregation.clip.fixed=0.1"
PRIVATE = ("plan.privacy.clip.fixed=0.1", "plan.privacy.noise_multiplier=0.8")


def flat(folder: Path) -> NDArray[np.float64]:
    """Give all shared parameters as one vector."""
    return np.concatenate([array.ravel() for _, array in sorted(theta_of(folder).items())]).astype(np.float64)


@pytest.mark.parametrize("noise", ["server", "clients", "under masks"])
def test_the_noise_and_the_account_are_what_the_plan_says(make_federation: FederationFactory, noise: str) -> None:
    """Noise of the server, or of each client, also under masks: of the right size, another in every federation."""
    by = {"under masks": ("plan.privacy.noise=clients", "plan.secure_aggregation.precision_bits=22")}
    settings = (*ONE_ROUND, *SMALL, *PRIVATE, *by.get(noise, (f"plan.privacy.noise={noise}",)))
    federation = make_federation(*settings)
    federation.start()
    simulation = federation.simulate()
    federation.run()
    assert_finished(federation)
    (ours,), (theirs,) = (lines(folder, "rounds.jsonl") for folder in (federation.app, simulation))
    assert ours["privacy"] == theirs["privacy"]
    assert ours["sent"] == theirs["sent"]
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (federation.app, simulation)]
    assert summaries[0]["privacy"] == summaries[1]["privacy"]

    clipped = federation.folder / "clipped"
    words = [word for setting in (*ONE_ROUND, *SMALL, CLIPPED) for word in ("--set", setting)]
    fedeq("run", *words, "--out", clipped, "--quiet")
    drawn, simulated = flat(federation.app) - flat(clipped), flat(simulation) - flat(clipped)
    deviation, count = ours["privacy"]["deviation"], len(drawn)
    assert abs(drawn.std() / deviation - 1.0) < 5.0 / np.sqrt(2 * count), (drawn.std(), deviation)
    assert abs(drawn.mean()) < 5.0 * deviation / np.sqrt(count)
    # Not the noise that whoever knows the seed can compute.
    assert abs(np.corrcoef(drawn, simulated)[0, 1]) < 5.0 / np.sqrt(count)
    secret = federation.app / "noise.secret"
    assert secret.stat().st_mode & 0o77 == 0


# Hardly any noise, and a bound that nothing reaches: what differs from the simulation is what was measured otherwise.
# The noise is below the last bit of nearly all parameters: a codec that rounds one of them another way moves it by
# a whole step.
QUIET = ("plan.privacy.clip.fixed=1000", "plan.privacy.noise_multiplier=1e-15", "plan.privacy.noise=clients")


def test_a_model_that_arrives_compressed_is_what_changes_are_measured_from(make_federation: FederationFactory) -> None:
    """Noise by clients beside a codec on the way down: after the first round they have other models than the server."""
    compressed = ("plan.rounds=3", "plan.compression.down=int4")
    federation = make_federation(*(*FEDREP, *SMALL, *QUIET, *compressed))
    federation.start()
    simulation = federation.simulate()
    federation.run()
    assert_finished(federation)
    apart = np.linalg.norm(flat(federation.app) - flat(simulation))
    assert apart < 1e-4 * np.linalg.norm(flat(simulation)), apart


COINS = ("model=mlp", "plan.evaluate_every=0", "plan.sampling.poisson=true", "plan.sampling.fraction=0.6", *SMALL)
# The bound follows the clients, by a count with noise of its own.
ADAPTIVE = (
    "plan.privacy.clip.adaptive={ quantile = 0.5, initial = 0.2 }",
    "plan.privacy.count_noise=1.0",
    "plan.privacy.noise_multiplier=0.8",
)


def bounds_of(folder: Path) -> list[float]:
    """Read the bound of every round."""
    return [line["privacy"]["clip"] for line in lines(folder, "rounds.jsonl")]


def test_coins_and_an_adaptive_bound_come_from_the_secret_also_after_kills(make_federation: FederationFactory) -> None:
    """FeDEQ: cohorts and noise are no simulation's; the same secret gives the same bytes, killed or not."""
    settings = ("method=fedeq", "method.rho=0.3", "plan.rounds=5", *COINS, *ADAPTIVE)
    federation = make_federation(*settings)
    federation.start()
    simulation = federation.simulate()
    federation.run()
    assert_finished(federation)
    first = federation.app
    ours, theirs = (lines(folder, "rounds.jsonl") for folder in (first, simulation))
    # What is spent depends on the settings and the number of rounds alone.
    assert [line["privacy"]["epsilon"] for line in ours] == [line["privacy"]["epsilon"] for line in theirs]
    assert [line["cohort"] for line in ours] != [line["cohort"] for line in theirs]
    assert bounds_of(first)[0] == bounds_of(simulation)[0] == 0.2  # noqa: PLR2004
    assert len(set(bounds_of(first))) > 1
    assert bounds_of(first)[1:] != bounds_of(simulation)[1:]

    federation.write_app("again", settings)
    secret = federation.app / "noise.secret"
    secret.write_bytes((first / "noise.secret").read_bytes())
    secret.chmod(0o600)
    # A second federation of what was accepted.
    federation.restart_nodes(("--max-federations", "2"))
    for saved in (1, 3):
        federation.start_run()
        until(f"{saved} rounds are saved", lambda saved=saved: federation.done >= saved, TIMEOUT)  # type: ignore[misc]
        federation.kill_server()
        assert federation.done < 5, "too fast to be killed"  # noqa: PLR2004
    federation.run()
    assert_finished(federation)
    assert (federation.app / "rounds.jsonl").read_text() == (first / "rounds.jsonl").read_text()
    assert flat(federation.app).tobytes() == flat(first).tobytes()


def test_a_budget_ends_a_federation_in_the_round_in_which_it_ends_the_simulation(
    make_federation: FederationFactory,
) -> None:
    """It is finished and summed up then, with the account of the rounds that there were."""
    settings = ("method=fedavg", "method.weighting=uniform", "plan.rounds=6", *COINS, *PRIVATE)
    federation = make_federation(*settings)
    spent = [line["privacy"]["epsilon"] for line in lines(federation.simulate(), "rounds.jsonl")]
    budget = (spent[1] + spent[2]) / 2
    federation.write_app("budgeted", (*settings, f"plan.privacy.budget={budget}"))
    federation.start()
    simulation = federation.simulate()
    federation.run()
    assert_finished(federation)
    for folder in (federation.app, simulation):
        assert [line["privacy"]["epsilon"] for line in lines(folder, "rounds.jsonl")] == spent[:2]
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["privacy"]["epsilon"] == spent[1] <= budget
