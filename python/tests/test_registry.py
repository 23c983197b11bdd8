"""A client number belongs to a key."""

import json
import subprocess
from pathlib import Path

import pytest

from fedeq import FedeqError
from fedeq.flower.registry import Registry, fingerprint

pytestmark = pytest.mark.hostile


def test_a_client_belongs_to_the_key_that_first_took_it(tmp_path: Path) -> None:
    """Also in the next process."""
    path = tmp_path / "nodes.json"
    assert Registry(path).refusal(3, "aa") is None
    again = Registry(path)
    assert again.refusal(3, "aa") is None
    assert "belongs to the key aa" in str(again.refusal(3, "bb"))
    assert "its key is that of client 3" in str(again.refusal(4, "aa"))
    assert again.refusal(4, "bb") is None
    assert json.loads(path.read_text()) == {"3": "aa", "4": "bb"}


def test_the_owner_may_say_beforehand_whose_a_client_is(tmp_path: Path) -> None:
    """Capital letters are letters too; nobody else is first."""
    path = tmp_path / "nodes.json"
    path.write_text('{"0": "AB12"}')
    registry = Registry(path)
    assert registry.refusal(0, "cd34") is not None
    assert registry.refusal(0, "ab12") is None


@pytest.mark.parametrize("text", ["", "[]", '{"first": "aa"}', "{"])
def test_a_file_that_is_no_registry_is_refused(tmp_path: Path, text: str) -> None:
    """Rather than forgotten."""
    path = tmp_path / "nodes.json"
    path.write_text(text)
    with pytest.raises(FedeqError, match=r"nodes\.json"):
        Registry(path)


def test_a_fingerprint_is_what_openssl_gives(tmp_path: Path) -> None:
    """Of the key as a file, as the documentation says."""
    private, public = tmp_path / "key.pem", tmp_path / "key.pub"
    make = "openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out {0} && openssl pkey -in {0} -pubout"
    shell(f"{make} -out {{1}}".format(private, public))
    expected = shell(f"openssl pkey -pubin -in {public} -outform DER | sha256sum").split()[0]
    assert fingerprint(public.read_bytes()) == expected
    assert fingerprint(b"ssh-ed25519 AAAA") != fingerprint(b"ssh-ed25519 BBBB")


def shell(command: str) -> str:
    """Run a command."""
    return subprocess.run(["/bin/sh", "-c", command], check=True, capture_output=True, text=True).stdout  # noqa: S603
