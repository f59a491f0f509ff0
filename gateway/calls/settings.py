"""The tables ``[calls]`` and ``[recordings]`` of the configuration."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ..configuration.settings_table import Integer, SettingsTable

AgentChoice = Annotated[str, Field(pattern=r"^(keys|none|(script|loop):.+)$")]


class CallsTable(SettingsTable):
    """Calls of every kind."""

    max_calls: Annotated[Integer, Field(ge=1, le=10_000, title="calls from 1 to 10000")] = Field(
        default=100,  # measured: two cores serve as many without an underrun
        description="calls at once; more are refused",
    )
    caller_speech: Literal["tell", "discard"] = Field(
        default="tell",  # a cough must not stop a menu or an announcement
        title="tell (report it) or discard (stop what is playing, and report it)",
        description="what a phone call does when the caller speaks: `tell` only reports it; `discard` also "
        "stops what is playing, as a conversation wants it",
    )


class RecordingsTable(SettingsTable):
    """Recordings of calls."""

    folder: Path
    all_calls: bool = False  # from their beginning; else those that a program asks for
