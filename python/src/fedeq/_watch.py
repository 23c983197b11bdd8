"""What is told while a run trains: to callbacks, and to whoever looks at the screen."""

import json
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from fedeq import _given

Round = dict[str, Any]
"""The numbers of a round: `round` and `rounds`, `train_loss`, and after an evaluation `accuracy` and more, by name."""

Callback = Callable[[Round], bool | None]
"""Called after every round; what returns `True` stops the run at a checkpoint."""


class Display(Protocol):
    """Something that shows how a run goes."""

    def begin(self, lines: list[str], done: int, rounds: int) -> None:
        """Show what a run is."""

    def warn(self, text: str) -> None:
        """Show what a person should know."""

    def show(self, numbers: Round, words: str) -> None:
        """Show a round; `words` are about the evaluation after it, if there was one."""

    def end(self) -> None:
        """Leave the last state on the screen."""


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 (progress goes to stderr)


class Warnings:
    """Nothing but warnings."""

    def begin(self, lines: list[str], done: int, rounds: int) -> None:
        """Show nothing."""

    def warn(self, text: str) -> None:
        """Show it."""
        _say(text)

    def show(self, numbers: Round, words: str) -> None:
        """Show nothing."""

    def end(self) -> None:
        """Leave nothing."""


class Lines(Warnings):
    """A line an evaluation: for files."""

    def begin(self, lines: list[str], done: int, rounds: int) -> None:  # noqa: ARG002 (they stand in the lines)
        """Show what the run is."""
        for line in lines:
            _say(line)

    def show(self, numbers: Round, words: str) -> None:
        """Show an evaluation."""
        if words:
            loss = numbers.get("train_loss")
            trained = "" if loss is None else f"training loss {loss:.3f}, "
            _say(f"round {numbers['round']} of {numbers['rounds']}: {trained}{words}")


def _bar(numbers: Round, words: str, width: int = 30) -> str:
    full = width * numbers["round"] // max(numbers["rounds"], 1)
    text = f"round {numbers['round']} of {numbers['rounds']} {'█' * full}{'░' * (width - full)} {words}"
    return text.rstrip()


class Bar(Lines):
    """A line that is written over: for terminals."""

    def __init__(self) -> None:
        """Begin with nothing on the line."""
        self._words = ""
        self._is_begun = False

    def warn(self, text: str) -> None:
        """Show it above the bar."""
        self._clear()
        _say(text)

    def show(self, numbers: Round, words: str) -> None:
        """Move the bar."""
        self._words = words or self._words
        self._clear()
        print(_bar(numbers, self._words), end="", file=sys.stderr, flush=True)  # noqa: T201
        self._is_begun = True

    def end(self) -> None:
        """Go to the next line."""
        if self._is_begun:
            _say("")

    def _clear(self) -> None:
        if self._is_begun:
            print("\r\x1b[K", end="", file=sys.stderr)  # noqa: T201


class Cell(Lines):
    """A text that is updated in the output of a notebook's cell."""

    def __init__(self) -> None:
        """Begin without an output."""
        self._words = ""
        self._handle: Any = None

    def show(self, numbers: Round, words: str) -> None:
        """Update the output."""
        from IPython.display import Pretty, display  # noqa: PLC0415 (there is one: a notebook is running)

        self._words = words or self._words
        shown = Pretty(_bar(numbers, self._words))
        if self._handle is None:
            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and hasattr(shell, "kernel")


def display(progress: bool | None) -> Display:  # noqa: FBT001 (what `fedeq.run` was given)
    """Give what fits where the output goes; nothing but warnings if no more is wanted, or it goes nowhere."""
    if progress is False:
        return Warnings()
    if _is_notebook():
        return Cell()
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if is_terminal:
        return Bar()
    return Lines() if sys.stderr is not None else Warnings()


class Watcher:
    """Told by Rust what happens, on the thread that called."""

    def __init__(self, callbacks: Iterable[Callback], progress: bool | None) -> None:  # noqa: FBT001
        """Show progress as it fits, and call callbacks in their order."""
        self._callbacks = _given.functions(callbacks, "callbacks")
        self._display = display(progress)

    def started(self, lines: list[str], done: int, rounds: int) -> None:
        """Begin."""
        self._display.begin(lines, done, rounds)

    def warned(self, text: str) -> None:
        """Pass a warning on."""
        self._display.warn(text)

    def settled(self, numbers: str, words: str) -> bool:
        """Take note of a round; all callbacks are called, whatever the first of them says."""
        this: Round = json.loads(numbers)
        self._display.show(this, words)
        wishes = [callback(dict(this)) for callback in self._callbacks]
        for callback, wish in zip(self._callbacks, wishes, strict=True):
            if wish is not None and not _is_truth(wish):
                hint = "give `True` to stop, `False` or nothing to go on"
                message = f"the callback `{callback!r}` gave `{wish!r}`\nhint: {hint}"
                raise TypeError(message)
        return any(bool(wish) for wish in wishes)

    def ended(self) -> None:
        """End, however the run ended."""
        self._display.end()


def _is_truth(wish: object) -> bool:
    """Whether it is a truth value, of Python or of numpy."""
    kind = type(wish)
    return isinstance(wish, bool) or (kind.__module__ == "numpy" and kind.__name__ in {"bool", "bool_"})
