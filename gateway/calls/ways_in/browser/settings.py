"""Settings of browser calls."""

from dataclasses import dataclass, field

from .....adapters.ice_settings import IceServer, MediaPorts
from ...call_options import CallerSpeechAction, CallSpeechOptions
from .chat import ChatSettings


@dataclass(frozen=True, slots=True)
class BrowserCallSettings:
    """Limits and contents of calls from browsers."""

    connect_s: float = 8.0  # until the connection is up; ICE over TURN takes a few seconds
    silent_s: float = 10.0  # without any message or audio of the browser; the page pings every second
    lead_s: float = 0.6  # speech kept ready in the playout
    speech: CallSpeechOptions = field(default_factory=CallSpeechOptions)
    greeting: str = "Hello, this is vivavoce. Type something below, and I will say it."  # "": none
    ice_servers: tuple[
        IceServer, ...
    ] = ()  # also of the pages; none by default: no outside host is contacted
    ports: MediaPorts | None = None  # of this end's UDP sockets; None: any that the system chooses
    chat: ChatSettings | None = None  # None: no language model
    caller_speech_action: CallerSpeechAction = CallerSpeechAction.DISCARD  # the caller interrupts by speaking
