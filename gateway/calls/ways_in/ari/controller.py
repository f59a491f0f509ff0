"""Controller of a Stasis application: answers its channels, and connects each to a call over external media.

    caller's channel --+                        RTP, chan_websocket or AudioSocket (ways_in.external_media)
                       +-- mixing bridge     +------- call
    external media ----+---------------------+

The end of either channel ends the call. When the call ends here, the caller's channel goes on in the dial
plan, or is transferred: to an extension, to an address, or to the caller of another call (an attended
transfer). While the connection to Asterisk is lost, calls go on; when it is back, those whose channel is gone
are ended.

Source: measured with Asterisk 23.4.1: the answer to externalMedia has where to send, and a channel may be
bridged once it has entered the application.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, assert_never
from uuid import uuid4

from .....tts_engine.errors import Overloaded
from ....access.access_control import Grant
from ....background_tasks import cancel_and_wait
from ...call import Call
from ...caller import NO_OWNER, CallOwner
from ...registry import GRANT_ENDED, CallRegistry
from ...transfers import (
    CALL_PREFIX,
    AttendedTransfer,
    CallNotTransferable,
    TransferFailed,
    check_no_endpoint,
)
from ..external_media import ExternalMedia, ExternalMediaFailed
from .ari_call import MEDIA_PREFIX, AriCall
from .client import AriClient, AriFailed, AriNotFound, choose_media
from .consultation import Consultation, caller_id_of
from .joined_callers import JoinedCallers
from .models import AriChannel, AriEvent, ChannelDtmfReceived, ChannelLeft, StasisStart

logger = logging.getLogger(__name__)

_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0)  # until the connection is tried again; the last one from then on
_END_TIMEOUT_S: Final = 5.0  # for the requests at the end of the calls
_REDIRECTED: Final = ("sip:", "sips:", "tel:")  # by the caller's own telephone system


@dataclass(slots=True)
class PlacedCall:
    """A call that a key has asked for, from its ringing to its end."""

    owner: CallOwner
    release: Callable[[], None]  # what counts it
    is_ringing: bool = False  # whether Asterisk has taken the request


class AriController:
    """Serves one application until ``aclose``.

    Args:
        ways: of the external media, the best one first; the first that Asterisk has is used.
        registry: of the calls.
        sleep: waits between two connections.
    """

    def __init__(
        self,
        client: AriClient,
        ways: Sequence[ExternalMedia],
        registry: CallRegistry,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._ways = ways
        self._media = ways[-1]  # chosen at each connection
        self._registry = registry
        self._sleep = sleep
        self._calls: dict[str, AriCall] = {}  # by the ids of both channels
        self._consultations: dict[str, Consultation] = {}  # by the ids of their channels
        self._placed: dict[str, PlacedCall] = {}  # by the ids of their channels
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
            ari_call.end("shutting down")
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_TIMEOUT_S)
        if self._joined:
            logger.warning("%d pairs of joined callers go on without the gateway", len(self._joined))
        await cancel_and_wait(self._following, *self._tasks)
        await self._client.aclose()

    async def originate(
        self, endpoint: str, *, caller_id: str, variables: Mapping[str, str], grant: Grant
    ) -> str:
        """Call an endpoint, as ``PJSIP/100``; return the id of the call that comes when it answers.

        grant: of the key, which counts the call and ends it, also while it rings. Raises RateLimited and
        AriFailed.
        """
        call_id = str(uuid4())
        release = grant.open_call(partial(self._end_placed, call_id))
        self._placed[call_id] = PlacedCall(CallOwner(grant.key_id), release)
        try:
            await self._client.originate(call_id, endpoint, caller_id=caller_id, variables=variables)
        except AriFailed:
            # Asterisk may call although its answer does not come.
            self._start(self._quietly(self._client.hang_up(call_id)))
            self._forget_placed(call_id)
            raise
        if call_id in self._placed:
            self._placed[call_id].is_ringing = True
        return call_id

    def _end_placed(self, channel_id: str) -> None:
        ari_call = self._calls.get(channel_id)
        if ari_call is not None:
            ari_call.end(GRANT_ENDED)
        else:
            self._start(self._quietly(self._client.hang_up(channel_id)))

    def _forget_placed(self, channel_id: str) -> None:
        placed = self._placed.pop(channel_id, None)
        if placed is not None:
            placed.release()

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
                            self._media = await choose_media(self._client, self._ways)
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
        channel = event.channel
        ari_call = self._calls.get(channel.id)
        consultation = self._consultations.get(channel.id)
        match event:
            case StasisStart(args=args):
                if ari_call is not None:
                    ari_call.media_entered.set()
                elif consultation is not None:
                    consultation.answer()
                    agent = consultation.agent
                    self._start(self._serve(AriCall(self._client, channel, args, agent, self._hide)))
                elif not channel.id.startswith(MEDIA_PREFIX) and not self._is_closing:
                    placed = self._placed.get(channel.id)
                    owner = NO_OWNER if placed is None else placed.owner
                    self._start(self._serve(AriCall(self._client, channel, args, owner=owner)))
            case ChannelLeft(cause=cause):
                if ari_call is None:
                    self._forget_placed(channel.id)
                if consultation is not None:
                    consultation.fail(cause)
                if channel.id in self._joined:
                    self._start(self._quietly(self._joined.part(channel.id)))
                elif ari_call is not None:
                    ari_call.caller_is_gone |= channel.id == ari_call.channel.id
                    ari_call.end("the caller hung up" if ari_call.caller_is_gone else "no media")
            case ChannelDtmfReceived(digit=digit):
                if ari_call is not None and channel.id == ari_call.channel.id:
                    ari_call.press(digit)
            case _:
                assert_never(event)

    def _hide(self, call: Call) -> None:
        """Keep programs that wait for the next call from one that is for an announcement."""
        self._registry.get(call.call_id).attached = True

    async def _end_lost_calls(self) -> None:
        await self._quietly(self._joined.part_lost())
        for ari_call in {id(one): one for one in self._calls.values()}.values():
            if await self._is_gone(ari_call.channel.id):
                ari_call.caller_is_gone = True
                ari_call.end("the caller hung up")
        for channel_id, placed in tuple(self._placed.items()):
            if placed.is_ringing and channel_id not in self._calls and await self._is_gone(channel_id):
                self._forget_placed(channel_id)

    async def _is_gone(self, channel_id: str) -> bool:
        try:
            await self._client.get_channel(channel_id)
        except AriNotFound:
            return True
        except AriFailed as error:
            logger.warning("%s", error)
        return False

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

    async def _serve(self, ari_call: AriCall) -> None:
        channel = ari_call.channel
        ari_call.transfers = AriTransfers(self, ari_call)
        self._calls[channel.id] = self._calls[ari_call.media_channel] = ari_call
        try:
            await self._media.serve(ari_call)
        except Overloaded:  # logged by the registry
            ari_call.caller_is_gone = True
            await self._quietly(self._client.hang_up(channel.id, "congestion"))
        except (AriFailed, ExternalMediaFailed, OSError) as error:
            logger.warning("Call of channel %s could not be connected: %s", channel.name, error)
        finally:
            self._forget(ari_call)
            await self._release(ari_call)

    async def _release(self, ari_call: AriCall) -> None:
        """Remove the media, and leave the caller to the dial plan or to whom the call was transferred."""
        await self._quietly(self._client.hang_up(ari_call.media_channel))
        await self._quietly(self._client.close_bridge(ari_call.media_channel))
        ari_call.media_released.set()
        if ari_call.caller_is_gone or ari_call.is_joined:
            return
        target = ari_call.call.end.result.transfer_to if ari_call.call is not None else ""
        channel = ari_call.channel
        if target.startswith(CALL_PREFIX):
            await self._quietly(self._join(channel, target.removeprefix(CALL_PREFIX)))
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
        other.call.end.hang_up(f"joined with {channel.id}")
        await other.media_released.wait()
        try:
            await self._joined.join(channel.id, other_id)
        except AriFailed as error:
            logger.warning("%s", error)
            for left in (channel.id, other_id):
                await self._quietly(self._client.continue_in_dial_plan(left))

    def _forget(self, ari_call: AriCall) -> None:
        self._forget_placed(ari_call.channel.id)
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

    # Transfers

    def check_transfer(self, ari_call: AriCall, target: str) -> None:
        """Raise CallNotTransferable for an endpoint, and for a call that is not up or the same."""
        check_no_endpoint(target)
        if target.startswith(CALL_PREFIX):
            other = self._calls.get(target.removeprefix(CALL_PREFIX))
            if other is None or other.call is None or other is ari_call:
                raise CallNotTransferable(f"{target!r} is no other call of Asterisk that is up")

    async def consult(self, ari_call: AriCall, consultation: Consultation) -> None:
        """Call a target, announce the caller, and join both; raises TransferFailed."""
        caller = ari_call.call
        if caller is None or ari_call.channel.id not in self._calls:
            raise TransferFailed("the call is not up")
        target = consultation.channel
        self._consultations[target] = consultation
        try:
            with ExitStack() as undo:
                # Before it is called: Asterisk may do so although its answer does not come.
                undo.callback(lambda: self._start(self._quietly(self._client.hang_up(target))))
                await self._client.originate(
                    target,
                    consultation.endpoint,
                    caller_id=caller_id_of(ari_call.caller),
                    ring_s=consultation.ring_s,
                )
                await consultation.wait_announced(caller)
                self.check_transfer(ari_call, CALL_PREFIX + target)
                caller.end.leave_for(CALL_PREFIX + target)
                undo.pop_all()
        except AriFailed as error:
            raise TransferFailed(f"{consultation.target} cannot be called: {error}") from None
        finally:
            del self._consultations[target]


class AriTransfers:
    """The transfers of one caller: by the dial plan, to an address, to another caller, or attended."""

    def __init__(self, controller: AriController, ari_call: AriCall) -> None:
        self._controller = controller
        self._ari_call = ari_call
        self._target = ""  # of the attended transfer that is under way

    def check(self, target: str) -> None:
        """Raise CallNotTransferable if the caller cannot be transferred to ``target``."""
        self._controller.check_transfer(self._ari_call, target)

    def refer(self, target: str) -> None:
        """Do nothing: the caller is transferred when the call ends."""

    async def attend(self, transfer: AttendedTransfer) -> None:
        """Call the target, announce the caller, and join both; raises CallNotTransferable, TransferFailed."""
        if self._target:
            raise CallNotTransferable(f"a transfer to {self._target} is under way")
        consultation = Consultation(transfer, self._ari_call.channel.dialplan.context)
        self._target = transfer.target
        try:
            await self._controller.consult(self._ari_call, consultation)
        finally:
            self._target = ""
