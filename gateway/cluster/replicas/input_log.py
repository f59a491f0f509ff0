"""The inputs of one stream, kept so that another replica can speak what is left of the text."""

from collections.abc import Iterator
from dataclasses import replace

from .messages import EndInput, Flush, PushText, SetLanguage, SetProsody, StreamInput


class InputLog:
    """Inputs in their order. Positions count characters of the text pushed."""

    def __init__(self) -> None:
        self._inputs: list[StreamInput] = []
        self.characters = 0

    def add(self, given: StreamInput) -> None:
        """Append an input."""
        self._inputs.append(given)
        if isinstance(given, PushText):
            self.characters += len(given.text)

    def after(self, position: int) -> tuple[int, list[StreamInput]]:
        """The position where the rest begins, and the inputs for it.

        It begins at ``position``, or after a phrase with one pronunciation that the position cuts.
        """
        begins = max(position, self._end_of_phrase(position))
        return begins, list(self._cut(begins))

    def _end_of_phrase(self, position: int) -> int:
        for start, given in self._pushes():
            if given.pronunciation is not None and start < position < start + len(given.text):
                return start + len(given.text)
        return position

    def _pushes(self) -> Iterator[tuple[int, PushText]]:
        start = 0
        for given in self._inputs:
            if isinstance(given, PushText):
                yield start, given
                start += len(given.text)

    def _cut(self, begins: int) -> Iterator[StreamInput]:
        stop = 0
        for given in self._inputs:
            match given:
                case PushText(text=text):
                    start, stop = stop, stop + len(text)
                    if stop > begins:
                        yield replace(given, text=text[max(0, begins - start) :])
                case SetProsody() | SetLanguage() | EndInput():  # hold for what follows
                    yield given
                case Flush():
                    if stop > begins:
                        yield given
