"""The table ``[apis]`` of the configuration."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from ..configuration.settings_table import JSON, Integer, NamedText, Port, SettingsTable

_Model = Annotated[str, Field(pattern=r"^vivavoce(/.+)?$")]


class ApisTable(SettingsTable):
    """The speech APIs."""

    max_input_characters: Annotated[Integer, Field(ge=1, le=200_000, title="characters from 1 to 200000")] = (
        Field(default=4096, description="characters of one request of the OpenAI API")
    )  # as at OpenAI
    model_aliases: Annotated[
        dict[str, _Model],
        JSON,
        Field(title='a table of names, such as {kokoro = "vivavoce", "tts-anna" = "vivavoce/anna"}'),
    ] = Field(
        default={},
        description='other names of the model, `{kokoro = "vivavoce", "tts-anna" = "vivavoce/anna"}`; after '
        "the slash the id of the voice for requests that name none",
    )
    # False: clients of other servers send those servers' models, and there is only one here.
    strict_models: bool = Field(
        default=False,
        description="refuse a `model` that is neither of the API's service, `vivavoce`, a bundle nor an "
        "alias; otherwise every name is the loaded model",
    )
    reference_hosts: Annotated[
        tuple[NamedText, ...],
        JSON,
        Field(title='a list of hosts that recordings may come from, "host" or "host:port"'),
    ] = Field(  # hosts on the public internet need no entry
        default=(),
        description='private hosts that clients\' recordings may be fetched from, `"host"` or `"host:port"`',
    )
    exchange_folder: Path | None = Field(
        default=None,  # a client could fill the disk
        title="a folder of recordings that clients name, and of speech written for them",
        description="folder of `recordings/`, which clients of the Ray Serve API may name, and of `speech/`, "
        "which is written for clients of XTTS's APIs and only the user of the server may read",
    )
    grpc_port: Annotated[Port | None, Field(title="a port from 0 (any free one) to 65535")] = Field(
        default=None,
        description="port of upstream CosyVoice's gRPC service, on the host of HTTP; needs the extra `grpc`",
    )
    wyoming_port: Annotated[Port | None, Field(title="a port from 0 (any free one) to 65535")] = Field(
        default=None,
        description="port of Wyoming, for Home Assistant, usually 10200, on the host of HTTP",
    )

    @property
    def further_ports(self) -> dict[str, int]:
        """The ports of dialects, by the name of their ``DialectPort``."""
        ports = {"grpc": self.grpc_port, "wyoming": self.wyoming_port}
        return {name: port for name, port in ports.items() if port is not None}
