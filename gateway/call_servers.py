"""The ways into a call, opened by the settings, and what they share.

A new way in is a folder in ``calls/ways_in/`` with a record in ``way_in.py``, and its name in ``WAYS_IN``;
``README.md`` has the steps. A media server plays the speech of phone calls. Browsers and WebSockets share a
clock of this process.
"""

import asyncio
import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from operator import attrgetter
from socket import socket
from typing import Final

from ..adapters.media.clock import Clock
from ..adapters.media.paced_media import SpeechDetector
from ..adapters.media.servers.media_servers import MediaServers
from ..adapters.playback.background import BackgroundLoops
from ..tts_engine.packaging.plug_ins import with_plug_ins
from ..tts_engine.process_limits import available_cores
from ..tts_engine.speech_engine import SpeechEngine
from .access.access_control import ANONYMOUS_KEY_ID, AccessControl, Grant
from .access.keys import Scope
from .access.url_guard import UrlGuard
from .background_tasks import start_background_task
from .calls.agents.agent import Agent, CallAgents
from .calls.agents.registry import make_agent
from .calls.api import placed_calls
from .calls.api import routes as calls_api
from .calls.call_options import LEAD_S, CallerSpeechAction, CallSettings, CallSpeechOptions
from .calls.expected_calls import ExpectedCalls
from .calls.recordings import CallRecordings
from .calls.registry import CallRegistry
from .calls.sounds.sound_files import SoundLibrary, read_background
from .calls.ways_in.ari.way_in import ARI
from .calls.ways_in.asterisk_websocket.way_in import ASTERISK_WEBSOCKET
from .calls.ways_in.audiosocket.way_in import AUDIOSOCKET
from .calls.ways_in.browser.way_in import BROWSER
from .calls.ways_in.media_streams.way_in import MEDIA_STREAMS
from .calls.ways_in.rtp.way_in import RTP
from .calls.ways_in.sip.way_in import SIP
from .calls.ways_in.way_in import CallHost, CallServices, OpenWayIn, TcpListener, WayIn
from .configuration.settings import DEFAULT_NAME, Settings
from .listening_sockets import limit_unidentified
from .voice_registry import VoiceRegistry
from .web.app import CALLS_TAG, Mount

# ARI takes the first external media, in this order, that its Asterisk has.
WAYS_IN: Final = (BROWSER, ASTERISK_WEBSOCKET, MEDIA_STREAMS, AUDIOSOCKET, RTP, ARI, SIP)
_ENTRY_POINTS: Final = "vivavoce.ways_in"
_CALLS_OF_A_PROCESS: Final = 250  # a process plays 100 with a third of a core
DEFAULT_PHONE_AGENT: Final = "keys"  # without an agent in the settings; a browser then gets the greeting
_UNREADY_REASONS: Final = {  # by the reason of a refusal; any other is "full"
    "shutting_down": "shutting down",
    "process": "the process of the voice is being started again",
    "device": "nothing computes the voice: its device failed, or no replica renders",
}


def all_ways_in() -> tuple[WayIn, ...]:
    """The ways in of this package, then those of others."""
    return with_plug_ins(_ENTRY_POINTS, WAYS_IN, attrgetter("name"))


def media_processes(max_calls: int) -> int:
    """The number of processes that play the speech of phone calls; 0: a thread, best on a single core."""
    return math.ceil(max_calls / _CALLS_OF_A_PROCESS) if available_cores() > 1 else 0


def listeners(settings: Settings) -> dict[str, TcpListener]:
    """The listeners of the ways in that have one, by name."""
    return {way.name: way.listens(settings) for way in all_ways_in() if way.listens is not None}


@dataclass(frozen=True, slots=True)
class CallServers:
    """The ways in of a running server, and what they share."""

    host: CallHost
    ways: tuple[WayIn, ...]
    opened: Mapping[str, OpenWayIn]
    clock_task: "asyncio.Task[None]"

    @property
    def registry(self) -> CallRegistry:
        """All calls."""
        return self.host.services.registry

    @property
    def unready_reason(self) -> str | None:
        """Why no call is taken now; None if one is."""
        refusal = self.registry.refusal()
        if refusal is not None:
            return (
                str(refusal) if refusal.reason == "replicas" else _UNREADY_REASONS.get(refusal.reason, "full")
            )
        return None if self.host.media.are_ready else "the process that plays speech is being started again"

    @property
    def sends_packets(self) -> bool:
        """Whether this process itself sends packets of calls now, rather than its media processes."""
        return self.host.clock.is_occupied or (not self.host.media.in_processes and len(self.registry) > 0)

    @classmethod
    async def open(
        cls,
        settings: Settings,
        engine: SpeechEngine,
        voices: VoiceRegistry,
        access: AccessControl,
        agents: CallAgents,
        sockets: Mapping[str, socket],
        resources: AsyncExitStack,
    ) -> "CallServers":
        """Open the ways in; ``resources`` closes them. sockets: bound, by way in. Raises VivavoceError."""
        ways = all_ways_in()
        wires = [way.wire.__module__ for way in ways if way.wire is not None]
        background = await asyncio.to_thread(read_background, settings.sounds)
        max_calls = settings.calls.max_calls
        media = MediaServers(
            media_processes(max_calls), _make_speech_detector, wire_modules=wires, sounds=background
        )
        resources.push_async_callback(media.aclose)
        await media.start()
        clock = Clock()
        clock_task = start_background_task(clock.run(), "clock", resources)
        registry = CallRegistry(engine, max_calls=max_calls, process_ids=lambda: media.pids)
        recordings, sounds = _open_recordings(settings, resources), _open_sounds(settings, resources)
        services = CallServices(engine, registry, recordings, sounds, BackgroundLoops(background))
        of_server = voices.for_grant(Grant(ANONYMOUS_KEY_ID, frozenset()))
        speech = CallSpeechOptions(settings.bundle.voice, resolve_voice=of_server.resolve)
        call_settings = CallSettings(LEAD_S, speech, CallerSpeechAction(settings.calls.caller_speech))
        opened: dict[str, OpenWayIn] = {}
        host = CallHost(
            settings=settings,
            call_settings=call_settings,
            services=services,
            agents=agents,
            expected=ExpectedCalls(agents.named, required=settings.audiosocket.expected_calls_only),
            voices=voices,
            access=access,
            media=media,
            clock=clock,
            unidentified_websockets=limit_unidentified("WebSockets of calls"),
            make_speech_detector=_make_speech_detector,
            sockets=sockets,
            opened=opened,
        )
        for way in ways:
            opened[way.name] = way_opened = await way.open(host)
            if way_opened.server is not None:
                resources.push_async_callback(way_opened.server.aclose)
        return cls(host, ways, opened, clock_task)

    def mounts(self) -> list[Mount]:
        """Return the routes of calls."""
        host = self.host
        placing = [
            (way.placed_calls, place_call)
            for way in self.ways
            if way.placed_calls is not None and (place_call := self.opened[way.name].place_call) is not None
        ]
        call_routes = calls_api.routes(self.registry, host.expected, host.call_settings.speech, host.voices)
        return [
            Mount(placed_calls.routes(placing), Scope.ORIGINATE, tag=CALLS_TAG),
            Mount(call_routes, Scope.CALLS_OWN, [calls_api.ERROR_FORMAT], CALLS_TAG),
            *(mount for way in self.opened.values() for mount in way.mounts),
        ]


def _open_recordings(settings: Settings, resources: AsyncExitStack) -> CallRecordings | None:
    table = settings.recordings
    if table is None:
        return None
    recordings = CallRecordings(table.folder, records_all=table.all_calls)
    resources.push_async_callback(asyncio.to_thread, recordings.close)
    return recordings


def _open_sounds(settings: Settings, resources: AsyncExitStack) -> SoundLibrary:
    guard = UrlGuard.allowing(settings.apis.reference_hosts)
    sounds = SoundLibrary(settings.sounds.folder, fetch=guard.fetch)
    resources.callback(sounds.close)
    return sounds


def _make_speech_detector() -> SpeechDetector:
    from ..adapters.voice_activity import VoiceActivityDetector

    return VoiceActivityDetector()


def make_agents(choices: Mapping[str, str], agent: Agent | None) -> CallAgents:
    """Return the agents by name; ``agent`` replaces the default one. Raises BadRequest."""
    named = {name: make_agent(choice) for name, choice in choices.items()}
    default = named.pop(DEFAULT_NAME, None)
    agent = agent or default
    return CallAgents(agent or make_agent(DEFAULT_PHONE_AGENT), agent, named)
