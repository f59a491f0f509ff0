"""The record of a way into a call: the socket and routes that it adds to a server, and the calls it makes.

``call_servers.WAYS_IN`` lists the ways; a package adds one with an entry point of ``vivavoce.ways_in``.
"""

import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ....adapters.media.clock import Clock
from ....adapters.media.paced_media import SpeechDetector
from ....adapters.media.phone_media import PhoneMedia, WireOpening
from ....adapters.playback.background import BackgroundLoops, BackgroundMixer
from ....adapters.unidentified_connections import UnidentifiedConnections
from ...access.access_control import AccessControl
from ...configuration.settings import Settings
from ...voice_registry import VoiceRegistry
from ...web.app import Mount
from ..agents.agent import CallAgents
from ..api.placed_calls import PlaceCall, PlacedCalls
from ..call_options import CallSettings
from ..expected_calls import ExpectedCalls
from ..recordings import CallRecordings
from ..registry import CallRegistry
from ..sounds.sound_files import SoundLibrary

if TYPE_CHECKING:
    from ....tts_engine.speech_engine import SpeechEngine


class WayInServer(Protocol):
    """The calls of a way in."""

    async def aclose(self) -> None:
        """End every call, and wait until nothing is left of any."""


@dataclass(frozen=True, slots=True)
class OpenWayIn:
    """A way in of a running server."""

    server: WayInServer | None = None  # closed with the server; None: it has no calls of its own
    mounts: tuple[Mount, ...] = ()
    place_call: PlaceCall | None = None  # takes the requests of ``WayIn.placed_calls``
    external_media: object | None = None  # ``kits.external_media``, for a way in with a telephone system


@dataclass(frozen=True, slots=True)
class CallServices:
    """What the calls of a server run on."""

    engine: "SpeechEngine"
    registry: CallRegistry
    recordings: CallRecordings | None = None  # None: calls cannot be recorded
    sounds: SoundLibrary | None = None  # None: programs can play nothing
    background: BackgroundLoops | None = None  # under the speech of calls whose media are here; None: nothing

    def background_mixer(self, sample_rate: int) -> BackgroundMixer | None:
        """Return what mixes the sounds into the packets of a call whose media are here."""
        return None if self.background is None else self.background.mixer(sample_rate)


@dataclass(frozen=True, slots=True)
class CallHost:
    """What the ways in of a server share."""

    settings: Settings
    call_settings: CallSettings  # of every call
    services: CallServices
    agents: CallAgents
    expected: ExpectedCalls
    voices: VoiceRegistry
    access: AccessControl
    media: PhoneMedia  # plays the speech of phones
    clock: Clock  # of the calls whose packets this process sends
    unidentified_websockets: UnidentifiedConnections  # without a call yet
    make_speech_detector: Callable[[], SpeechDetector]
    sockets: Mapping[str, socket.socket]  # bound, by the names of the ways in that listen
    opened: Mapping[str, OpenWayIn]  # the ways in that are listed earlier, by name


@dataclass(frozen=True, slots=True)
class TcpListener:
    """Where a way in listens for connections."""

    title: str  # in the line of a server that is ready
    host: str
    port: int  # 0: the system chooses
    flag: str  # of the command line, which sets the port


@dataclass(frozen=True, slots=True)
class WayIn:
    """A way into a call."""

    name: str
    open: Callable[[CallHost], Awaitable[OpenWayIn]]  # raises VivavoceError
    listens: Callable[[Settings], TcpListener] | None = None  # bound before the engine is opened
    wire: type[WireOpening] | None = None  # of its calls in a media server; None: they are in this process
    placed_calls: PlacedCalls | None = None  # that a program can ask for
    greeting: str = ""  # of a call without an agent
