"""Controller of a Stasis application: answers its channels, and connects each to a call over external media.

    caller's channel --+                        RTP, chan_websocket or AudioSocket (kits.external_media)
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
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import ExitStack, aclosing
from typing import Any, Final, assert_never

from .....tts_engine.errors import Overloaded
from ....access.access_control import Grant
from ....background_tasks import cancel_and_wait
from ...call import Call
from ...kits.external_media import ExternalMedia, ExternalMediaFailed
from ...kits.transfers import check_no_endpoint
from ...registry import GRANT_ENDED, CallRegistry
from ...transfers import (
    CALL_PREFIX,
    AttendedTransfer,
    CallNotTransferable,
    TransferFailed,
)
from .ari_call import AriCall
from .client import AriClient, AriFailed, AriNotFound, AriReplaced, AriUnreachable, choose_media
from .consultation import CONSULTATION, Consultation
from .gateway_identity import GatewayIdentity, is_media
from .joined_callers import JoinedCallers
from .models import (
    AriChannel,
    AriEvent,
    ChannelDtmfReceived,
    ChannelHold,
    ChannelLeft,
    Dial,
    StasisStart,
)
from .originated_calls import ORIGINATED, OriginatedCalls
from .orphans import find_orphans, place_of_orphan
from .requests import AriCallRequest

logger = logging.getLogger(__name__)

_RETRY_S: Final = (0.5, 1.0)  # until the connection is tried again; the last one from then on
_LOG_EVERY: Final = 60  # attempts
_GONE_AFTER: Final = 3  # attempts, the last of which says that Asterisk's calls are over
_STAND_BY_S: Final = 2.0
_END_TIMEOUT_S: Final = 5.0  # for the requests at the end of the calls
_REDIRECTED: Final = ("sip:", "sips:", "tel:")  # by the caller's own telephone system


class AriController:
    """Serves one application until ``aclose``.

    Args:
        ways: of the external media, the best one first; the first that Asterisk has is used.
        registry: of the calls.
        formats: of channels of ``Local`` that are called.
    """

    def __init__(
        self,
        client: AriClient,
        ways: Sequence[ExternalMedia],
        registry: CallRegistry,
        *,
        formats: str = "",
    ) -> None:
        self._client = client
        self._ways = ways
        self._media = ways[-1]  # chosen at each connection
        self._registry = registry
        self._calls: dict[str, AriCall] = {}  # by the ids of both channels
        self._consultations: dict[str, Consultation] = {}  # by the ids of their channels
        self._identity = GatewayIdentity(client)
        self._joined = JoinedCallers(client, self._identity.new_joined_id)
        self._originated = OriginatedCalls(
            client, registry.outgoing, formats, self._hang_up, self._end_originated
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._following = asyncio.create_task(self._follow_events(), name="ari")
        self._counting = asyncio.create_task(
            self._identity.run(lambda: bool(self._calls or len(self._joined))), name="ari count"
        )

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
        await cancel_and_wait(self._following, self._counting, *self._tasks)
        await self._client.aclose()

    async def originate(self, wanted: AriCallRequest, grant: Grant) -> str:
        """Have Asterisk call; return the id of the call. Raises RateLimited and AriFailed."""
        return await self._originated.place(
            wanted.endpoint,
            caller_id=wanted.caller_id,
            variables=wanted.variables,
            ring_s=wanted.ring_s,
            detects_answer=wanted.detect_answer,
            grant=grant,
        )

    def _end_originated(self, call_id: str) -> None:
        ari_call = self._calls.get(call_id)
        if ari_call is not None:
            ari_call.end(GRANT_ENDED)
        else:
            self._hang_up(call_id)

    def _hang_up(self, channel_id: str) -> None:
        self._start(self._quietly(self._client.hang_up(channel_id)))

    # Events

    async def _follow_events(self) -> None:
        failures, was_connected = 0, False
        while True:
            try:
                async with aclosing(self._client.events()) as events:
                    async for event in events:
                        if event is None:
                            logger.info("Connected to Asterisk")
                            failures = 0
                            self._media = await choose_media(self._client, self._ways)
                            self._start(self._look_around(was_connected))
                            was_connected = True
                        else:
                            self._handle(event)
                problem = "Asterisk closed the connection for events"
            except AriReplaced as error:
                logger.warning("%s; this one takes no more calls, and looks after those that are up", error)
                await self._stand_by()
                problem = "the other gateway is gone"
            except AriFailed as error:
                problem = str(error)
                if isinstance(error, AriUnreachable) and failures >= _GONE_AFTER:
                    self._end_calls("Asterisk does not run")
            retry_s = _RETRY_S[min(failures, len(_RETRY_S) - 1)]
            log = logger.warning if failures < len(_RETRY_S) or failures % _LOG_EVERY == 0 else logger.debug
            log("%s; it is tried again in %g s", problem, retry_s)
            failures += 1
            await asyncio.sleep(retry_s)

    def _end_calls(self, reason: str) -> None:
        for ari_call in set(self._calls.values()):
            ari_call.note_gone()
            ari_call.end(reason)

    async def _stand_by(self) -> None:
        """Look after the calls that are up, without events, until the other gateway is gone."""
        while await self._is_registered():
            await asyncio.sleep(_STAND_BY_S)
            await self._end_lost_calls()

    async def _is_registered(self) -> bool:
        try:
            return await self._client.is_registered()
        except AriFailed:
            return False

    def _handle(self, event: AriEvent) -> None:
        ari_call = self._calls.get(event.channel.id)
        match event:
            case StasisStart():
                self._take_channel(event, ari_call)
            case ChannelLeft():
                self._take_end(event, ari_call)
            case Dial(forward=extension) if extension and event.forwarded is None:
                self._start(self._take_forward(event))
            case Dial(dialstatus=status):
                self._originated.take_progress(event)
                if status == "RINGING" and (consultation := self._consultations.get(event.channel.id)):
                    consultation.ring()
            case ChannelHold(type=kind):
                if ari_call is not None and event.channel.id == ari_call.channel.id:
                    ari_call.set_hold(kind == "ChannelHold")
            case ChannelDtmfReceived(digit=digit):
                if ari_call is not None and event.channel.id == ari_call.channel.id:
                    ari_call.press(digit)
            case _:
                assert_never(event)

    def _take_channel(self, event: StasisStart, ari_call: AriCall | None) -> None:
        channel, args = event.channel, event.args
        purpose = next((arg for arg in args if arg.startswith((CONSULTATION, ORIGINATED))), "")
        first_id = purpose.partition(":")[2]
        if ari_call is not None:
            ari_call.media_entered.set()
        elif purpose.startswith(CONSULTATION):
            self._take_target(channel, self._consultations.get(first_id))
        elif purpose and self._originated.get(first_id) is None:
            self._hang_up(channel.id)  # it was given up, and answered later
        elif (replaced := self._replaced(event)) is not None:
            media_id = self._identity.new_media_id(channel.id)
            self._start(self._serve(AriCall(self._client, channel, media_id, args, replaced=replaced)))
        elif not is_media(channel.id) and not self._is_closing:
            self._take_caller(channel, [arg for arg in args if arg != purpose], first_id)

    def _replaced(self, event: StasisStart) -> AriCall | None:
        """Return the call of a telephone that has transferred its other caller to it (Replaces)."""
        return None if event.replace_channel is None else self._calls.get(event.replace_channel.id)

    def _take_target(self, channel: AriChannel, consultation: Consultation | None) -> None:
        """Serve the target of an attended transfer, which may have forwarded the call to another one."""
        if consultation is None:
            self._hang_up(channel.id)
            return
        consultation.answer(channel.id)
        self._consultations[channel.id] = consultation
        agent, media_id = consultation.agent, self._identity.new_media_id(channel.id)
        ari_call = AriCall(self._client, channel, media_id, [], agent=agent, on_connected=self._hide)
        self._start(self._serve(ari_call))

    def _take_caller(self, channel: AriChannel, args: list[str], call_id: str = "") -> None:
        media_id, originated = self._identity.new_media_id(channel.id), self._originated.get(call_id)
        if originated is None:
            ari_call = AriCall(self._client, channel, media_id, args)
        else:
            ari_call = AriCall(
                self._client,
                channel,
                media_id,
                args,
                call_id=call_id,
                caller=originated.record.caller,
                on_connected=originated.record.take_answer,
                owner=originated.record.owner,
            )
        self._start(self._serve(ari_call))

    def _take_end(self, event: ChannelLeft, ari_call: AriCall | None) -> None:
        channel = event.channel
        if ari_call is None:
            self._originated.take_end(event)
        if (consultation := self._consultations.get(channel.id)) is not None:
            consultation.fail(channel.id, event.cause)
        if channel.id in self._joined:
            self._start(self._quietly(self._joined.part(channel.id)))
        elif ari_call is not None:
            if channel.id == ari_call.channel.id:
                ari_call.note_gone()
            ari_call.end("the caller hung up" if ari_call.caller_is_gone else "no media")

    async def _take_forward(self, event: Dial) -> None:
        """Call the extension that a telephone forwards a call to."""
        consultation = self._consultations.get(event.channel.id)
        if consultation is None:
            await self._originated.forward(event)
        elif (forwarded := consultation.forward(event)) is not None:
            self._consultations[forwarded.channel] = consultation
            try:
                await self._client.originate(forwarded)
            except AriFailed as error:
                logger.warning("%s", error)
                consultation.fail(forwarded.channel, 3)

    def _hide(self, call: Call) -> None:
        """Keep programs that wait for the next call from one that is for an announcement."""
        self._registry.get(call.call_id).attached = True

    async def _look_around(self, was_connected: bool) -> None:
        """End the calls that went while nobody listened, and care for callers whom no gateway serves."""
        if was_connected:
            await self._end_lost_calls()
        try:
            orphans = await find_orphans(self._client, self._identity, self._is_ours)
        except AriFailed as error:
            logger.warning("%s", error)
            return
        if orphans is None:
            return
        for pair in orphans.pairs:
            if len(pair.channels) == 2:
                self._joined.adopt(pair.id, *pair.channels)
            else:
                await self._quietly(self._client.close_bridge(pair.id))
        for media in orphans.media:
            await self._quietly(self._client.hang_up(media))
        for bridge in orphans.bridges:
            await self._quietly(self._client.close_bridge(bridge))
        for caller in orphans.callers:
            # The dial plan knows what to do when the agent is gone, and may hand the caller over again.
            place = place_of_orphan(caller)
            where = "enters the application again" if place else "goes on in the dial plan"
            logger.warning("Caller of %s is served by no gateway: it %s", caller.name, where)
            await self._quietly(self._client.continue_in_dial_plan(caller.id, **place))

    def _is_ours(self, channel: str) -> bool:
        return (
            channel in self._calls
            or channel in self._consultations
            or channel in self._joined
            or self._originated.get(channel) is not None
        )

    async def _end_lost_calls(self) -> None:
        await self._quietly(self._joined.part_lost())
        for ari_call in {id(one): one for one in self._calls.values()}.values():
            if await self._is_gone(ari_call.channel.id):
                ari_call.note_gone()
                ari_call.end("the caller hung up")
        for call_id, channel in self._originated.ringing.items():
            if call_id not in self._calls and await self._is_gone(channel):
                self._originated.forget(call_id)

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
        for id_ in (channel.id, ari_call.call_id, ari_call.media_channel):
            self._calls[id_] = ari_call
        try:
            await ari_call.identify()
            await self._media.serve(ari_call)
        except Overloaded:  # logged by the registry
            ari_call.caller_is_gone = True
            await self._quietly(self._client.hang_up(channel.id, "congestion"))
        except (AriFailed, ExternalMediaFailed, OSError) as error:
            is_over = ari_call.caller_is_gone or isinstance(error, AriNotFound)
            level = logging.INFO if is_over else logging.WARNING
            logger.log(level, "Call of channel %s could not be connected: %s", channel.name, error)
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
            await self._quietly(self._client.continue_in_dial_plan(channel.id, **ari_call.next_place))
        elif target.startswith(_REDIRECTED):
            await self._quietly(self._client.hang_up(channel.id))  # its telephone has gone there
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
        self._originated.forget(ari_call.call_id)
        for id_ in (ari_call.channel.id, ari_call.call_id, ari_call.media_channel):
            self._calls.pop(id_, None)

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
        self._consultations[consultation.channel] = consultation
        try:
            with ExitStack() as undo:
                # Before it is called: Asterisk may do so although its answer does not come.
                undo.callback(lambda: self._hang_up(consultation.channel))
                await self._client.originate(consultation.origination)
                await consultation.wait_announced(caller)
                target = CALL_PREFIX + consultation.channel
                self.check_transfer(ari_call, target)
                caller.end.leave_for(target)
                undo.pop_all()
        except AriFailed as error:
            raise TransferFailed(f"{consultation.target} cannot be called: {error}") from None
        finally:
            for channel_id in [key for key, each in self._consultations.items() if each is consultation]:
                del self._consultations[channel_id]

    async def refer(self, ari_call: AriCall, target: str) -> None:
        """Have the caller's telephone call an address; raises TransferFailed if it does not."""
        try:
            has_gone = await ari_call.refer(f"{ari_call.channel.technology}/{target}")
        except AriFailed as error:
            raise TransferFailed(f"{target} cannot be called: {error}") from None
        if not has_gone:
            raise TransferFailed(
                f"the caller's telephone has not reached {target}; the caller is still on the call"
            )


class AriTransfers:
    """The transfers of one caller: by the dial plan, to an address, to another caller, or attended."""

    def __init__(self, controller: AriController, ari_call: AriCall) -> None:
        self._controller = controller
        self._ari_call = ari_call
        self._target = ""  # of the attended transfer that is under way

    def check(self, target: str) -> None:
        """Raise CallNotTransferable if the caller cannot be transferred to ``target``."""
        self._controller.check_transfer(self._ari_call, target)

    def refer(self, target: str) -> Coroutine[Any, Any, None] | None:
        """Have the caller's telephone call an address; None: the caller leaves when the call ends."""
        is_address = target.startswith(_REDIRECTED)
        return self._controller.refer(self._ari_call, target) if is_address else None

    async def attend(self, transfer: AttendedTransfer) -> None:
        """Call the target, announce the caller, and join both; raises CallNotTransferable, TransferFailed."""
        if self._target:
            raise CallNotTransferable(f"a transfer to {self._target} is under way")
        consultation = Consultation(transfer, self._ari_call)
        self._target = transfer.target
        try:
            await self._controller.consult(self._ari_call, consultation)
        finally:
            self._target = ""
