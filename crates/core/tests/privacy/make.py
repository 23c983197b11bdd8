"""Writes accounts.json: what public accountants say. Run with `pip install dp-accounting==0.6.0 scipy numpy` and the wheel of opacus 1.6.0 beside it.

Of opacus only its file of formulas is read (`pip download --no-deps opacus==1.6.0`), since the whole of it needs PyTorch.
"""
import importlib.metadata
import importlib.util
import json
import pathlib
import sys
import tempfile
import zipfile

from dp_accounting import dp_event
from dp_accounting import privacy_accountant
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

HERE = pathlib.Path(__file__).parent
ADD_OR_REMOVE = privacy_accountant.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = privacy_accountant.NeighboringRelation.REPLACE_ONE

# Sampling rate, noise multiplier, rounds, delta.
POISSON = [
    (1.0, 5.0, 1, 1e-5),
    (1.0, 20.0, 300, 1e-6),
    (0.001, 0.7, 10_000, 1e-6),
    (0.01, 0.6, 100, 1e-5),
    (0.01, 1.1, 1_000, 1e-5),
    (0.01, 4.0, 60_000, 1e-7),
    (0.05, 0.5, 50, 1e-4),
    (0.1, 1.0, 100, 1e-3),
    (0.1, 2.5, 1_000, 1e-5),
    (0.2, 8.0, 150, 1e-3),
    (0.5, 3.0, 30, 1e-4),
    (0.9, 10.0, 200, 1e-5),
]

# Clients of a round, all clients, noise multiplier for a sensitivity of one clipping norm, rounds, delta.
FIXED_SIZE = [
    (100, 100, 10.0, 5, 1e-3),
    (10, 1_000, 2.0, 100, 1e-5),
    (10, 10_000, 1.2, 1_000, 1e-6),
    (20, 400, 3.0, 200, 1e-4),
    (50, 500, 4.0, 100, 1e-4),
    (100, 1_000, 6.0, 1_000, 1e-5),
    (100, 500, 10.0, 300, 1e-4),
    (30, 100, 20.0, 100, 1e-3),
]


def opacus_formulas():
    """The module of opacus that needs no PyTorch."""
    wheel = next(pathlib.Path.cwd().glob("opacus-*.whl"))
    with tempfile.TemporaryDirectory() as folder:
        path = zipfile.ZipFile(wheel).extract("opacus/accountants/analysis/rdp.py", folder)
        spec = importlib.util.spec_from_file_location("opacus_rdp", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return wheel.name.split("-")[1], module


def spent(accountant, event, rounds, delta):
    """What so many rounds come to."""
    return accountant.compose(event, rounds).get_epsilon(delta)


def poisson(formulas, rate, multiplier, rounds, delta):
    """One sampling with replacement of coins."""
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(multiplier))
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(12, 64))
    curve = formulas.compute_rdp(q=rate, noise_multiplier=multiplier, steps=rounds, orders=orders)
    return {
        "rate": rate, "multiplier": multiplier, "rounds": rounds, "delta": delta,
        "rdp": spent(RdpAccountant(neighboring_relation=ADD_OR_REMOVE), event, rounds, delta),
        "pld": spent(PLDAccountant(ADD_OR_REMOVE), event, rounds, delta),
        "opacus": float(formulas.get_privacy_spent(orders=orders, rdp=curve, delta=delta)[0]),
    }


def fixed_size(size, clients, multiplier, rounds, delta):
    """One sampling without replacement. The accountant's multiplier is for the sensitivity, which is two clipping norms."""
    event = dp_event.SampledWithoutReplacementDpEvent(clients, size, dp_event.GaussianDpEvent(multiplier / 2))
    return {
        "size": size, "clients": clients, "multiplier": multiplier, "rounds": rounds, "delta": delta,
        "rdp": spent(RdpAccountant(neighboring_relation=REPLACE), event, rounds, delta),
    }


def main() -> None:
    """All figures with the versions they come from."""
    version, formulas = opacus_formulas()
    accounts = {
        "dp-accounting": importlib.metadata.version("dp-accounting"),
        "opacus": version,
        "poisson": [poisson(formulas, *case) for case in POISSON],
        "fixed_size": [fixed_size(*case) for case in FIXED_SIZE],
    }
    (HERE / "accounts.json").write_text(json.dumps(accounts, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
