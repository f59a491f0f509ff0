"""Settings of browser calls."""

import time
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field, SecretStr

from .....adapters.ice_settings import IceServer, MediaPorts
from ....configuration.settings_table import JSON, NamedText, SettingsTable, UdpPorts
from ...call_options import LEAD_S, CallerSpeechAction, CallSpeechOptions
from .chat import ChatSettings
from .ice_servers import IceServerSetting


class BrowserTable(SettingsTable):
    """Calls from browsers."""

    greeting: Annotated[str, Field(max_length=2_000, title="at most 2000 characters")] = Field(
        default="Hello, this is vivavoce. Type something below, and I will say it.",
        description="first utterance of a browser call without an agent",
    )
    ice_servers: Annotated[
        tuple[IceServerSetting, ...],
        JSON,
        Field(
            title='a list of "stun:HOST:PORT" and of tables {urls = ["turn:HOST:PORT"], '
            'username = "...", credential = "..."} or {urls = ["turn:HOST:PORT"], secret = "..."}'
        ),
    ] = Field(
        default=(),  # no outside host is contacted
        description="STUN and TURN servers of browser calls; one network needs none",
    )
    ports: UdpPorts = Field(
        default=None,  # needs no firewall rule on one network
        description='range of the UDP ports of browser calls, `"40000-40999"`; unset: any free port',
    )


class LanguageModelTable(SettingsTable):
    """The language model that answers the text typed on the page."""

    base_url: Annotated[
        Annotated[str, Field(pattern=r"^https?://")] | None,
        Field(title="the URL of an OpenAI-compatible server, up to before /chat/completions"),
    ] = Field(
        default=None,  # typed text is spoken as it is
        description="an OpenAI-compatible server that answers the text typed on the page",
    )
    model: Annotated[NamedText | None, Field(title="the model's name there")] = Field(
        default=None, description="the name of its model"
    )
    api_key: Annotated[SecretStr | None, Field(title="a key of that server")] = Field(
        default=None, description="its key; set it in the environment"
    )


@dataclass(frozen=True, slots=True)
class BrowserCallSettings:
    """Limits and contents of calls from browsers."""

    connect_s: float = 8.0  # until the connection is up; ICE over TURN takes a few seconds
    silent_s: float = 10.0  # without any message or audio of the browser; the page pings every second
    lead_s: float = LEAD_S  # speech kept ready in the playout
    speech: CallSpeechOptions = field(default_factory=CallSpeechOptions)
    greeting: str = "Hello, this is vivavoce. Type something below, and I will say it."  # "": none
    ice_servers: tuple[
        IceServer, ...
    ] = ()  # also of the pages; none by default: no outside host is contacted
    ports: MediaPorts | None = None  # of this end's UDP sockets; None: any that the system chooses
    chat: ChatSettings | None = None  # None: no language model
    caller_speech_action: CallerSpeechAction = CallerSpeechAction.DISCARD  # the caller interrupts by speaking

    def dated_ice_servers(self) -> tuple[IceServer, ...]:
        """Return the servers with credentials for a call that begins now."""
        return tuple(server.dated(time.time()) for server in self.ice_servers)
