"""The tables ``[calls]``, ``[recordings]`` and ``[sounds]`` of the configuration."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from ..configuration.settings_table import JSON, FiniteFloat, Integer, SettingsTable

AgentChoice = Annotated[str, Field(pattern=r"^(keys|none|(script|loop):.+)$")]


class CallsTable(SettingsTable):
    """Calls of every kind."""

    max_calls: Integer = Field(
        default=100,  # measured: two cores serve as many without an underrun
        ge=1,
        le=10_000,
        title="calls from 1 to 10000",
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


_Level = Annotated[FiniteFloat, Field(ge=-60, le=0)]  # dB; 0: as the file is


class AmbienceTable(SettingsTable):
    """A room or an office, under speech: a file, or a noise that is made."""

    file: Path | None = None
    level_db: _Level = -20.0  # of a file; 10 dB less under speech
    # Of comfort noise. Above -40 it hides quiet speech; below -75 A-law has no step for it.
    noise_dbm0: Annotated[FiniteFloat, Field(ge=-75, le=-40)] | None = None

    @model_validator(mode="after")
    def _check_one_sound(self) -> Self:
        if (self.file is None) == (self.noise_dbm0 is None):
            raise PydanticCustomError("one_ambience", "needs either 'file' or 'noise_dbm0'")
        return self


class ThinkingTable(SettingsTable):
    """A sound while a program is attached and nothing is said."""

    file: Path
    level_db: _Level = -20.0
    after_ms: Annotated[Integer, Field(ge=0, le=60_000)] = 1_000  # of silence


class HoldTable(SettingsTable):
    """Music for a caller who waits for a transfer, or has put the call on hold."""

    file: Path
    level_db: _Level = -10.0


class SoundsTable(SettingsTable):
    """Sounds of calls besides speech."""

    folder: Path | None = Field(
        default=None,
        title="a folder",
        description="folder of sound files that programs may [play](#sounds) on calls; unset: none",
    )
    ambience: Annotated[AmbienceTable | None, JSON] = Field(
        default=None,
        title='a table, {file = "office.wav", level_db = -20}',
        description="sound of a room on every call, over and over: `file`, and `level_db` from -60 to 0 (the "
        "file as it is); or comfort noise without a file, `noise_dbm0`, -75 to -40, as `{noise_dbm0 = -60}`; "
        "10 dB less under speech",
    )
    thinking: Annotated[ThinkingTable | None, JSON] = Field(
        default=None,
        title='a table, {file = "keyboard.wav", level_db = -20, after_ms = 1000}',
        description="sound while a program is attached and nothing has been said for `after_ms`, up to the "
        "first word: `file`, `level_db`",
    )
    hold: Annotated[HoldTable | None, JSON] = Field(
        default=None,
        title='a table, {file = "music.mp3", level_db = -10}',
        description="music on hold and while an attended transfer is under way: `file`, `level_db`",
    )
