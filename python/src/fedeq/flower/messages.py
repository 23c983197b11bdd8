"""Requests to nodes and their replies, as Flower's records. The nodes' side of it is `crates/flower/src/envelope.rs`.

Nothing of a reply is read here but which client a node says it is: Rust reads and checks the rest.
"""

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from fedeq._native import Request

# The name of the one array that contains all weights.
PACKED = "packed"
# Characters of a text from outside that are shown.
LONGEST_SHOWN = 200

# Header, layout and array of a reply, of whatever type.
Parts = tuple[object, object, object]


def content(request: Request, federation: str, experiment: str) -> RecordDict:
    """Encode a request as records."""
    packed = Array(dtype=request.dtype, shape=(request.count,), stype="numpy.ndarray", data=request.packed)
    settings = {"federation": federation, "experiment": experiment, "header": request.header, "layout": request.layout}
    return RecordDict({"weights": ArrayRecord({PACKED: packed}), "fedeq": ConfigRecord({**settings})})


def parts_of(reply: Message) -> Parts:
    """Take a reply apart."""
    settings = reply.content.config_records.get("fedeq", ConfigRecord())
    packed = reply.content.array_records.get("weights", ArrayRecord()).get(PACKED)
    return settings.get("header"), settings.get("layout"), None if packed is None else packed.data


def identify(node: int, ttl: float) -> Message:
    """Ask a node which client it is."""
    return Message(RecordDict({"fedeq": ConfigRecord({})}), node, "query", ttl=ttl)


def client_of(reply: Message) -> object:
    """Give which client a node says it is, of whatever type."""
    return reply.content.config_records.get("fedeq", ConfigRecord()).get("client")


def shorten(value: object) -> str:
    """Give a value from outside as one short printable line."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 (some numbers are too long to be converted to text)
        text = f"{type(value).__name__} that cannot be shown"
    shown = "".join(character if character.isprintable() else " " for character in text[: LONGEST_SHOWN + 1])
    return shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + "..."
