"""The caller of a call, as far as the way in tells."""

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


UNKNOWN_CALLER = Caller()
