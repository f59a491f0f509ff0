"""One browser on the line: what its connection tells, what its session says to it, and how it ends.

The connection is ``adapters.webrtc``'s, what is said and told ``session``'s, in the words of ``dialects``;
which browsers are let in, and what calls are allowed, is ``calls``' affair.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from ...adapters.playback.playout import Playout
from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.errors import Overloaded, VivavoceError
from ..access.access_control import Grant
from ..calls.call import Call
from ..calls.messages import check_message_length, describe_error
from .data_channel_dialects import DataChannelDialect, PageDialect, detect_dialect
from .page_channel import PageChannel, PageChannelSettings

if TYPE_CHECKING:
    from .calls import BrowserCalls

logger = logging.getLogger(__name__)

_MAX_EARLY_MESSAGES = 64  # messages to a page that has not said anything yet
_TICKS_PER_STATS = 50
_CALLER_SAMPLE_RATE = 16_000  # Hz, what a peer decodes the caller's audio to


class BrowserPeer(Protocol):
    """A browser's connection, as ``adapters.webrtc.Peer`` is one."""

    answer_sdp: str

    @property
    def dropped(self) -> int:
        """Packets that were not sent in time."""

    async def renegotiate(self, offer_sdp: str) -> None:
        """Take another offer; raises BadRequest."""

    async def add_candidate(self, candidate: str, mid: str | None, line: int | None) -> None:
        """Take a trickled candidate, "" for the last; raises BadRequest."""

    def feed(self, packet: bytes) -> None:
        """Send 20 ms of s16le mono at 24 kHz."""

    def discard(self) -> None:
        """Drop speech that has not left."""

    def send_message(self, message: str) -> None:
        """Send a text message."""

    def close(self, reason: str) -> None:
        """End the connection; the leg is told at once."""

    async def aclose(self) -> None:
        """End the connection and wait until nothing of it is left."""


class BrowserLeg:
    """One browser's call. Boundary: whatever goes wrong in it ends this call alone."""

    def __init__(self, calls: "BrowserCalls", call_id: str, peer_name: str, grant: Grant) -> None:
        self.call_id = call_id
        self.call: Call | None = None
        self.peer: BrowserPeer | None = None  # until it has been answered
        self._calls = calls
        self._peer_name = peer_name
        self._grant = grant
        self._page_channel: PageChannel | None = None
        self._dialect: DataChannelDialect = PageDialect()
        self._early_sent: deque[dict[str, object]] = deque(maxlen=_MAX_EARLY_MESSAGES)
        self._is_dialect_known = False  # whether the page has said anything, by which its dialect is known
        self._tasks: list[asyncio.Task[None]] = []
        self._ticks = 0
        self._over = False

    @property
    def dropped(self) -> int:
        """Packets that were not sent in time."""
        return 0 if self.peer is None else self.peer.dropped

    async def connect(self, pending_peer: Awaitable[BrowserPeer]) -> BrowserPeer:
        """Wait until the browser is answered. Raises Overloaded if the call was ended meanwhile."""
        peer = await pending_peer
        if self._over:
            await peer.aclose()
            raise Overloaded("the call was ended here", reason="shutting_down", retry_after_s=5.0)
        self.peer = peer
        return peer

    # What the peer tells

    def on_connected(self) -> None:
        """Sound can flow: the call begins."""
        with self._end_on_error():
            self._begin()

    def _begin(self) -> None:
        calls, settings, peer = self._calls, self._calls.settings, self.peer
        assert peer is not None
        self.call = call = Call(
            self.call_id,
            engine=calls.engine,
            playout=Playout(start=calls.clock.join(self), sample_rate=SAMPLE_RATE),
            send=peer.feed,
            close=self.end,
            speech=settings.speech,
            lead_s=settings.lead_s,
        )
        if calls.make_speech_detector is not None:
            call.set_speech_detector(calls.make_speech_detector())
        call.caller_speech_action = settings.caller_speech_action
        greeting = settings.greeting if calls.agent is None else ""
        policy = PageChannelSettings(greeting, settings.speech, settings.chat)
        voices = calls.voices.for_grant(self._grant)
        self._page_channel = PageChannel(call, self, voices, policy, self._grant.charge_characters)
        calls.registry.open(self, call, kind="webrtc", peer=self._peer_name)
        page_channel, agent = self._page_channel, calls.agent
        self._tasks = [calls.start_task(self._run_guarded(page_channel.run))]
        if agent is not None:
            self._tasks.append(calls.start_task(self._run_guarded(lambda: agent.run(call))))

    def on_message(self, message: str) -> None:
        """The page says something; what cannot be made sense of is answered with an error."""
        if self._page_channel is None or message.startswith("ping"):
            return
        with self._end_on_error():
            try:
                self._handle_message(message, self._page_channel)
            except VivavoceError as error:
                self.send_message(describe_error(error))

    def on_audio(self, pcm: bytes) -> None:
        """The caller says something."""
        if self.call is not None and not self._over:
            with self._end_on_error():
                self.call.receive_audio(pcm, _CALLER_SAMPLE_RATE)

    def on_closed(self, reason: str) -> None:
        """The browser is gone: the call is over."""
        if self._over:
            return
        self._over = True
        self._calls.clock.leave(self)
        for task in self._tasks:
            task.cancel()
        if self.call is None:
            logger.info("Call from %s came to nothing: %s", self._peer_name, reason)
        self._calls.registry.remove(self, reason)
        if self.peer is not None:
            self._calls.start_task(self.peer.aclose())
        self._calls.remove(self)

    # What the clock calls

    def tick(self, now: float) -> int:
        """Send what is due."""
        if self.call is None or self._over:
            return 0
        self._ticks += 1
        if self._ticks % _TICKS_PER_STATS == 0 and self._page_channel is not None:
            self._page_channel.send_stats()
        return self.call.tick(now)

    def fail(self, error: Exception) -> None:
        """Something of ours broke: this call ends."""
        logger.error("Call %s failed", self.call_id, exc_info=error)
        self.end("an error of ours")

    # What the session says to the page

    def send_message(self, message: dict[str, object]) -> None:
        """Send a message in the page's own words."""
        if not self._is_dialect_known:
            self._early_sent.append(message)
        for text in self._dialect.write(message):
            self._send(text)

    def discard(self) -> None:
        """Drop speech that has not left."""
        if self.peer is not None:
            self.peer.discard()

    def end(self, reason: str) -> None:
        """Hang up."""
        if self._over:
            return
        self.send_message({"type": "hung_up"})
        if self.peer is None:
            self.on_closed(reason)
        else:
            self.peer.close(reason)

    def _handle_message(self, message: str, page_channel: PageChannel) -> None:
        check_message_length(message)
        if isinstance(self._dialect, PageDialect):
            self._dialect = detect_dialect(message, "ask" if self._calls.settings.chat else "text")
        decoded = self._dialect.read(message)
        for answer in decoded.replies:
            self._send(answer)
        if not self._is_dialect_known and (decoded.replies or decoded.requests):
            self._on_dialect_known()
        for request in decoded.requests:
            page_channel.execute(request)

    def _on_dialect_known(self) -> None:
        self._is_dialect_known = True
        if not isinstance(self._dialect, PageDialect):  # what was told in other words, once more
            for message in self._early_sent:
                self.send_message(message)
        self._early_sent.clear()

    def _send(self, text: str) -> None:
        if self.peer is not None:
            self.peer.send_message(text)

    async def _run_guarded(self, run: Callable[[], Awaitable[None]]) -> None:
        with self._end_on_error():
            await run()  # made here: a task that is cancelled before it begins would leave it unawaited

    @contextmanager
    def _end_on_error(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.fail(error)
