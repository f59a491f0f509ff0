"""Calls from browsers: opens, refuses and ends them, and is told what happens on each.

How offers come in is ``routes``' affair, the connection is ``adapters.webrtc``'s, what is said on it
``session``'s.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from ...adapters.playout import Playout
from ...tts_engine.chunk import SAMPLE_RATE
from ...tts_engine.errors import Overloaded, VivavoceError
from ..access.access import Grant
from ..agents import Agent
from ..call import Call, Ear, OnSpeech, Speech
from ..call_messages import BadMessage
from ..call_registry import CallRegistry
from ..clock import Clock
from ..voice_registry import KeyVoices, VoiceRegistry
from .chat import ChatSettings
from .dialects import Dialect, PageDialect, dialect_of
from .session import MOST_MESSAGE, BrowserSession, SessionPolicy

if TYPE_CHECKING:
    from ...tts_engine.engine import Engine

logger = logging.getLogger(__name__)

_MOST_STARTED = 256  # sessions that were started and are remembered
_MOST_TOLD_EARLY = 64  # messages to a page that has not said anything yet
_TICKS_A_STAT = 50
_HEARD_RATE = 16_000  # Hz, what a peer decodes the caller's audio to


@dataclass(frozen=True, slots=True)
class BrowserCallSettings:
    """What calls from browsers are allowed and told. Times in seconds.

    ``connect_s``: until a browser is reached; ``silent_s``: that a connected one may say nothing at all.
    ``ice_servers``: STUN or TURN URLs, none by default; ``chat``: None without a language model.
    """

    connect_s: float = 15.0
    silent_s: float = 10.0
    lead_s: float = 0.6
    speech: Speech = field(default_factory=Speech)
    greeting: str = "Hello, this is vivavoce. Type something below, and I will say it."
    ice_servers: tuple[str, ...] = ()
    chat: ChatSettings | None = None
    on_speech: OnSpeech = OnSpeech.DISCARD  # talk over it and it stops


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


class Offer(BaseModel):
    """A browser's offer, as SmallWebRTC clients post it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    sdp: str
    type: Literal["offer"]
    pc_id: Annotated[str, Field(max_length=64)] | None = None
    restart_pc: bool | None = None
    request_data: Any = Field(None, validation_alias=AliasChoices("request_data", "requestData"))


class Candidate(BaseModel):
    """One trickled ICE candidate; "" is the last."""

    candidate: str
    sdp_mid: str | None = None
    sdp_mline_index: Annotated[int, Field(ge=0, le=64)] | None = None


class Candidates(BaseModel):
    """Trickled candidates of one connection."""

    pc_id: Annotated[str, Field(max_length=64)]
    candidates: Annotated[list[Candidate], Field(max_length=256)]


class BrowserCalls:
    """All calls from browsers; the registry says which fit.

    ``agent``: answers instead of the greeting; ``make_ear``: makes what judges whether a caller speaks, None
    where nobody wants to know; ``connect``: takes the place of WebRTC.
    """

    def __init__(
        self,
        *,
        engine: "Engine",
        clock: Clock,
        registry: CallRegistry,
        voices: VoiceRegistry,
        settings: BrowserCallSettings = BrowserCallSettings(),
        agent: Agent | None = None,
        make_ear: Callable[[], Ear] | None = None,
        connect: "Connect | None" = None,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.registry = registry
        self.voices = voices
        self.settings = settings
        self.agent = agent
        self.make_ear = make_ear
        self._connect = connect or _connect_by_webrtc
        self._legs: dict[str, BrowserLeg] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._started: dict[str, None] = {}  # ids of sessions, oldest first
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until nothing is left of any call, its end included."""
        await self._idle.wait()

    def start(self) -> str:
        """Remember a new session; answers its id."""
        session_id = str(uuid.uuid4())
        self._started[session_id] = None
        if len(self._started) > _MOST_STARTED:
            del self._started[next(iter(self._started))]
        return session_id

    def is_started(self, session_id: str) -> bool:
        """Whether a session of that id was started, lately."""
        return session_id in self._started

    async def take_offer(self, offer: Offer, peer_name: str, grant: Grant) -> dict[str, str]:
        """Answer an offer: a new call with the voices of that grant, or another offer of one that is up.

        Raises:
            BadRequest: the offer cannot be used.
            Overloaded: the call does not fit.
        """
        leg = self._legs.get(offer.pc_id or "")
        if leg is not None and offer.restart_pc:
            leg.end("the browser begins anew")
            leg = None
        if leg is None or leg.peer is None:
            leg, peer = await self._open(offer.sdp, peer_name, self.voices.seen_by(grant))
        else:
            peer = leg.peer
            await peer.renegotiate(offer.sdp)
        return {"sdp": peer.answer_sdp, "type": "answer", "pc_id": leg.call_id}

    async def take_candidates(self, candidates: Candidates) -> None:
        """Hand trickled candidates on; raises BadRequest, KeyError for a call that is not up."""
        peer = self._legs[candidates.pc_id].peer
        if peer is None:
            raise KeyError(candidates.pc_id)
        for candidate in candidates.candidates:
            await peer.add_candidate(candidate.candidate, candidate.sdp_mid, candidate.sdp_mline_index)

    async def aclose(self) -> None:
        """End every call and wait until nothing of any is left."""
        self.registry.refuse_calls()
        for leg in tuple(self._legs.values()):
            leg.end("shutting down")
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # What legs call

    def leave(self, leg: "BrowserLeg") -> None:
        """A call is over."""
        self._legs.pop(leg.call_id, None)
        self._note_idle()

    def own(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Keep a task until it is done."""
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._disown)
        return task

    def _disown(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._legs and not self._tasks:
            self._idle.set()

    async def _open(self, offer_sdp: str, peer_name: str, voices: KeyVoices) -> tuple["BrowserLeg", Peer]:
        leg = BrowserLeg(self, str(uuid.uuid4()), peer_name, voices)
        self.registry.admit(leg, peer=peer_name)
        self._legs[leg.call_id] = leg
        self._idle.clear()
        with ExitStack() as undo:
            undo.callback(leg.on_closed, "its offer was not answered")
            peer = await leg.connect(self._connect(offer_sdp, leg, self.settings))
            undo.pop_all()
        return leg, peer


class BrowserLeg:
    """One browser's call. Boundary: whatever goes wrong in it ends this call alone."""

    def __init__(self, calls: BrowserCalls, call_id: str, peer_name: str, voices: KeyVoices) -> None:
        self.call_id = call_id
        self.call: Call | None = None
        self.peer: Peer | None = None  # until it has been answered
        self._calls = calls
        self._peer_name = peer_name
        self._voices = voices
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
        self._session = BrowserSession(call, self, self._voices, policy)
        calls.registry.open(self, call, kind="webrtc", peer=self._peer_name)
        sayings = (
            [self._session.run()] if calls.agent is None else [self._session.run(), calls.agent.run(call)]
        )
        self._saying = [calls.own(self._guard(saying)) for saying in sayings]

    def on_message(self, message: str) -> None:
        """The page says something; what cannot be made sense of is answered with an error."""
        if self._session is None or message.startswith("ping"):
            return
        with self._boundary():
            try:
                self._take(message, self._session)
            except VivavoceError as error:
                self.tell({"type": "error", "message": str(error)})

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
        if len(message) > MOST_MESSAGE:
            raise BadMessage(f"a message of {len(message)} characters; at most {MOST_MESSAGE} are read")
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

    async def _guard(self, work: Awaitable[None]) -> None:
        with self._boundary():
            await work

    @contextmanager
    def _boundary(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.fail(error)


Connect = Callable[[str, BrowserLeg, BrowserCallSettings], Awaitable[Peer]]


async def _connect_by_webrtc(offer_sdp: str, leg: BrowserLeg, settings: BrowserCallSettings) -> Peer:
    from ...adapters import webrtc

    policy = webrtc.PeerPolicy(settings.connect_s, settings.silent_s, settings.ice_servers)
    return await webrtc.Peer.answer(offer_sdp, leg, policy)
