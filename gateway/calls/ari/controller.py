"""Controller of a Stasis application: answers its channels, and connects each to a call over RTP.

    caller's channel --+                        UDP
                       +-- mixing bridge     +------- call (rtp.RtpCallServer)
    UnicastRTP --------+---------------------+

The end of either channel ends the call. When the call ends here, the caller's channel goes on in the dial
plan, or is transferred: to an extension, to an address, or to the caller of another call (an attended
transfer). While the connection to Asterisk is lost, calls go on; when it is back, those whose channel is gone
are ended.

Source: measured with Asterisk 23.4.1: the answer to externalMedia has where to send, and a channel may be
bridged once it has entered the application.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, assert_never
from uuid import uuid4

from ....adapters.rtp.codec import RtpCodec
from ....adapters.rtp.connection import Address, RtpOptions
from ....tts_engine.errors import Overloaded
from ...listening_sockets import format_address
from ..call import Call
from ..caller import Caller
from ..phones.rtp import RtpCallServer, RtpReservation
from ..results import CallNotTransferable
from .client import AriClient, AriFailed, AriNotFound
from .joined_callers import JoinedCallers
from .models import AriChannel, AriEvent, ChannelDtmfReceived, ChannelLeft, StasisStart

logger = logging.getLogger(__name__)

_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0)  # until the connection is tried again; the last one from then on
_ENTER_TIMEOUT_S: Final = 5.0  # for the media's channel to enter the application
_END_TIMEOUT_S: Final = 5.0  # for the requests at the end of the calls
_MEDIA_PREFIX: Final = "vivavoce-media-"
_KEYS: Final = frozenset("0123456789*#ABCD")
_REDIRECTED: Final = ("sip:", "sips:", "tel:")  # by the caller's own telephone system
_CALL_PREFIX: Final = "call:"  # of a transfer to the caller of another call


@dataclass(slots=True, eq=False)
class _AriCall:
    """A caller's channel, from its start to its end."""

    channel: AriChannel
    media_channel: str  # id
    media_entered: asyncio.Event
    call: Call | None = None  # from when it is up
    caller_is_gone: bool = False
    ended: str = ""  # why, if it ended before it was up
    is_joined: bool = False  # its caller goes to the caller of another call
    media_released: asyncio.Event = field(default_factory=asyncio.Event)


class AriController:
    """Serves one application until ``aclose``.

    Args:
        codec: of the media's channels.
        sleep: waits between two connections.
    """

    def __init__(
        self,
        client: AriClient,
        rtp: RtpCallServer,
        codec: RtpCodec,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._rtp = rtp
        self._codec = codec
        self._sleep = sleep
        self._calls: dict[str, _AriCall] = {}  # by the ids of both channels
        self._joined = JoinedCallers(client)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._following = asyncio.create_task(self._follow_events(), name="ari")

    async def aclose(self) -> None:
        """End every call, which leaves its channel to the dial plan, and disconnect.

        Callers who were joined go on; then the end of one does not end the other.
        """
        self._is_closing = True
        for ari_call in tuple(self._calls.values()):
            self._end(ari_call, "shutting down")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_TIMEOUT_S)
        for task in (self._following, *self._tasks):
            task.cancel()
        if self._joined:
            logger.warning("%d pairs of joined callers go on without the gateway", len(self._joined))
        await asyncio.wait({self._following, *self._tasks})
        await self._client.aclose()

    async def originate(self, endpoint: str, *, caller_id: str, variables: Mapping[str, str]) -> str:
        """Call an endpoint, as ``PJSIP/100``; return the id of the call that comes when it answers.

        Raises AriFailed.
        """
        call_id = str(uuid4())
        await self._client.originate(call_id, endpoint, caller_id=caller_id, variables=variables)
        return call_id

    # Events

    async def _follow_events(self) -> None:
        failures = 0
        while True:
            try:
                async with aclosing(self._client.events()) as events:
                    async for event in events:
                        if event is None:
                            logger.info("Connected to Asterisk")
                            failures = 0
                            self._start(self._end_lost_calls())
                        else:
                            self._handle(event)
                problem = "Asterisk closed the connection for events"
            except AriFailed as error:
                problem = str(error)
            retry_s = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
            logger.warning("%s; it is tried again in %g s", problem, retry_s)
            failures += 1
            await self._sleep(retry_s)

    def _handle(self, event: AriEvent) -> None:
        ari_call = self._calls.get(event.channel.id)
        match event:
            case StasisStart(channel=channel, args=args):
                if ari_call is not None:
                    ari_call.media_entered.set()
                elif not channel.id.startswith(_MEDIA_PREFIX) and not self._is_closing:
                    self._start(self._serve(channel, args))
            case ChannelLeft(channel=channel):
                if channel.id in self._joined:
                    self._start(self._quietly(self._joined.part(channel.id)))
                elif ari_call is not None:
                    ari_call.caller_is_gone |= channel.id == ari_call.channel.id
                    self._end(ari_call, "the caller hung up" if ari_call.caller_is_gone else "no media")
            case ChannelDtmfReceived(channel=channel, digit=digit):
                if ari_call is not None and channel.id == ari_call.channel.id:
                    _press(ari_call, digit)
            case _:
                assert_never(event)

    async def _end_lost_calls(self) -> None:
        await self._quietly(self._joined.part_lost())
        for ari_call in {id(one): one for one in self._calls.values()}.values():
            try:
                await self._client.get_channel(ari_call.channel.id)
            except AriNotFound:
                ari_call.caller_is_gone = True
                self._end(ari_call, "the caller hung up")
            except AriFailed as error:
                logger.warning("%s", error)

    def _end(self, ari_call: _AriCall, reason: str) -> None:
        if ari_call.call is not None:
            ari_call.call.hang_up(reason)
        else:
            ari_call.ended = ari_call.ended or reason
            ari_call.media_entered.set()

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("A call from Asterisk failed", exc_info=error)

    # One call

    async def _serve(self, channel: AriChannel, args: list[str]) -> None:
        ari_call = _AriCall(channel, _MEDIA_PREFIX + str(uuid4()), asyncio.Event())
        self._calls[channel.id] = self._calls[ari_call.media_channel] = ari_call
        try:
            reservation = self._rtp.reserve(
                channel.name,
                caller=_caller_of(channel, args),
                check_transfer=partial(self._check_transfer, ari_call),
            )
        except Overloaded:  # logged by the registry
            await self._quietly(self._client.hang_up(channel.id, "congestion"))
            self._forget(ari_call)
            return
        try:
            await self._connect(ari_call, reservation)
        except (AriFailed, OSError, TimeoutError) as error:
            problem = str(error) or "the media's channel did not enter the application"
            logger.warning("Call of channel %s could not be connected: %s", channel.name, problem)
        else:
            if ari_call.call is not None:
                await ari_call.call.wait_closed()
        finally:
            self._rtp.cancel(reservation, ari_call.ended or "Asterisk did not connect it")
            self._forget(ari_call)
            await self._release(ari_call)

    async def _connect(self, ari_call: _AriCall, reservation: RtpReservation) -> None:
        channel, media_channel = ari_call.channel.id, ari_call.media_channel
        await self._client.answer(channel)
        media = await self._client.open_external_media(
            media_channel, format_address(reservation.address), format=self._codec.name
        )
        async with asyncio.timeout(_ENTER_TIMEOUT_S):
            await ari_call.media_entered.wait()
        await self._client.open_bridge(media_channel, channel, media_channel)
        if ari_call.ended:
            return
        # Keys come as events: the caller's channel has them in whatever way the phone sends them.
        options = RtpOptions(self._codec, _media_address(media), key_type=None)
        ari_call.call = self._rtp.open(reservation, options, call_id=channel)

    def _check_transfer(self, ari_call: _AriCall, target: str) -> None:
        """Raise CallNotTransferable for a transfer to a call that is not up, or to itself."""
        if target.startswith(_CALL_PREFIX):
            other = self._calls.get(target.removeprefix(_CALL_PREFIX))
            if other is None or other.call is None or other is ari_call:
                raise CallNotTransferable(f"{target!r} is no other call of Asterisk that is up")

    async def _release(self, ari_call: _AriCall) -> None:
        """Remove the media, and leave the caller to the dial plan or to whom the call was transferred."""
        await self._quietly(self._client.hang_up(ari_call.media_channel))
        await self._quietly(self._client.close_bridge(ari_call.media_channel))
        ari_call.media_released.set()
        if ari_call.caller_is_gone or ari_call.is_joined:
            return
        target = ari_call.call.result.transfer_to if ari_call.call is not None else ""
        channel = ari_call.channel
        if target.startswith(_CALL_PREFIX):
            await self._quietly(self._join(channel, target.removeprefix(_CALL_PREFIX)))
        elif not target:
            await self._quietly(self._client.continue_in_dial_plan(channel.id))
        elif target.startswith(_REDIRECTED):
            await self._quietly(self._client.redirect(channel.id, f"{channel.technology}/{target}"))
        else:
            place = {"context": channel.dialplan.context, "extension": target, "priority": "1"}
            await self._quietly(self._client.continue_in_dial_plan(channel.id, **place))

    async def _join(self, channel: AriChannel, other_id: str) -> None:
        """End another call, and let its caller and that of ``channel`` speak with each other.

        If that fails, both go on in the dial plan. Raises AriFailed.
        """
        other = self._calls.get(other_id)
        if other is None or other.call is None:
            logger.warning("Caller of %s hung up before the transfer", other_id)
            await self._client.continue_in_dial_plan(channel.id)
            return
        other.is_joined = True
        other.call.hang_up(f"joined with {channel.id}")
        await other.media_released.wait()
        try:
            await self._joined.join(channel.id, other_id)
        except AriFailed as error:
            logger.warning("%s", error)
            for left in (channel.id, other_id):
                await self._quietly(self._client.continue_in_dial_plan(left))

    def _forget(self, ari_call: _AriCall) -> None:
        self._calls.pop(ari_call.channel.id, None)
        self._calls.pop(ari_call.media_channel, None)

    async def _quietly(self, request: Awaitable[None]) -> None:
        """Await a request at the end of a call; what it would remove may be gone already."""
        try:
            await request
        except AriNotFound:
            pass
        except AriFailed as error:
            logger.warning("%s", error)


def _press(ari_call: _AriCall, digit: str) -> None:
    if ari_call.call is not None and digit in _KEYS:
        ari_call.call.press(digit)


def _caller_of(channel: AriChannel, args: list[str]) -> Caller:
    """Return the caller; ``name=value`` among the application's arguments are variables too."""
    named = (arg.split("=", 1) for arg in args if "=" in arg)
    variables = channel.channelvars | {name: value for name, value in named}
    return Caller(channel.caller.number, channel.caller.name, channel.dialplan.exten, variables)


def _media_address(media: AriChannel) -> Address | None:
    """Return where Asterisk expects RTP; None for the place from which it sends."""
    host = media.channelvars.get("UNICASTRTP_LOCAL_ADDRESS", "")
    port = media.channelvars.get("UNICASTRTP_LOCAL_PORT", "")
    return (host, int(port)) if host and port.isdecimal() else None
