"""The table ``[apis]`` of the configuration."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from ..configuration.settings_table import JSON, Integer, NamedText, Port, SettingsTable


class ApisTable(SettingsTable):
    """The speech APIs."""

    max_input_characters: Integer = Field(
        default=4096,  # as at OpenAI
        ge=1,
        le=200_000,
        title="characters from 1 to 200000",
        description="characters of one request of the OpenAI API",
    )
    reference_hosts: Annotated[tuple[NamedText, ...], JSON] = Field(
        default=(),  # hosts on the public internet need no entry
        title='a list of hosts that recordings and sounds may come from, "host" or "host:port"',
        description="private hosts that clients' recordings, and sounds of calls, may be fetched from, "
        '`"host"` or `"host:port"`',
    )
    exchange_folder: Path | None = Field(
        default=None,  # a client could fill the disk
        title="a folder of recordings that clients name, and of speech written for them",
        description="folder of `recordings/`, which clients of the Ray Serve API may name, and of `speech/`, "
        "which is written for clients of XTTS's APIs and only the user of the server may read",
    )
    ports: Annotated[dict[NamedText, Port], JSON] = Field(
        default={},
        title="ports from 0 (any free one) to 65535, by protocol",
        description="ports of protocols besides HTTP, on its host: `wyoming`, for Home Assistant, usually "
        "10200; `grpc`, upstream CosyVoice's service, which needs the extra `grpc`",
    )
