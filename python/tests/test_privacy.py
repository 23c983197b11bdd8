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
from tests.harness.program import fedeq
from tests.harness.settings import SMALL

pytestmark = pytest.mark.federation

ONE_ROUND = ("method=fedrep", "method.weighting=uniform", "model=mlp", "plan.rounds=1", "plan.sampling.fraction=1")
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
