"""Which key each client belongs to.

A client number belongs to the key that first took it. That is written down in the folder, in `nodes.json`: for every
client the fingerprint of its node's public key. Whoever owns the federation may write the file beforehand, for some
clients or for all, so that nobody is first by accident; and removes a line when a device has lost its key.
"""

import base64
import binascii
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from fedeq._native import FedeqError


def fingerprint(key: bytes) -> str:
    """Give the SHA-256 of a public key: of its DER form, also where it comes as PEM.

    The same as `openssl pkey -pubin -in device.pub -outform DER | sha256sum`.
    """
    body = b"".join(line for line in key.splitlines() if not line.startswith(b"-----"))
    try:
        der = base64.b64decode(body, validate=True) if key.startswith(b"-----") else key
    except binascii.Error:
        der = key
    return hashlib.sha256(der).hexdigest()


@dataclass
class Registry:
    """The keys of clients, in a file."""

    path: Path
    keys: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the file, if there is one."""
        if not self.path.exists():
            return
        try:
            self.keys = {int(client): str(key).lower() for client, key in json.loads(self.path.read_text()).items()}
        except (ValueError, AttributeError) as problem:
            message = (
                f"`{self.path}` is not a list of keys by client: {problem}\n"
                'hint: write {"0": "FINGERPRINT", ..}, or remove the file to let clients belong to whoever comes first'
            )
            raise FedeqError(message) from None

    def refusal(self, client: int, key: str) -> str | None:
        """Say why a client does not belong to a key; nothing if it does, and from now on."""
        owner = self.keys.get(client)
        if owner is None:
            other = next((number for number, known in self.keys.items() if known == key), None)
            if other is not None:
                return f"its key is that of client {other}"
            self.keys[client] = key
            self._write()
            return None
        if owner == key:
            return None
        return (
            f"client {client} belongs to the key {owner[:16]}.., not to {key[:16]}..; "
            f"if the device has a new key, change `{self.path.name}`"
        )

    def _write(self) -> None:
        """Write, sync and rename: after a power cut the old file is there or the new one."""
        partial = self.path.with_name(self.path.name + ".partial")
        with partial.open("w") as file:
            json.dump({str(client): key for client, key in sorted(self.keys.items())}, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)
