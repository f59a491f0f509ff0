"""The tables ``[calls]`` and ``[recordings]`` of the configuration."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from ..configuration.settings_table import FiniteFloat, Integer, SettingsTable

AgentChoice = Annotated[str, Field(pattern=r"^(keys|none|(script|loop):.+)$")]


class CallsTable(SettingsTable):
    """Calls of every kind."""

    max_calls: Annotated[Integer, Field(ge=1, le=10_000, title="calls from 1 to 10000")] = Field(
        default=100,  # measured: two cores serve as many without an underrun
        description="calls at once; more are refused",
    )
    speed: Annotated[FiniteFloat, Field(ge=0.5, le=2.0, title="a factor from 0.5 to 2.0")] = Field(
        default=1.0, description="speed of the voice on calls, 0.5 to 2.0"
    )
    caller_speech: Literal["tell", "discard"] = Field(
        default="tell",  # a cough must not stop a menu or an announcement
        title="tell (report it) or discard (stop what is playing, and report it)",
        description="what a phone call does when the caller speaks: `tell` only reports it; `discard` also "
        "stops what is playing, as a conversation wants it",
    )
    # None: unlimited, because phones without silence packets, or on hold, send nothing for minutes.
    silent_s: Annotated[
        Annotated[FiniteFloat, Field(gt=0, le=3600)] | None, Field(title="seconds, over 0 to 3600")
    ] = Field(
        default=None,
        description="seconds after which a phone call ends of which nothing arrives, because Asterisk may be "
        "frozen; unset: 120 s over RTP without ARI, else "
        "never, for phones that send no silence or are on hold",
    )
    # None: one with more than one core, else none. A process plays 100 calls with a third of a core.
    media_processes: Annotated[
        Annotated[Integer, Field(ge=0, le=64)] | None, Field(title="a number from 0 to 64")
    ] = Field(
        default=None,
        description="processes that play the speech of phone calls, so that nothing else delays it; unset: "
        "1, or 0 (a thread) on a single core",
    )


class RecordingsTable(SettingsTable):
    """Recordings of calls."""

    folder: Path | None = Field(
        default=None,
        title="a folder",
        description="folder of recordings of calls; unset: no call can be recorded",
    )
    all_calls: bool = Field(
        default=False,
        description="record every call from its beginning; else those that a program asks for",
    )
