"""Settings of browser calls."""

import time
from dataclasses import dataclass, field
from typing import Annotated, Final

from pydantic import Field, SecretStr

from .....adapters.ice_server import IceServer
from .....adapters.udp_ports import MediaPorts
from ....configuration.settings_table import JSON, NamedText, SettingsTable
from ...call_options import LEAD_S, CallerSpeechAction, CallSpeechOptions
from .chat import ChatSettings
from .ice_servers import IceServerSetting

# Of a call without an agent, which is a trial of the voice; an agent says its own words.
GREETING: Final = "Hello, this is vivavoce. Type something below, and I will say it."


class BrowserTable(SettingsTable):
    """Calls from browsers."""

    ice_servers: Annotated[tuple[IceServerSetting, ...], JSON] = Field(
        default=(),  # no outside host is contacted
        title='a list of "stun:HOST:PORT" and of tables {urls = ["turn:HOST:PORT"], '
        'username = "...", credential = "..."} or {urls = ["turn:HOST:PORT"], secret = "..."}',
        description="STUN and TURN servers of browser calls; one network needs none",
    )


class LanguageModelTable(SettingsTable):
    """The language model that answers the text typed on the page."""

    base_url: Annotated[str, Field(pattern=r"^https?://")]  # up to before /chat/completions
    model: NamedText
    api_key: SecretStr | None = None


@dataclass(frozen=True, slots=True)
class BrowserCallSettings:
    """Limits and contents of calls from browsers."""

    connect_s: float = 8.0  # until the connection is up; ICE over TURN takes a few seconds
    silent_s: float = 10.0  # without any message or audio of the browser; the page pings every second
    lead_s: float = LEAD_S  # speech kept ready in the playout
    speech: CallSpeechOptions = field(default_factory=CallSpeechOptions)
    greeting: str = ""  # "": none
    ice_servers: tuple[
        IceServer, ...
    ] = ()  # also of the pages; none by default: no outside host is contacted
    ports: MediaPorts | None = None  # of this end's UDP sockets; None: any that the system chooses
    chat: ChatSettings | None = None  # None: no language model
    caller_speech_action: CallerSpeechAction = CallerSpeechAction.DISCARD  # the caller interrupts by speaking

    def dated_ice_servers(self) -> tuple[IceServer, ...]:
        """Return the servers with credentials for a call that begins now."""
        return tuple(server.dated(time.time()) for server in self.ice_servers)
