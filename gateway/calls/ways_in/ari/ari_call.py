"""A caller's channel in the application: its external media, its bridge and its call."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from ....background_tasks import wait_at_most
from ...agents.agent import Agent
from ...call import Call
from ...call_options import NO_OWNER, Caller, CallOwner
from ...kits.external_media import SystemChannel
from ...transfers import CallTransfers
from .client import KEY_S, AriClient, AriFailed, AriNotFound
from .models import AriChannel

_ENTER_TIMEOUT_S: Final = 5.0  # for the media's channel to enter the application
_IDENTIFY_S: Final = 0.05
_IDENTIFY_TRIES: Final = 10
_KEYS: Final = frozenset("0123456789*#ABCD")
_TRANSFERRED_S: Final = 1.0  # in which a telephone hangs up or holds after its transfer
_MAX_TRANSFER_S: Final = 300.0  # while which the target rings
_OWN_VARIABLES: Final = ("MEDIA_WEBSOCKET_", "UNICASTRTP_", "DIALEDPEERNUMBER")  # of channels of the media


class AriCall:
    """A caller's channel, from its start to its end: a ``SystemCall``.

    Args:
        media_id: of the media's channel, and of the bridge.
        args: of ``Stasis()``; those with an equals sign are variables.
        call_id: of the call; "": that of the channel.
        caller: instead of what the channel says.
        agent: of the call, instead of that of all calls.
        on_connected: called when the call is up.
        owner: whose the call is.
        replaced: the call of a telephone that has transferred another caller to it, who takes its place: in
            the dial plan, and as to what was called.
    """

    def __init__(
        self,
        client: AriClient,
        channel: AriChannel,
        media_id: str,
        args: list[str],
        *,
        call_id: str = "",
        caller: Caller | None = None,
        agent: Agent | None = None,
        on_connected: Callable[[Call], None] = lambda call: None,
        owner: CallOwner = NO_OWNER,
        replaced: "AriCall | None" = None,
    ) -> None:
        self.next_place: dict[str, str] = {}  # in the dial plan; {}: the one after the application
        self._is_unknown = replaced is not None  # Asterisk says the caller a moment later
        if replaced is not None:
            place = replaced.channel.dialplan
            channel = channel.model_copy(update={"dialplan": place})
            caller = replace(_caller_of(channel, args), called=replaced.caller.called)
            next_ = {"context": place.context, "extension": place.exten, "priority": str(place.priority + 1)}
            self.next_place = next_
        self.channel: AriChannel = channel
        self.media_channel = media_id
        self.call_id = call_id or channel.id
        self.caller: Caller = caller or _caller_of(channel, args)
        self.agent = agent
        self.owner = owner
        self.transfers: CallTransfers
        self.call: Call | None = None  # from when it is up
        self.caller_is_gone = False
        self.left = asyncio.Event()  # the caller's channel has
        self.ended = ""  # why, if it ended before it was up
        self.is_joined = False  # its caller goes to the caller of another call
        self.media_entered = asyncio.Event()
        self.media_released = asyncio.Event()
        self._client = client
        self._on_connected = on_connected

    async def identify(self) -> None:
        """Wait a moment for the number of a caller who was transferred here by a telephone.

        Raises AriNotFound, AriFailed.
        """
        tries = _IDENTIFY_TRIES if self._is_unknown else 0
        while tries and not self.caller.number:
            tries -= 1
            told = (await self._client.get_channel(self.channel.id)).caller
            self.caller = replace(self.caller, number=told.number, name=told.name)
            if not told.number:
                await asyncio.sleep(_IDENTIFY_S)

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
        call.key_sender = self._send_keys
        self._on_connected(call)
        if self.ended:
            call.end.hang_up(self.ended)

    # Called by the controller

    def press(self, digit: str) -> None:
        """Take a key that was pressed on the caller's channel."""
        if self.call is not None and digit in _KEYS:
            self.call.listening.press(digit)

    def set_hold(self, on_hold: bool) -> None:
        """Take that the caller's telephone holds the call, or does not any more."""
        if self.call is not None:
            self.call.set_hold(on_hold)

    async def refer(self, endpoint: str) -> bool:
        """Have the caller's telephone call an endpoint; return whether it has gone there. Raises AriFailed.

        Asterisk tells no result: its next command to the channel waits until the transfer has ended, and a
        telephone that has gone elsewhere hangs up, or holds the call (RFC 5589, 6.1). The caller leaves the
        bridge meanwhile, whose thread would take the answer away.
        """
        await self._client.leave_bridge(self.media_channel, self.channel.id)
        try:
            await self._client.redirect(self.channel.id, endpoint)
            await self._client.join_bridge(self.media_channel, self.channel.id, _MAX_TRANSFER_S)
        except AriNotFound:
            return True
        except AriFailed:
            if self.caller_is_gone:
                return True
            raise
        await wait_at_most(self.left, _TRANSFERRED_S)
        return self.caller_is_gone or (self.call is not None and self.call.on_hold)

    def note_gone(self) -> None:
        """Note that the caller's channel has left."""
        self.caller_is_gone = True
        self.left.set()

    async def _send_keys(self, digits: str) -> None:
        await self._client.send_keys(self.channel.id, digits)
        await asyncio.sleep(len(digits) * KEY_S)

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
    own = {name: value for name, value in channel.channelvars.items() if not name.startswith(_OWN_VARIABLES)}
    variables = own | {name: value for name, value in named}
    return Caller(channel.caller.number, channel.caller.name, channel.dialplan.exten, variables)
