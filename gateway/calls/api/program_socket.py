"""A program on a WebSocket that is attached to a call, or waits for one."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fastapi import WebSocket, WebSocketDisconnect

from ...access.errors import GrantEnded
from ...access.grant_ends import LAST_MESSAGE_S, ending_with_grants
from ...background_tasks import cancel_and_wait
from ...voice_registry import VoiceRegistry
from ...web.websocket import close_socket
from ..call_options import CallSpeechOptions
from ..events import HungUp, OutgoingStateChanged
from ..outgoing.outgoing_calls import OutgoingCall
from ..outgoing.states import OutgoingState
from ..registry import CallAlreadyAttached, CallRegistry, CallUnknown
from .attachment import AttachmentOptions, CallAttachment
from .descriptions import describe_error, describe_event
from .key_calls import KeyCalls
from .messages import (
    BadCallMessage,
    ClientMessage,
    HangUpMessage,
    ResumedMessage,
    parse_client_message,
)
from .outbox import Outbox, OutboxOverrun
from .program_session import ProgramSession, ProgramSessions
from .utterance_queue import MAX_WAITING_CHARACTERS

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 5.0  # a socket that accepts nothing for longer is closed
NEXT_CALL_ID = "next"
MAX_KEEP_S: Final = 120.0
HANG_UP_REASON = "hung up by the calls API"

# Close codes: 4000 plus an HTTP status, in the range that RFC 6455, 7.4.2 leaves to applications.
CLOSE_UNKNOWN, CLOSE_ALREADY_ATTACHED, CLOSE_TOO_SLOW, CLOSE_KEY_REFUSED = 4404, 4409, 4408, 4401
CLOSE_BAD_REQUEST = 4400
CLOSE_NORMAL, CLOSE_FAILED = 1000, 1011
_CODES_OF_REFUSALS: Final[Mapping[type[Exception], int]] = MappingProxyType(
    {
        BadCallMessage: CLOSE_BAD_REQUEST,
        CallUnknown: CLOSE_UNKNOWN,
        CallAlreadyAttached: CLOSE_ALREADY_ATTACHED,
        GrantEnded: CLOSE_KEY_REFUSED,
    }
)


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """How a program on a socket is served."""

    caller_audio: bool = False  # whether it is sent the caller's audio
    all_events: bool = False  # whether it is sent more than the messages that every program gets
    keep_s: float = 0.0  # how long it may be without a socket, once this one is lost
    received: int | None = None  # messages that it got on its earlier sockets; None: it had none


class ProgramSocket:
    """A program on a socket. It may wait for a call, attach to it, and leave while the call goes on."""

    def __init__(
        self,
        socket: WebSocket,
        registry: CallRegistry,
        sessions: ProgramSessions,
        speech: CallSpeechOptions,
        voices: VoiceRegistry,
        options: ProgramOptions,
    ) -> None:
        self._socket = socket
        self._calls = KeyCalls.of(registry, socket)
        self._sessions = sessions
        self._voices = voices.for_grant(self._calls.grant)
        self._speech = speech.for_grant(self._calls.grant, self._voices)
        self._options = options
        self._outbox = Outbox(keeps_taken=options.keep_s > 0)
        self._session: ProgramSession | None = None
        self._resumed: ResumedMessage | None = None
        self._sent: asyncio.Task[None] | None = None
        self._ringing: OutgoingCall | None = None  # that it waits for
        self._early_messages: deque[ClientMessage] = deque()  # received before the call was there
        self._early_characters = self._early_count = 0

    async def run(self, call_id: str) -> None:
        """Serve until the call is over, the key is not valid any more or the socket is gone; close it."""
        reason = ""
        try:
            with ending_with_grants():
                code = await self._serve(call_id)
        except GrantEnded as error:
            code, reason = CLOSE_KEY_REFUSED, str(error)
            await self._report(error)
        # Last, because a program that does not read does not complete the closing handshake either.
        await close_socket(self._socket, code, reason)

    async def _report(self, error: GrantEnded) -> None:
        with suppress(TimeoutError, WebSocketDisconnect, RuntimeError):
            async with asyncio.timeout(LAST_MESSAGE_S):
                await self._socket.send_text(json.dumps(describe_error(error).fields()))

    async def _serve(self, call_id: str) -> int:
        """Return the code to close the socket with."""
        # The first one begins first, and may find the session whose messages the last one sends.
        attached = asyncio.create_task(self._serve_call(call_id))
        received = asyncio.create_task(self._receive_messages())
        self._sent = sent = asyncio.create_task(self._send_outbox())
        was_lost = False
        try:
            # When the call is over, the outbox is closed and sent to its end.
            await asyncio.wait({received, sent}, return_when=asyncio.FIRST_COMPLETED)
            was_lost = _was_lost(received, sent)
        finally:
            await cancel_and_wait(attached, received, sent)
            was_replaced = await self._leave_session(was_lost=was_lost)
        return CLOSE_ALREADY_ATTACHED if was_replaced else _close_code(attached, received, sent)

    async def _leave_session(self, *, was_lost: bool) -> bool:
        """Keep the session if the socket was lost, else end it; return whether another socket serves it."""
        session = self._session
        if session is None:
            return False
        if not session.is_served_by(self._stop_sending):
            return True
        if was_lost and self._options.keep_s:
            session.keep(self._options.keep_s)
        else:
            await session.aclose()
        return False

    def _stop_sending(self) -> None:
        """Another socket of the program takes its session over."""
        if self._sent is not None:
            self._sent.cancel()

    async def _serve_call(self, call_id: str) -> int:
        try:
            session = self._resume(call_id) or await self._attach(call_id)
            if session is None:
                return CLOSE_NORMAL
            await session.wait_over()
            return CLOSE_NORMAL
        except (BadCallMessage, CallUnknown, CallAlreadyAttached, GrantEnded) as error:
            self._outbox.put(describe_error(error))
            return _CODES_OF_REFUSALS[type(error)]
        finally:
            if self._session is None or self._session.is_over:
                self._outbox.close()

    def _resume(self, call_id: str) -> ProgramSession | None:
        """Take the session over that the program had on its last socket, if there is one."""
        received = self._options.received
        if received is None or call_id == NEXT_CALL_ID:
            return None
        try:
            session = self._sessions.find(self._calls.get(call_id), self._calls)
        except CallUnknown:  # of an outgoing call too, which may be answered later
            return None
        if session is None:
            return None
        missed = session.outbox.rewind(received)
        session.connect(self._stop_sending)
        self._session, self._outbox = session, session.outbox
        self._resumed = ResumedMessage(
            type="resumed", call=call_id, taken=session.taken_messages, missed=missed
        )
        return session

    async def _attach(self, call_id: str) -> ProgramSession | None:
        """Attach the program to a call; return None if the call that it waited for is not answered."""
        calls = self._calls
        if (outgoing := calls.outgoing(call_id)) is not None and not await self._wait_answered(outgoing):
            return None
        active_call = await calls.next_unattached() if call_id == NEXT_CALL_ID else calls.get(call_id)
        earlier = self._sessions.find(active_call, calls)
        if earlier is not None and earlier.is_kept:
            await earlier.aclose()
        attachment = CallAttachment(
            active_call,
            AttachmentOptions(self._speech, HANG_UP_REASON, all_events=self._options.all_events),
            send=self._outbox.put,
            send_audio=self._outbox.put_audio if self._options.caller_audio else None,
            voices=self._voices,
            calls=calls,
        )
        self._session = session = self._sessions.open(active_call, calls, attachment, self._outbox)
        session.connect(self._stop_sending)
        session.taken_messages = self._early_count
        while self._early_messages:
            attachment.execute_or_report(self._early_messages.popleft())
        return session

    async def _wait_answered(self, call: OutgoingCall) -> bool:
        """Send each state of a call that the gateway makes; return whether it is up."""
        decided = asyncio.Event()

        def tell(call: OutgoingCall) -> None:
            self._outbox.put(describe_event(OutgoingStateChanged(call.state, call.sip)))
            if call.is_answered or call.state.is_over:
                decided.set()

        call.listeners.add(tell)
        self._ringing = call
        try:
            tell(call)
            await decided.wait()
        finally:
            self._ringing = None
            call.listeners.discard(tell)
        if call.state is OutgoingState.ANSWERED:
            return True
        self._outbox.put(describe_event(HungUp()))
        return False

    async def _receive_messages(self) -> int:
        """Take messages until the socket is closed; return the code that it was closed with."""
        while (received := await self._socket.receive())["type"] != "websocket.disconnect":
            try:
                self._take(self._parse(received.get("text")))
            except BadCallMessage as error:
                self._outbox.put(describe_error(error))
            if self._session is None:
                self._early_count += 1
            else:
                self._session.taken_messages += 1
        return int(received["code"])

    def _take(self, message: ClientMessage) -> None:
        if self._ringing is not None and isinstance(message, HangUpMessage):
            self._ringing.cancel()
        elif self._session is None:
            self._early_messages.append(message)
        else:
            self._session.attachment.execute_or_report(message)

    def _parse(self, text: str | None) -> ClientMessage:
        if text is None:
            raise BadCallMessage("binary messages are not taken; send JSON text")
        message = parse_client_message(text)
        if self._session is None:
            if self._early_characters + len(text) > MAX_WAITING_CHARACTERS:
                raise BadCallMessage(
                    f"more than {MAX_WAITING_CHARACTERS} characters are waiting for the call"
                )
            self._early_characters += len(text)
        return message

    async def _send_outbox(self) -> None:
        if self._resumed is not None:
            await self._send(json.dumps(self._resumed.fields()))
        async for item in self._outbox:
            await self._send(item)

    async def _send(self, item: str | bytes) -> None:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            if isinstance(item, bytes):
                await self._socket.send_bytes(item)
            else:
                await self._socket.send_text(item)


def _was_lost(received: asyncio.Task[int], sent: asyncio.Task[None]) -> bool:
    """Return whether a socket is gone that the program did not close with 1000."""
    if received.done():
        return received.exception() is None and received.result() != CLOSE_NORMAL
    error = None if sent.cancelled() else sent.exception()
    return isinstance(error, WebSocketDisconnect | TimeoutError)


def _close_code(attached: asyncio.Task[int], received: asyncio.Task[int], sent: asyncio.Task[None]) -> int:
    """Return the close code for how the three tasks of a socket ended; log a fault of the server."""
    if received.done() and not received.cancelled() and received.exception() is None:
        return CLOSE_NORMAL  # the program is gone; other tasks may have failed because of that
    errors = [task.exception() for task in (sent, received, attached) if not task.cancelled()]
    match next((error for error in errors if error is not None), None):
        case None:
            return attached.result()
        case WebSocketDisconnect():
            return CLOSE_NORMAL
        case OutboxOverrun() | TimeoutError():
            return CLOSE_TOO_SLOW
        case error:
            logger.error("Serving a program on a call failed", exc_info=error)
            return CLOSE_FAILED
