"""Answers are heard although others come in parts."""

import threading
from collections.abc import Iterable

import pytest
from flwr.app import Message

from fedeq.flower import ear
from fedeq.flower.ear import BackgroundEar
from fedeq.flower.letters import who_are_you
from tests.harness.fake import FakeGrid, client, honest


class HalfSentGrid(FakeGrid):
    """A grid that waits for the rest of the first answer, which never comes."""

    is_first = True

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Wait, the first time."""
        if self.is_first:
            self.is_first = False
            threading.Event().wait(60.0)
        return super().pull_messages(message_ids)


def test_an_answer_that_comes_in_parts_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first listener is held up, the second hears."""
    monkeypatch.setattr(ear, "HELD_UP", 0.05)
    grid = HalfSentGrid({100: client(0, honest(1.0))})
    questions = list(grid.push_messages([question()]))
    listener = BackgroundEar(grid)
    heard = [message for _ in range(100) for message in listener.hear(questions, 0.05)]
    assert [message.metadata.reply_to_message_id for message in heard] == questions


def test_what_goes_wrong_while_listening_is_told() -> None:
    """Flower ends a run by an exception."""

    class Broken(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            del message_ids
            message = "the run is over"
            raise RuntimeError(message)

    with pytest.raises(RuntimeError, match="the run is over"):
        BackgroundEar(Broken({})).hear(["a"], 5.0)


def question() -> Message:
    """Ask something."""
    return who_are_you(100, 60.0)
