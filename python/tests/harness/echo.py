"""A client in Python that does no work, for Flower's own nodes: what is left is what a node itself takes."""

import json

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedeq.flower import weights
from tests.harness.fake import scores, update

client = ClientApp()


@client.query()
def query(message: Message, context: Context) -> Message:
    """Say who it is."""
    number = int(context.node_config["partition-id"])
    return Message(RecordDict({"fedeq": ConfigRecord({"client": number})}), reply_to=message)


@client.train()
def train(message: Message, context: Context) -> Message:
    """Send back what came."""
    del context
    layout = json.loads(str(message.content.config_records["fedeq"]["layout"]))
    packed = message.content.array_records["weights"]["packed"].numpy()
    return Message(update(weights.unpack(packed, layout)), reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Be right in half of the cases."""
    del context
    return Message(scores(5), reply_to=message)
