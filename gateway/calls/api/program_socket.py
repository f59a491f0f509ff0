"""A program on a WebSocket that is attached to a call, or waits for one."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import aclosing, suppress
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
from .messages import BadCallMessage, ClientMessage, HangUpMessage, ServerMessage, parse_client_message
from .utterance_queue import MAX_WAITING_CHARACTERS

logger = logging.getLogger(__name__)

SEND_TIMEOUT_S = 5.0  # a socket that accepts nothing for longer is closed
NEXT_CALL_ID = "next"
_MAX_UNSENT_MESSAGES = 2_000  # about ten minutes of words
_MAX_UNSENT_AUDIO_BYTES = 160_000  # 5 s at 16 kHz; older audio is dropped first
HANG_UP_REASON = "hung up by the calls API"

# Close codes: 4000 plus an HTTP status, in the range that RFC 6455, 7.4.2 leaves to applications.
CLOSE_UNKNOWN, CLOSE_ALREADY_ATTACHED, CLOSE_TOO_SLOW, CLOSE_KEY_REFUSED = 4404, 4409, 4408, 4401
CLOSE_NORMAL, CLOSE_FAILED = 1000, 1011
_CODES_OF_REFUSALS: Final[Mapping[type[Exception], int]] = MappingProxyType(
    {CallUnknown: CLOSE_UNKNOWN, CallAlreadyAttached: CLOSE_ALREADY_ATTACHED, GrantEnded: CLOSE_KEY_REFUSED}
)


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """What a program on a socket is sent beyond the messages that every program gets."""

    caller_audio: bool = False
    all_events: bool = False


class OutboxOverrun(Exception):
    """The peer does not read its messages."""


class Outbox:
    """Messages and audio on their way to a socket that may be slow; iterates over them until ``close``.

    Bounded: above 2,000 messages the iteration raises OutboxOverrun after what was queued; only the newest
    160,000 bytes of audio are kept.
    """

    def __init__(self) -> None:
        self._items: deque[str | bytes] = deque()
        self._audio_bytes = 0
        self._overrun = self._closed = False
        self._changed = asyncio.Event()

    def put(self, message: ServerMessage) -> None:
        """Queue a message."""
        if self._closed or self._overrun:
            return
        self._overrun = len(self._items) >= _MAX_UNSENT_MESSAGES
        if not self._overrun:
            self._items.append(json.dumps(message.fields()))
        self._changed.set()

    def put_audio(self, pcm: bytes) -> None:
        """Queue audio, and drop the oldest if too much is queued."""
        if self._closed or self._overrun:
            return
        self._items.append(pcm)
        self._audio_bytes += len(pcm)
        while self._audio_bytes > _MAX_UNSENT_AUDIO_BYTES:
            oldest = next(item for item in self._items if isinstance(item, bytes))
            self._items.remove(oldest)
            self._audio_bytes -= len(oldest)
        self._changed.set()

    def close(self) -> None:
        """End the iteration after what is queued; later items are dropped."""
        self._closed = True
        self._changed.set()

    def __aiter__(self) -> "Outbox":
        return self

    async def __anext__(self) -> str | bytes:
        while not self._items:
            if self._overrun:
                raise OutboxOverrun(f"{_MAX_UNSENT_MESSAGES} messages were not read")
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        item = self._items.popleft()
        if isinstance(item, bytes):
            self._audio_bytes -= len(item)
        return item


class ProgramSocket:
    """A program on a socket. It may wait for a call, attach to it, and leave while the call goes on."""

    def __init__(
        self,
        socket: WebSocket,
        registry: CallRegistry,
        speech: CallSpeechOptions,
        voices: VoiceRegistry,
        options: ProgramOptions,
    ) -> None:
        self._socket = socket
        self._calls = KeyCalls.of(registry, socket)
        self._speech = speech.for_grant(self._calls.grant)
        self._voices = voices.for_grant(self._calls.grant)
        self._options = options
        self._outbox = Outbox()
        self._attachment: CallAttachment | None = None
        self._ringing: OutgoingCall | None = None  # that it waits for
        self._early_messages: deque[ClientMessage] = deque()  # received before the call was there
        self._early_characters = 0

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
        attached = asyncio.create_task(self._serve_call(call_id))
        received = asyncio.create_task(self._receive_messages())
        sent = asyncio.create_task(self._send_outbox())
        try:
            # When the call is over, the outbox is closed and sent to its end.
            await asyncio.wait({received, sent}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(attached, received, sent)
        return _close_code(attached, received, sent)

    async def _serve_call(self, call_id: str) -> int:
        try:
            return await self._attach(call_id)
        except (CallUnknown, CallAlreadyAttached, GrantEnded) as error:
            self._outbox.put(describe_error(error))
            return _CODES_OF_REFUSALS[type(error)]
        finally:
            self._outbox.close()

    async def _attach(self, call_id: str) -> int:
        calls = self._calls
        if (outgoing := calls.outgoing(call_id)) is not None and not await self._wait_answered(outgoing):
            return CLOSE_NORMAL
        active_call = await calls.next_unattached() if call_id == NEXT_CALL_ID else calls.get(call_id)
        with calls.attach(active_call):
            attachment = CallAttachment(
                active_call,
                AttachmentOptions(self._speech, HANG_UP_REASON, all_events=self._options.all_events),
                send=self._outbox.put,
                send_audio=self._outbox.put_audio if self._options.caller_audio else None,
                voices=self._voices,
                calls=calls,
            )
            async with aclosing(attachment):
                attachment.open()
                while self._early_messages:
                    attachment.execute_or_report(self._early_messages.popleft())
                self._attachment = attachment
                await attachment.wait_over()
        return CLOSE_NORMAL

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

    async def _receive_messages(self) -> None:
        while (received := await self._socket.receive())["type"] != "websocket.disconnect":
            try:
                message = self._parse(received.get("text"))
            except BadCallMessage as error:
                self._outbox.put(describe_error(error))
                continue
            if self._ringing is not None and isinstance(message, HangUpMessage):
                self._ringing.cancel()
            elif self._attachment is None:
                self._early_messages.append(message)
            else:
                self._attachment.execute_or_report(message)

    def _parse(self, text: str | None) -> ClientMessage:
        if text is None:
            raise BadCallMessage("binary messages are not taken; send JSON text")
        message = parse_client_message(text)
        if self._attachment is None:
            if self._early_characters + len(text) > MAX_WAITING_CHARACTERS:
                raise BadCallMessage(
                    f"more than {MAX_WAITING_CHARACTERS} characters are waiting for the call"
                )
            self._early_characters += len(text)
        return message

    async def _send_outbox(self) -> None:
        async for item in self._outbox:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                if isinstance(item, bytes):
                    await self._socket.send_bytes(item)
                else:
                    await self._socket.send_text(item)


def _close_code(attached: asyncio.Task[int], received: asyncio.Task[None], sent: asyncio.Task[None]) -> int:
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
