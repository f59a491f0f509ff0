"""External media: a telephone system keeps the caller, and another way in carries the audio."""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar, runtime_checkable

from ....tts_engine.errors import VivavoceError
from ..agents.agent import Agent
from ..call import Call
from ..call_options import Caller, CallOwner
from ..transfers import CallTransfers

_CONNECT_TIMEOUT_S: Final = 5.0  # for Asterisk to connect to the gateway


class ExternalMediaFailed(VivavoceError):
    """The media of a call could not be connected."""


class SystemChannel(Protocol):
    """A channel of the telephone system."""

    @property
    def id(self) -> str:
        """Unique among all channels."""

    @property
    def name(self) -> str:
        """Technology, slash, and what is unique there."""

    @property
    def channelvars(self) -> Mapping[str, str]:
        """Variables of the channel."""


class SystemCall(Protocol):
    """A caller whom the telephone system keeps."""

    caller: Caller
    agent: Agent | None  # of the call, instead of that of all calls
    owner: CallOwner
    call_id: str
    transfers: CallTransfers
    ended: str  # why, if it ended before it was up

    @property
    def channel(self) -> SystemChannel:
        """The caller's."""

    async def open_media(self, host: str, **parameters: str) -> SystemChannel:
        """Answer the caller, and make the channel of the media; raises VivavoceError.

        Args:
            host: where the telephone system finds the gateway.
            parameters: others of Asterisk's ``externalMedia``.
        """

    async def media_url(self, media: SystemChannel) -> str:
        """Return the URL of the WebSocket on which the channel of the media waits; raises VivavoceError."""

    async def bridge_media(self) -> None:
        """Let the caller and the media hear each other; raises VivavoceError."""

    def connect(self, call: Call) -> None:
        """Note the call, which is up."""


@runtime_checkable
class ExternalMedia(Protocol):
    """A way in over which the audio of a caller is exchanged."""

    name: str  # for the log
    setting: str  # its value of the setting ``ari.media``
    module: str  # of Asterisk

    async def serve(self, caller: SystemCall) -> None:
        """Connect the media of a call, and serve it to its end.

        Raises Overloaded before anything is asked of the telephone system, what the methods of ``caller``
        raise, ExternalMediaFailed and OSError.
        """


AnyConnection = TypeVar("AnyConnection")


async def wait_connected(awaited: "asyncio.Future[AnyConnection]") -> AnyConnection:
    """Wait until Asterisk has connected to the gateway; raises ExternalMediaFailed after five seconds."""
    try:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            return await awaited
    except TimeoutError:
        raise ExternalMediaFailed("Asterisk did not connect to the gateway") from None
