"""The caller of a call, as far as the way in tells, and the key that a call belongs to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a call, and what was called. Unknown fields are empty."""

    number: str = ""
    name: str = ""
    called: str = ""  # number or extension that was called
    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class CallOwner:
    """Whose a call is. A phone call that comes in is no key's, unless a key names its agent."""

    key_id: str = ""  # of the key that placed it, or whose page it is; "": none
    agent: str = ""  # name of the agent that it was announced for; "": none


UNKNOWN_CALLER = Caller()
NO_OWNER = CallOwner()
