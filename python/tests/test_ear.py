"""Answers are heard although others come in parts."""

import threading
from collections.abc import Iterable

import pytest
from flwr.app import Message
from flwr.supercore.run import RunNotRunningException

from fedeq.flower import ear
from fedeq.flower.ear import BackgroundEar
from fedeq.flower.letters import who_are_you
from tests.harness.fake import FakeGrid, client, honest


class HalfSentGrid(FakeGrid):
    """A grid that waits for the rest of some answers, which never comes."""

    half: frozenset[str] = frozenset()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Wait, if such an answer is among those asked for."""
        wanted = list(message_ids)
        if self.half & set(wanted):
            threading.Event().wait(60.0)
        return super().pull_messages(wanted)


def test_answers_that_come_in_parts_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The listener for all is held up, and then two of those who listen for one."""
    monkeypatch.setattr(ear, "HELD_UP", 0.05)
    monkeypatch.setattr(ear, "EACH", 0.0)
    grid = HalfSentGrid({100: client(0, honest(1.0))})
    questions = list(grid.push_messages([question() for _ in range(5)]))
    grid.half = frozenset(questions[1:3])
    listener, heard = BackgroundEar(grid), set()
    for _ in range(100):
        heard |= {message.metadata.reply_to_message_id for message in listener.hear(questions, 0.02)}
    assert heard == {questions[0], *questions[3:]}


def test_what_goes_wrong_while_listening_is_told() -> None:
    """Flower ends a run that was stopped by an exception that is none of the ordinary ones."""

    class Broken(FakeGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
            del message_ids
            raise RunNotRunningException

    with pytest.raises(RunNotRunningException):
        BackgroundEar(Broken({})).hear(["a"], 5.0)


def question() -> Message:
    """Ask something."""
    return who_are_you(100, 60.0)
