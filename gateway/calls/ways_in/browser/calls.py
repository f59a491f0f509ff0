"""Browser calls: opened by offers, found by id, ended at shutdown.

Not the HTTP side (``routes``), and not what happens on one call (``leg``).
"""

import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace

from .....adapters.media.clock import Clock
from .....adapters.media.paced_media import SpeechDetector
from .....tts_engine.errors import Overloaded
from ....access.access_control import Grant
from ....voice_registry import VoiceRegistry
from ...agents.agent import Agent
from ...api.key_calls import KeyCalls
from ...kits.leg_call import LegGroup
from ...registry import CallUnknown
from ..way_in import CallServices
from .leg import BrowserLeg, BrowserMediaServices, BrowserPeer, BrowserPeerEvents
from .offers import Candidates, Offer
from .settings import BrowserCallSettings

_MAX_SESSION_IDS = 256  # remembered by ``issue_session_id``

Connect = Callable[[str, BrowserPeerEvents, BrowserCallSettings], Awaitable[BrowserPeer]]


class BrowserCalls:
    """All calls from browsers; the registry admits them.

    Args:
        voices: that pages may name, by key.
        agent: drives each call; without one the greeting is spoken.
        make_speech_detector: makes a call's detector of caller speech; None: speech is not detected.
        connect: answers an offer; by default over WebRTC.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        services: CallServices,
        voices: VoiceRegistry,
        settings: BrowserCallSettings | None = None,
        agent: Agent | None = None,
        make_speech_detector: Callable[[], SpeechDetector] | None = None,
        connect: Connect | None = None,
    ) -> None:
        self.registry = services.registry
        self.voices = voices
        self.settings = settings or BrowserCallSettings()
        self.agent = agent
        self.services = services
        self._media_services = BrowserMediaServices(clock, make_speech_detector)
        self._group: LegGroup[BrowserLeg] = LegGroup()
        self._connect = connect or _connect_by_webrtc
        self._session_ids: dict[str, dict[str, None]] = {}  # of keys, oldest first

    async def wait_idle(self) -> None:
        """Wait until nothing is left of any call, connections included."""
        await self._group.wait_idle()

    def issue_session_id(self, grant: Grant) -> str:
        """Return the id of a new session of a key; the last 256 ids of each key are remembered."""
        session_id = str(uuid.uuid4())
        session_ids = self._session_ids.setdefault(grant.key_id, {})
        session_ids[session_id] = None
        if len(session_ids) > _MAX_SESSION_IDS:
            del session_ids[next(iter(session_ids))]
        return session_id

    def is_session_id(self, session_id: str, grant: Grant) -> bool:
        """Return whether ``issue_session_id`` returned that id for the key and it is remembered."""
        return session_id in self._session_ids.get(grant.key_id, {})

    async def accept_offer(self, offer: Offer, peer_name: str, grant: Grant) -> dict[str, str]:
        """Answer an offer: of a new call with that grant, or another one of a call of the key that is up.

        With ``restart_pc`` another connection takes the place of the call's: its network has changed.

        Raises:
            BadRequest: the offer cannot be used; nothing has ended.
            Overloaded: the call is not admitted.
            RateLimited: the key has too many calls.
        """
        leg = self._find_leg(offer.pc_id, grant)
        if leg is not None and leg.peer is not None and not offer.restart_pc:
            peer = leg.peer
            await peer.renegotiate(offer.sdp)
        else:
            grant.charge_request()
            if leg is not None:
                peer = await leg.connect(self._answer(offer))
            else:
                leg, peer = await self._open(offer, peer_name, grant)
        return {"sdp": peer.answer_sdp, "type": "answer", "pc_id": leg.call_id}

    async def add_candidates(self, candidates: Candidates, grant: Grant) -> None:
        """Pass trickled candidates to their connection of the key; raises BadRequest, CallUnknown."""
        leg = self._find_leg(candidates.pc_id, grant)
        peer = None if leg is None else leg.peer
        if peer is None:
            raise CallUnknown(f"no call {candidates.pc_id!r} is up")
        for candidate in candidates.candidates:
            await peer.add_candidate(candidate.candidate, candidate.sdp_mid, candidate.sdp_mline_index)

    def hang_up(self, pc_id: str, grant: Grant) -> None:
        """End a call of the key; raises CallUnknown."""
        leg = self._find_leg(pc_id, grant)
        if leg is None:
            raise CallUnknown(f"no call {pc_id!r} is up")
        leg.end("the page hung up")

    async def aclose(self) -> None:
        """Admit no more calls, end every call, and wait until nothing is left of any."""
        self.registry.refuse_calls()
        await self._group.aclose()

    def _find_leg(self, call_id: str | None, grant: Grant) -> BrowserLeg | None:
        wanted = call_id, grant.key_id
        return next((leg for leg in self._group.legs if (leg.call_id, leg.owner.key_id) == wanted), None)

    def _answer(self, offer: Offer) -> Callable[[BrowserPeerEvents], Awaitable[BrowserPeer]]:
        return lambda events: self._connect(offer.sdp, events, self.settings)

    async def _open(self, offer: Offer, peer_name: str, grant: Grant) -> tuple[BrowserLeg, BrowserPeer]:
        voices = self.voices.for_grant(grant)
        leg = BrowserLeg(
            str(uuid.uuid4()),
            peer_name,
            self._group,
            self.services,
            self._media_services,
            replace(self.settings, speech=self.settings.speech.for_grant(grant, voices)),
            voices=voices,
            calls=KeyCalls(self.registry, grant),
            agent=self.agent,
        )
        if offer.skip_greeting:
            leg.skip_greeting()
        self.registry.admit(leg, peer=peer_name, grant=grant)
        self._group.add(leg)
        with ExitStack() as undo:
            undo.callback(leg.on_closed, "its offer was not answered")
            try:
                peer = await leg.connect(self._answer(offer))
            except Overloaded as refusal:
                self.registry.report_refusal(refusal, peer=peer_name)
                raise
            undo.pop_all()
        return leg, peer


async def _connect_by_webrtc(
    offer_sdp: str, events: BrowserPeerEvents, settings: BrowserCallSettings
) -> BrowserPeer:
    from .....adapters.webrtc import peer  # imports aiortc, which takes a second

    ice_servers = settings.dated_ice_servers()
    policy = peer.WebRtcPeerPolicy(settings.connect_s, settings.silent_s, ice_servers, settings.ports)
    return await peer.WebRtcPeer.answer(offer_sdp, events, policy)
