"""Calls from browsers: opened, refused and ended.

How offers come in is ``routes``' affair, what happens on a call ``leg``'s and ``session``'s, the connection
``adapters.webrtc``'s.
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from ..access.access_control import Grant
from ..calls.agents import Agent
from ..calls.call import CallerSpeechAction, CallSpeechOptions, SpeechDetector
from ..calls.clock import Clock
from ..calls.registry import CallRegistry, CallUnknown
from ..voice_registry import VoiceRegistry
from .chat import ChatSettings
from .leg import BrowserLeg, BrowserPeer

if TYPE_CHECKING:
    from ...tts_engine.engine import Engine

_MAX_SESSION_IDS = 256  # sessions that were started and are remembered


@dataclass(frozen=True, slots=True)
class BrowserCallSettings:
    """What calls from browsers are allowed and told. Times in seconds.

    ``connect_s``: until a browser is reached; ``silent_s``: that a connected one may say nothing at all.
    ``ice_servers``: STUN or TURN URLs, none by default; ``chat``: None without a language model.
    """

    connect_s: float = 15.0
    silent_s: float = 10.0
    lead_s: float = 0.6
    speech: CallSpeechOptions = field(default_factory=CallSpeechOptions)
    greeting: str = "Hello, this is vivavoce. Type something below, and I will say it."
    ice_servers: tuple[str, ...] = ()
    chat: ChatSettings | None = None
    caller_speech_action: CallerSpeechAction = CallerSpeechAction.DISCARD  # talk over it and it stops


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
        make_speech_detector: Callable[[], SpeechDetector] | None = None,
        connect: "Connect | None" = None,
    ) -> None:
        self.engine = engine
        self.clock = clock
        self.registry = registry
        self.voices = voices
        self.settings = settings
        self.agent = agent
        self.make_speech_detector = make_speech_detector
        self._connect = connect or _connect_by_webrtc
        self._legs: dict[str, BrowserLeg] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._session_ids: dict[str, None] = {}  # ids of sessions, oldest first
        self._idle = asyncio.Event()
        self._idle.set()

    async def wait_idle(self) -> None:
        """Wait until nothing is left of any call, its end included."""
        await self._idle.wait()

    def issue_session_id(self) -> str:
        """Remember a new session; answers its id."""
        session_id = str(uuid.uuid4())
        self._session_ids[session_id] = None
        if len(self._session_ids) > _MAX_SESSION_IDS:
            del self._session_ids[next(iter(self._session_ids))]
        return session_id

    def is_session_id(self, session_id: str) -> bool:
        """Whether a session of that id was started, lately."""
        return session_id in self._session_ids

    async def accept_offer(self, offer: Offer, peer_name: str, grant: Grant) -> dict[str, str]:
        """Answer an offer: a new call for that grant, or another offer of one that is up.

        Raises:
            BadRequest: the offer cannot be used.
            Overloaded: the call does not fit.
        """
        leg = self._legs.get(offer.pc_id or "")
        if leg is not None and offer.restart_pc:
            leg.end("the browser begins anew")
            leg = None
        if leg is None or leg.peer is None:
            leg, peer = await self._open(offer.sdp, peer_name, grant)
        else:
            peer = leg.peer
            await peer.renegotiate(offer.sdp)
        return {"sdp": peer.answer_sdp, "type": "answer", "pc_id": leg.call_id}

    async def add_candidates(self, candidates: Candidates) -> None:
        """Hand trickled candidates on; raises BadRequest, CallUnknown."""
        leg = self._legs.get(candidates.pc_id)
        peer = None if leg is None else leg.peer
        if peer is None:
            raise CallUnknown(f"no call {candidates.pc_id!r} is up")
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

    def remove(self, leg: BrowserLeg) -> None:
        """A call is over."""
        self._legs.pop(leg.call_id, None)
        self._note_idle()

    def start_task(self, awaitable: Awaitable[None]) -> asyncio.Task[None]:
        """Keep a task until it is done."""
        task = asyncio.ensure_future(awaitable)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._note_idle()

    def _note_idle(self) -> None:
        if not self._legs and not self._tasks:
            self._idle.set()

    async def _open(self, offer_sdp: str, peer_name: str, grant: Grant) -> tuple[BrowserLeg, BrowserPeer]:
        leg = BrowserLeg(self, str(uuid.uuid4()), peer_name, grant)
        self.registry.admit(leg, peer=peer_name)
        self._legs[leg.call_id] = leg
        self._idle.clear()
        with ExitStack() as undo:
            undo.callback(leg.on_closed, "its offer was not answered")
            peer = await leg.connect(self._connect(offer_sdp, leg, self.settings))
            undo.pop_all()
        return leg, peer


Connect = Callable[[str, BrowserLeg, BrowserCallSettings], Awaitable[BrowserPeer]]


async def _connect_by_webrtc(offer_sdp: str, leg: BrowserLeg, settings: BrowserCallSettings) -> BrowserPeer:
    from ...adapters.webrtc import peer

    policy = peer.WebRtcPeerPolicy(settings.connect_s, settings.silent_s, settings.ice_servers)
    return await peer.WebRtcPeer.answer(offer_sdp, leg, policy)
