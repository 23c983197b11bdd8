"""A client in Python, for Flower's own nodes, that wants to bring the server down."""

import json

from flwr.app import Array, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body

from tests.harness.fake import THETA, update

client = ClientApp()


@client.query()
def query(message: Message, context: Context) -> Message:
    """Say who it is."""
    number = int(context.node_config["partition-id"])
    return Message(RecordDict({"fedeq": ConfigRecord({"client": number})}), reply_to=message)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Send an array without a word about what it is, over which Flower's own grid fails."""
    del context
    Array.deflate = lambda self: add_header_to_object_body(b"{}", self)  # type: ignore[method-assign]
    return Message(update(THETA), reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Say a number that is none."""
    del context
    words = json.dumps({"reply": "scores", "scores": {"local": {"predictions": 10**400, "correct": 1, "loss": 1}}})
    return Message(RecordDict({"fedeq": ConfigRecord({"header": words})}), reply_to=message)
