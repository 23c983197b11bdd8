"""A server app that does not follow the protocol of secure aggregation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedeq._native import Federation, LinkContext, Request
from fedeq.flower.app import folder_of, log_line
from fedeq.flower.directory import Directory
from fedeq.flower.listener import BackgroundListener
from fedeq.flower.messages import Parts
from fedeq.flower.registry import Registry
from fedeq.flower.reply_limit import limit_replies
from fedeq.flower.transport import Transport

server = ServerApp()

# What becomes of a round, by its number from 0 (a text, in JSON); written beside the app.
FAULTS = "faults.json"
# The client that faults are about.
VICTIM = 2
# Kinds of messages of the protocol that the server sends: their first byte.
ROSTER, DELIVERY, SURVIVORS = 1, 3, 5
# An array of bytes in numpy's format begins with a header of so many bytes, here.
HEADER = 128


@dataclass
class ChangedRequest:
    """A request that was changed on its way."""

    kind: Literal["train", "evaluate"]
    round: int
    header: str
    layout: str
    dtype: Literal["float32", "uint8"]
    count: int
    packed: bytes


def changed(request: Request, body: bytes) -> ChangedRequest:
    """Give a request with another message of the protocol, as long as the first."""
    packed = request.packed[:HEADER] + body
    return ChangedRequest(
        request.kind, request.round, request.header, request.layout, request.dtype, request.count, packed
    )


def exchanged(roster: bytes) -> bytes:
    """Give a roster of few clients with other keys of the victim, under its signature."""
    # Kind, session, number of clients twice; then number, two keys, and a signature behind a byte that says so.
    start, size = 1 + 32 + 2, 1 + 64 + 1 + 64
    assert len(roster) == start + roster[start - 1] * size, len(roster)
    place = start + VICTIM * size
    assert roster[place] == VICTIM, roster[place]
    # X25519 takes any 32 bytes for a key.
    return roster[: place + 1] + bytes(range(1, 65)) + roster[place + 65 :]


@dataclass
class Meddler:
    """Carries messages, and changes some of them."""

    transport: Transport
    faults: Mapping[str, str]

    def gather(self, clients: int, context: LinkContext) -> dict[int, str]:
        """Wait for clients."""
        return self.transport.gather(clients, context)

    def exchange(self, requests: Mapping[int, Request], context: LinkContext) -> dict[int, str | Parts]:
        """Carry messages."""
        first = next(iter(requests.values()))
        fault = self.faults.get(str(first.round)) if first.dtype == "uint8" else None
        kind = first.packed[HEADER] if fault else 0
        if (fault, kind) in {("before masking", ROSTER), ("before reveal", SURVIVORS)}:
            others = {client: request for client, request in requests.items() if client != VICTIM}
            return {**self.transport.exchange(others, context), VICTIM: "it has dropped out"}
        sent = {client: self._sent(client, request, fault, kind) for client, request in requests.items()}
        return self.transport.exchange(sent, context)

    def _sent(self, client: int, request: Request, fault: str | None, kind: int) -> Request:
        body = request.packed[HEADER:]
        if (fault, kind, client) == ("tampered", DELIVERY, 1):
            # The last byte of the last box.
            return changed(request, body[:-1] + bytes([body[-1] ^ 1]))  # type: ignore[return-value]
        if (fault, kind) == ("invent", ROSTER):
            # Keys of the server's own in the place of the victim's: it would know the masks that others share with it.
            return changed(request, exchanged(body))  # type: ignore[return-value]
        if (fault, kind) == ("lie", SURVIVORS) and client < VICTIM:
            # Five survivors and nobody who dropped out; then all but the victim.
            assert body[-8:] == bytes([5, 5, 0, 1, 2, 3, 4, 0]), body
            return changed(request, body[:-8] + bytes([4, 4, 0, 1, 3, 4, 1, VICTIM]))  # type: ignore[return-value]
        return request


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Train to the end of the plan, with faults."""
    folder = folder_of(context.run_config)
    federation = Federation(folder)
    limit_replies(grid, federation.array_limit)
    directory = Directory(grid, Registry(folder / "nodes.json"), federation.clients)
    listener = BackgroundListener(grid)
    transport = Transport(
        grid, listener, directory, federation.name, federation.experiment, deadline=60.0, repeat=3.0, patience=60.0
    )
    faults = json.loads((folder / FAULTS).read_text())
    federation.train(Meddler(transport, faults), log_line, 0.6, inf)
