"""The table ``[sounds]`` of the configuration."""

from pathlib import Path

from pydantic import Field

from ...configuration.settings_table import SettingsTable


class SoundsTable(SettingsTable):
    """Sounds of calls besides speech."""

    folder: Path | None = Field(
        default=None,
        title="a folder",
        description="folder of sound files that programs may [play](#sounds) on calls; unset: none",
    )
