"""Client apps in Python, for Flower's own nodes."""

import json
from collections.abc import Callable

from flwr.app import Array, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import add_header_to_object_body

from tests.harness import weights
from tests.harness.bombs import BOMBS, SENT
from tests.harness.fake import THETA, identity, scores, update

Content = Callable[[Message], RecordDict]


def client_app(train: Content, evaluate: Content) -> ClientApp:
    """Make an app that says which client it is, and replies with the given contents."""
    app = ClientApp()

    @app.query()
    def _(message: Message, context: Context) -> Message:
        return Message(identity(int(context.node_config["partition-id"])), reply_to=message)

    @app.train()
    def _(message: Message, context: Context) -> Message:
        del context
        return Message(train(message), reply_to=message)

    @app.evaluate()
    def _(message: Message, context: Context) -> Message:
        del context
        return Message(evaluate(message), reply_to=message)

    return app


def _same_weights(message: Message) -> RecordDict:
    layout = str(message.content.config_records["fedeq"]["layout"])
    packed = message.content.array_records["weights"]["packed"].numpy()
    return update(weights.unpack(packed, layout))


def _array_without_header(message: Message) -> RecordDict:
    """Give an array whose description is empty: Flower's own grid fails on it."""
    del message
    Array.deflate = lambda self: add_header_to_object_body(b"{}", self)  # type: ignore[method-assign]
    return update(THETA)


def _huge_number(message: Message) -> RecordDict:
    """Give a number of 400 digits."""
    del message
    header = {"reply": "scores", "scores": {"local": {"predictions": 10**400, "correct": 1, "loss": 1}}}
    return RecordDict({"fedeq": ConfigRecord({"header": json.dumps(header)})})


def _bomb(message: Message) -> RecordDict:
    """Give a reply that takes too much, another one in every round."""
    return BOMBS[SENT[int(message.metadata.group_id)]]()


# Sends back the weights it received, without any training: what remains is the cost of the node itself.
echo = client_app(_same_weights, lambda _: scores(5))
# Tries to crash the server.
malicious = client_app(_array_without_header, _huge_number)
# Tries to take all of the server's memory.
bomber = client_app(_bomb, lambda _: scores(5))
