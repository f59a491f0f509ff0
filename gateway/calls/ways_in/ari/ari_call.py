"""A caller's channel in the application: its external media, its bridge and its call."""

import asyncio
from collections.abc import Callable
from typing import Final
from uuid import uuid4

from ...agents import Agent
from ...call import Call
from ...caller import NO_OWNER, Caller, CallOwner
from ...transfers import CallTransfers
from ..external_media import SystemChannel
from .client import AriClient, AriFailed
from .models import AriChannel

MEDIA_PREFIX: Final = "vivavoce-media-"
_ENTER_TIMEOUT_S: Final = 5.0  # for the media's channel to enter the application
_KEYS: Final = frozenset("0123456789*#ABCD")


class AriCall:
    """A caller's channel, from its start to its end: a ``SystemCall``.

    Args:
        args: of ``Stasis()``; those with an equals sign are variables.
        agent: of the call, instead of that of all calls.
        on_connected: called when the call is up.
        owner: whose the call is.
    """

    def __init__(
        self,
        client: AriClient,
        channel: AriChannel,
        args: list[str],
        agent: Agent | None = None,
        on_connected: Callable[[Call], None] = lambda call: None,
        owner: CallOwner = NO_OWNER,
    ) -> None:
        self.channel = channel
        self.media_channel = MEDIA_PREFIX + str(uuid4())  # id
        self.caller = _caller_of(channel, args)
        self.agent = agent
        self.owner = owner
        self.transfers: CallTransfers
        self.call: Call | None = None  # from when it is up
        self.caller_is_gone = False
        self.ended = ""  # why, if it ended before it was up
        self.is_joined = False  # its caller goes to the caller of another call
        self.media_entered = asyncio.Event()
        self.media_released = asyncio.Event()
        self._client = client
        self._on_connected = on_connected

    # Called by the external media

    async def open_media(self, host: str, **parameters: str) -> AriChannel:
        """Answer the caller, and make the channel of the external media; raises AriFailed.

        Args:
            host: as ``external_host``, where Asterisk finds the gateway.
            parameters: others of ``externalMedia``.
        """
        await self._client.answer(self.channel.id)
        return await self._client.open_external_media(self.media_channel, host, **parameters)

    async def media_url(self, media: SystemChannel) -> str:
        """Return the URL of the WebSocket on which the channel of the media waits; raises AriFailed."""
        return await self._client.media_url(media)

    async def bridge_media(self) -> None:
        """Bridge the caller with the media once its channel has entered the application; raises AriFailed."""
        try:
            async with asyncio.timeout(_ENTER_TIMEOUT_S):
                await self.media_entered.wait()
        except TimeoutError:
            raise AriFailed("the media's channel did not enter the application") from None
        self._require_up()
        await self._client.open_bridge(self.media_channel, self.channel.id, self.media_channel)
        self._require_up()

    def connect(self, call: Call) -> None:
        """Note the call, which is up."""
        self.call = call
        # Keys come as events: the caller's channel has them in whatever way the phone sends them.
        call.listening.takes_media_keys = False
        self._on_connected(call)
        if self.ended:
            call.end.hang_up(self.ended)

    # Called by the controller

    def press(self, digit: str) -> None:
        """Take a key that was pressed on the caller's channel."""
        if self.call is not None and digit in _KEYS:
            self.call.listening.press(digit)

    def end(self, reason: str) -> None:
        """End the call, also before it is up."""
        if self.call is not None:
            self.call.end.hang_up(reason)
        else:
            self.ended = self.ended or reason
            self.media_entered.set()

    def _require_up(self) -> None:
        if self.ended:
            raise AriFailed(self.ended)


def _caller_of(channel: AriChannel, args: list[str]) -> Caller:
    named = (arg.split("=", 1) for arg in args if "=" in arg)
    variables = channel.channelvars | {name: value for name, value in named}
    return Caller(channel.caller.number, channel.caller.name, channel.dialplan.exten, variables)
