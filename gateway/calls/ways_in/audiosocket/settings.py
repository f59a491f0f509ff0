"""The table ``[audiosocket]`` of the configuration."""

from typing import Annotated, Literal

from pydantic import Field

from ....configuration.settings_table import DIGITS, Host, Port, SettingsTable


class AudioSocketTable(SettingsTable):
    """Calls from Asterisk over AudioSocket."""

    # Loopback by default, because AudioSocket has no authentication.
    host: Host = Field(default="127.0.0.1", description="address of AudioSocket")
    port: Port = Field(
        default=9092, description="port of AudioSocket; 0 chooses a free one"
    )  # as in Asterisk's examples
    # Every Asterisk accepts 8000; an older one ends a call at 24000.
    rate: Annotated[Literal[8000, 24000, "caller"], DIGITS] = Field(
        default=8000,
        title="8000, 24000 (Hz; needs Asterisk 20.17, 21.12, 22.7, 23.1 or later) or caller",
        description='Hz of the audio for Asterisk: 8000; 24000 with a recent Asterisk; `"caller"`: 24000 on '
        "calls whose channel sends more than 8000, as G.722 phones with `c(slin16)`",
    )
    expected_calls_only: bool = Field(default=False, description="refuse calls that were not announced")
