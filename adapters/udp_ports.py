"""The range of UDP ports of the media of calls."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from ..tts_engine.errors import BadRequest

MIN_PORT: Final = 1024
MAX_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class MediaPorts:
    """The UDP ports ``first`` to ``last``, both included. A call uses one port on each local address."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``"40000-40999"``. Raises BadRequest."""
        first, dash, last = text.partition("-")
        if not (dash and first.isdecimal() and last.isdecimal()):
            raise BadRequest(f"got {text!r}; a range of ports is FIRST-LAST")
        if not MIN_PORT <= int(first) <= int(last) <= MAX_PORT:
            raise BadRequest(f"got the ports {text}; allowed are {MIN_PORT} to {MAX_PORT}, the lower first")
        return cls(int(first), int(last))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    def in_turn(self) -> Iterator[int]:
        """Yield every port once, from a random one on: a port just freed may still get packets."""
        count = self.last - self.first + 1
        start = random.randrange(count)
        return (self.first + (start + step) % count for step in range(count))
