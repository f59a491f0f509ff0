"""A call that Asterisk makes, and the one that it becomes if a telephone forwards it (302).

Asterisk would call the extension itself, on a channel of ``Local`` in linear audio at 192 kHz, whatever
formats were asked for: its audio is 6 dB lower, and one way stays silent after RTP (measured with 22.10.1).
So it gets a context that does not exist, and the gateway calls the extension where Asterisk would have.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from uuid import uuid4

from .models import Dial

_NO_CONTEXT: Final = {"FORWARD_CONTEXT": "vivavoce-forwards"}
_MAX_FORWARDS: Final = 5
EXTENSION: Final = re.compile(r"[\w.+*#-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Origination:
    """A request to call an endpoint; the channel that answers enters the application."""

    endpoint: str
    channel: str = field(default_factory=lambda: str(uuid4()))
    argument: str = ""  # of the application, also if another channel answers, as after a forward
    caller_id: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    ring_s: float | None = None  # after which Asterisk gives up; None: its default, 30
    originator: str = ""  # id of the channel for which it is called, whose formats the channel gets
    # Of the channel, without an originator; "": Asterisk's choice, for Local linear audio at 192 kHz.
    formats: str = ""
    forwards: int = 0  # that led here

    @property
    def query(self) -> dict[str, str]:
        """Of the request, but for the application."""
        optional = {
            "appArgs": self.argument,
            "originator": self.originator,
            "formats": "" if self.originator else self.formats,
            "callerId": self.caller_id,
            "timeout": "" if self.ring_s is None else str(round(self.ring_s)),
        }
        named = {name: value for name, value in optional.items() if value}
        return {"channelId": self.channel, "endpoint": self.endpoint, **named}

    @property
    def body(self) -> dict[str, dict[str, str]]:
        """Of the request."""
        return {"variables": _NO_CONTEXT | dict(self.variables)}

    def forwarded(self, event: Dial, formats: str) -> "Origination | None":
        """Return the call to the extension of a forward; None if it is none, or one too many."""
        if self.forwards >= _MAX_FORWARDS or not EXTENSION.fullmatch(event.forward):
            return None
        return replace(
            self,
            channel=str(uuid4()),
            endpoint=local_endpoint(event.forward, event.channel.dialplan.context),
            formats=formats,
            forwards=self.forwards + 1,
        )


def local_endpoint(extension: str, context: str) -> str:
    """Return the endpoint of an extension.

    It is not optimized away (/n): the channel would be replaced by another, of another id.
    """
    return f"Local/{extension}@{context}/n"
