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

from ...adapters.playout import Playout
from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.errors import Overloaded, VivavoceError
from ..access.access import Grant
from ..call import Call
from ..call_messages import check_length, describe_error
from .dialects import Dialect, PageDialect, dialect_of
from .session import BrowserSession, SessionPolicy

if TYPE_CHECKING:
    from .calls import BrowserCalls

logger = logging.getLogger(__name__)

_MOST_TOLD_EARLY = 64  # messages to a page that has not said anything yet
_TICKS_A_STAT = 50
_HEARD_RATE = 16_000  # Hz, what a peer decodes the caller's audio to


class Peer(Protocol):
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

    def tell(self, message: str) -> None:
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
        self.peer: Peer | None = None  # until it has been answered
        self._calls = calls
        self._peer_name = peer_name
        self._grant = grant
        self._session: BrowserSession | None = None
        self._dialect: Dialect = PageDialect()
        self._told_early: deque[dict[str, object]] = deque(maxlen=_MOST_TOLD_EARLY)
        self._is_understood = False  # whether the page has said anything, by which its dialect is known
        self._saying: list[asyncio.Task[None]] = []
        self._ticks = 0
        self._over = False

    @property
    def dropped(self) -> int:
        """Packets that were not sent in time."""
        return 0 if self.peer is None else self.peer.dropped

    async def connect(self, answering: Awaitable[Peer]) -> Peer:
        """Wait until the browser is answered. Raises Overloaded if the call was ended meanwhile."""
        peer = await answering
        if self._over:
            await peer.aclose()
            raise Overloaded("the call was ended here", reason="shutting_down", retry_after_s=5.0)
        self.peer = peer
        return peer

    # What the peer tells

    def on_connected(self) -> None:
        """Sound can flow: the call begins."""
        with self._boundary():
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
        if calls.make_ear is not None:
            call.listen_for_speech(calls.make_ear())
        call.on_speech = settings.on_speech
        greeting = settings.greeting if calls.agent is None else ""
        policy = SessionPolicy(greeting, settings.speech, settings.chat)
        voices = calls.voices.seen_by(self._grant)
        self._session = BrowserSession(call, self, voices, policy, self._grant.charge_characters)
        calls.registry.open(self, call, kind="webrtc", peer=self._peer_name)
        session, agent = self._session, calls.agent
        self._saying = [calls.own(self._guard(session.run))]
        if agent is not None:
            self._saying.append(calls.own(self._guard(lambda: agent.run(call))))

    def on_message(self, message: str) -> None:
        """The page says something; what cannot be made sense of is answered with an error."""
        if self._session is None or message.startswith("ping"):
            return
        with self._boundary():
            try:
                self._take(message, self._session)
            except VivavoceError as error:
                self.tell(describe_error(error))

    def on_audio(self, pcm: bytes) -> None:
        """The caller says something."""
        if self.call is not None and not self._over:
            with self._boundary():
                self.call.hear(pcm, _HEARD_RATE)

    def on_closed(self, reason: str) -> None:
        """The browser is gone: the call is over."""
        if self._over:
            return
        self._over = True
        self._calls.clock.leave(self)
        for task in self._saying:
            task.cancel()
        if self.call is None:
            logger.info("Call from %s came to nothing: %s", self._peer_name, reason)
        self._calls.registry.leave(self, reason)
        if self.peer is not None:
            self._calls.own(self.peer.aclose())
        self._calls.leave(self)

    # What the clock calls

    def tick(self, now: float) -> int:
        """Send what is due."""
        if self.call is None or self._over:
            return 0
        self._ticks += 1
        if self._ticks % _TICKS_A_STAT == 0 and self._session is not None:
            self._session.tell_stats()
        return self.call.tick(now)

    def fail(self, error: Exception) -> None:
        """Something of ours broke: this call ends."""
        logger.error("Call %s failed", self.call_id, exc_info=error)
        self.end("an error of ours")

    # What the session says to the page

    def tell(self, message: dict[str, object]) -> None:
        """Send a message in the page's own words."""
        if not self._is_understood:
            self._told_early.append(message)
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
        self.tell({"type": "hung_up"})
        if self.peer is None:
            self.on_closed(reason)
        else:
            self.peer.close(reason)

    def _take(self, message: str, session: BrowserSession) -> None:
        check_length(message)
        if isinstance(self._dialect, PageDialect):
            self._dialect = dialect_of(message, "ask" if self._calls.settings.chat else "text")
        read = self._dialect.read(message)
        for answer in read.answers:
            self._send(answer)
        if not self._is_understood and (read.answers or read.requests):
            self._understand()
        for request in read.requests:
            session.do(request)

    def _understand(self) -> None:
        self._is_understood = True
        if not isinstance(self._dialect, PageDialect):  # what was told in other words, once more
            for message in self._told_early:
                self.tell(message)
        self._told_early.clear()

    def _send(self, text: str) -> None:
        if self.peer is not None:
            self.peer.tell(text)

    async def _guard(self, work: Callable[[], Awaitable[None]]) -> None:
        with self._boundary():
            await work()  # made here: a task that is cancelled before it begins would leave it unawaited

    @contextmanager
    def _boundary(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.fail(error)
