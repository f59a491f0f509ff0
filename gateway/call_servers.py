"""The servers of calls: phones, browsers, WebSockets and RTP, opened by the settings.

A media server plays the speech of phone calls. Browsers and WebSockets share a clock of this process.
"""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from ..adapters.media.clock import Clock
from ..adapters.media.media_servers import MediaServers
from ..adapters.media.paced_media import SpeechDetector
from ..tts_engine.speech_engine import SpeechEngine
from .access.access_control import AccessControl
from .access.keys import Scope
from .background_tasks import start_background_task
from .calls.agents import Agent, ScriptPolicy, make_agent
from .calls.api import placed_calls
from .calls.api import routes as calls_api
from .calls.call_options import CallerSpeechAction, CallSpeechOptions
from .calls.expected_calls import ExpectedCalls
from .calls.legs.leg import CallServices, CallSettings
from .calls.legs.websocket_calls import WebSocketCalls
from .calls.legs.websocket_leg import WebSocketLegServices, WebSocketTimeouts
from .calls.recordings import CallRecordings
from .calls.registry import CallRegistry
from .calls.ways_in.ari.controller import AriController
from .calls.ways_in.ari.opening import ExternalMediaServers, open_ari
from .calls.ways_in.audiosocket.call_server import AudioSocketCallServer, AudioSocketCallSettings
from .calls.ways_in.browser.calls import BrowserCalls
from .calls.ways_in.browser.chat import ChatSettings
from .calls.ways_in.browser.routes import routes as browser_routes
from .calls.ways_in.browser.settings import BrowserCallSettings
from .calls.ways_in.media_streams.carrier_access import CarrierAccess
from .calls.ways_in.media_streams.routes import asterisk_routes, media_stream_routes
from .calls.ways_in.media_streams.settings import CarrierSettings
from .calls.ways_in.rtp.call_server import RtpCallServer, RtpCallSettings
from .listening_sockets import address_unavailable, bound_address, limit_unidentified
from .settings import Settings
from .voice_registry import VoiceRegistry
from .web.app import Mount

AUDIOSOCKET_FLAG: Final = "--audiosocket-port"
DEFAULT_PHONE_AGENT: Final = "keys"  # without the setting ``agent``; a browser then gets the greeting
_FIRST_PACKET_S: Final = 30.0  # a program asks for the call before it tells the peer
_SILENT_S: Final = 120.0  # without the setting ``silent_s``; a peer that is gone does not say so
_UNREADY_REASONS: Final = {  # by the reason of a refusal; any other is "full"
    "shutting_down": "shutting down",
    "process": "the process of the voice is being started again",
    "replicas": "no replica is ready",
}


@dataclass(frozen=True, slots=True)
class CallAgents:
    """What answers calls."""

    phone: Agent
    browser: Agent | None  # None: the greeting, and then what is typed
    named: Mapping[str, Agent]  # for calls that are announced


@dataclass(frozen=True, slots=True)
class CallServers:
    """The servers of calls, and what they share."""

    registry: CallRegistry
    expected: ExpectedCalls
    audiosocket: AudioSocketCallServer
    rtp: RtpCallServer
    ari: AriController | None  # None: not configured
    browser: BrowserCalls
    websockets: WebSocketCalls
    media: MediaServers
    clock: Clock
    clock_task: "asyncio.Task[None]"

    @property
    def unready_reason(self) -> str | None:
        """Why no call is taken now; None if one is."""
        refusal = self.registry.refusal()
        if refusal is not None:
            return _UNREADY_REASONS.get(refusal.reason, "full")
        return None if self.media.are_ready else "the process that plays speech is being started again"

    @property
    def sends_packets(self) -> bool:
        """Whether this process itself sends packets of calls now, rather than its media processes."""
        return self.clock.is_occupied or (not self.media.in_processes and len(self.registry) > 0)

    @classmethod
    async def open(
        cls,
        settings: Settings,
        engine: SpeechEngine,
        voices: VoiceRegistry,
        agents: CallAgents,
        audiosocket: socket.socket,
        resources: AsyncExitStack,
    ) -> "CallServers":
        """Open the servers; ``resources`` closes them. audiosocket: the bound socket of AudioSocket."""
        media = MediaServers(settings.media_processes, _make_speech_detector, phases=settings.clock_phases)
        resources.push_async_callback(media.aclose)
        await media.start()
        clock = Clock(phases=settings.clock_phases)
        clock_task = start_background_task(clock.run(), "clock", resources)
        registry = CallRegistry(engine, max_calls=settings.max_calls, process_ids=lambda: media.pids)
        recordings = None
        if settings.recordings is not None:
            recordings = CallRecordings(settings.recordings, records_all=settings.record_calls)
            resources.push_async_callback(asyncio.to_thread, recordings.close)
        services = CallServices(engine, registry, recordings)
        expected = ExpectedCalls(agents.named, required=settings.expected_calls_only)
        audiosocket_server = AudioSocketCallServer(
            media=media,
            services=services,
            agent=agents.phone,
            expected=expected,
            policy=_make_audiosocket_policy(settings),
        )
        await _listen(audiosocket_server, audiosocket)
        resources.push_async_callback(audiosocket_server.aclose)
        rtp = RtpCallServer(
            media=media, services=services, agent=agents.phone, policy=_make_rtp_settings(settings)
        )
        resources.push_async_callback(rtp.aclose)
        browser = BrowserCalls(
            clock=clock,
            services=services,
            voices=voices,
            settings=_make_browser_settings(settings),
            make_speech_detector=_make_speech_detector,
            agent=agents.browser,
        )
        resources.push_async_callback(browser.aclose)
        websockets = WebSocketCalls(_make_websocket_services(settings, services, clock, agents.phone))
        resources.push_async_callback(websockets.aclose)
        ari = open_ari(
            settings,
            ExternalMediaServers(registry, rtp, websockets, audiosocket_server, bound_address(audiosocket)),
        )
        if ari is not None:
            resources.push_async_callback(ari.aclose)
        return cls(
            registry, expected, audiosocket_server, rtp, ari, browser, websockets, media, clock, clock_task
        )

    def mounts(self, settings: Settings, voices: VoiceRegistry, access: AccessControl) -> list[Mount]:
        """Return the routes of calls."""
        call_routes = calls_api.routes(self.registry, self.expected, make_speech(settings), voices)
        carrier_access = CarrierAccess(_make_carrier_settings(settings), access)
        return [
            Mount(placed_calls.routes(self.rtp, self.ari), Scope.ORIGINATE),
            Mount(call_routes, Scope.CALLS_OWN, [calls_api.ERROR_FORMAT]),
            Mount(browser_routes(self.browser), Scope.PAGE),
            Mount(asterisk_routes(self.websockets), Scope.CALLS_ALL),
            Mount(media_stream_routes(self.websockets, carrier_access), None),
        ]


def _make_speech_detector() -> SpeechDetector:
    from ..adapters.voice_activity import VoiceActivityDetector

    return VoiceActivityDetector()


async def _listen(server: AudioSocketCallServer, sock: socket.socket) -> None:
    try:
        await server.listen(sock)
    except OSError as error:
        raise address_unavailable(bound_address(sock), error, flag=AUDIOSOCKET_FLAG) from None


def make_agents(settings: Settings, agent: Agent | None) -> CallAgents:
    """Return the agents of the settings; ``agent`` replaces all but the named. Raises BadRequest."""
    policy = ScriptPolicy(settings.script_tokens_per_s, settings.script_pause_s)
    make = partial(make_agent, policy=policy, loops=settings.script_loops)
    named = {name: make(choice) for name, choice in (settings.agents or {}).items()}
    if agent is not None:
        return CallAgents(agent, agent, named)
    phone = make(settings.agent or DEFAULT_PHONE_AGENT)
    return CallAgents(phone, None if settings.agent is None else phone, named)


def _make_audiosocket_policy(settings: Settings) -> AudioSocketCallSettings:
    return AudioSocketCallSettings(
        sample_rate=None if settings.audiosocket_rate == "caller" else settings.audiosocket_rate,
        first_message_s=settings.first_message_s,
        stalled_s=settings.stalled_s,
        silent_s=settings.silent_s,
        lead_s=settings.lead_s,
        speech=make_speech(settings),
        caller_speech_action=CallerSpeechAction(settings.caller_speech),
        max_unidentified=settings.max_unidentified,
    )


def _make_call_settings(settings: Settings) -> CallSettings:
    action = CallerSpeechAction(settings.caller_speech)
    return CallSettings(settings.lead_s, make_speech(settings), action)


def _make_websocket_services(
    settings: Settings, services: CallServices, clock: Clock, agent: Agent
) -> WebSocketLegServices:
    return WebSocketLegServices(
        calls=services,
        clock=clock,
        agent=agent,
        settings=_make_call_settings(settings),
        timeouts=WebSocketTimeouts(settings.first_message_s, settings.stalled_s, settings.silent_s),
        make_speech_detector=_make_speech_detector,
        unidentified=limit_unidentified("WebSockets of calls", settings.max_unidentified),
    )


def _make_browser_settings(settings: Settings) -> BrowserCallSettings:
    chat = None
    key = settings.llm_api_key.get_secret_value() if settings.llm_api_key else ""
    if settings.llm_base_url is not None and settings.llm_model is not None:
        chat = ChatSettings(settings.llm_base_url, settings.llm_model, key)
    return BrowserCallSettings(
        lead_s=settings.lead_s,
        speech=make_speech(settings),
        greeting=settings.greeting,
        ice_servers=tuple(server.server() for server in settings.ice_servers or ()),
        ports=settings.webrtc_ports,
        chat=chat,
    )


def make_speech(settings: Settings) -> CallSpeechOptions:
    """Return how calls are spoken on."""
    return CallSpeechOptions(settings.voice, settings.speed)


def _make_rtp_settings(settings: Settings) -> RtpCallSettings:
    return RtpCallSettings(
        host=settings.rtp_host,
        ports=settings.rtp_ports,
        first_packet_s=_FIRST_PACKET_S,
        silent_s=settings.silent_s or _SILENT_S,
        stalled_s=settings.stalled_s,
        call=_make_call_settings(settings),
    )


def _make_carrier_settings(settings: Settings) -> CarrierSettings:
    secrets = (settings.media_streams_token, settings.twilio_auth_token, settings.plivo_auth_token)
    values = ("" if secret is None else secret.get_secret_value() for secret in secrets)
    return CarrierSettings(settings.public_url or "", *values)
