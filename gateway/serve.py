"""The server process: opens all parts in order, serves until a signal, and closes them in reverse order.

engine -> clock -> AudioSocket -> HTTP        ready: one line on standard output
SIGTERM, SIGINT: no new calls; open calls finish their sentence, for a bounded time; then everything closes
a second signal: everything closes at once; SIGHUP: see ``stop_signals``
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from ..adapters.media.clock import Clock
from ..adapters.media.media_servers import MediaServers
from ..adapters.media.paced_media import SpeechDetector
from ..tts_engine.backends.process import ProcessPolicy
from ..tts_engine.engine import Engine, EngineConfig
from ..tts_engine.scheduler import SchedulerPolicy
from .access.access_control import AccessControl
from .access.keys import KeysFile, Scope
from .access.origins import Origins
from .access.url_guard import UrlGuard, UrlPolicy
from .apis.openai.model_names import ModelPolicy
from .apis.openai.policy import OpenAIPolicy
from .apis.speech_apis import SpeechApis
from .browser.calls import BrowserCalls
from .browser.chat import ChatSettings
from .browser.routes import routes as browser_routes
from .browser.settings import BrowserCallSettings
from .calls.agents import Agent, ScriptPolicy, make_agent
from .calls.api import placed_calls
from .calls.api import routes as calls_api
from .calls.ari.controller import AriController
from .calls.ari.opening import open_ari
from .calls.audiosocket import AudioSocketCallServer, AudioSocketCallSettings
from .calls.call_options import CallerSpeechAction, CallSpeechOptions
from .calls.expected_calls import ExpectedCalls
from .calls.leg import CallServices, CallSettings
from .calls.registry import CallRegistry
from .calls.rtp import RtpCallServer
from .calls.websockets.calls import WebSocketCalls
from .listening_sockets import address_unavailable, bind_socket, bound_address, format_address
from .process_tuning import RENDERING_NICENESS, lower_rendering_priority, trim_memory_while, tune_process
from .rtp_server import make_rtp_server
from .settings import Settings
from .settings_loader import SettingsError, is_loopback
from .stop_signals import StopSignals
from .voice_registry import VoicePolicy, VoiceRegistry
from .web.app import Mount, make_app
from .web.http_server import HttpServer
from .websocket_mounts import make_websocket_calls, websocket_mounts

logger = logging.getLogger(__name__)

T = TypeVar("T")
_AUDIOSOCKET_FLAG: Final = "--audiosocket-port"
_DEFAULT_PHONE_AGENT: Final = "keys"  # without the setting ``agent``; a browser then gets the greeting


@dataclass(frozen=True, slots=True)
class Addresses:
    """The (host, port) pairs that the gateway listens on, with the ports that the system chose for 0."""

    audiosocket: tuple[str, int]
    http: tuple[str, int]


@dataclass(eq=False)
class Gateway:
    """A running server, made by ``open``; it serves until ``aclose``."""

    settings: Settings
    engine: Engine
    voices: VoiceRegistry
    call_registry: CallRegistry  # of phones and browsers
    audiosocket_server: AudioSocketCallServer
    browser_calls: BrowserCalls
    websocket_calls: WebSocketCalls
    apis: SpeechApis
    addresses: Addresses
    background_tasks: tuple[asyncio.Task[None], ...]  # of the clock, the HTTP server and the trim of memory
    resources: AsyncExitStack  # closes all of the above

    @classmethod
    async def open(
        cls, settings: Settings, *, engine: Engine | None = None, agent: Agent | None = None
    ) -> "Gateway":
        """Open all parts and start to listen.

        ``engine`` and ``agent`` replace those of the settings; the caller closes an engine that it passes.

        Raises:
            VivavoceError: a script, voice, bundle or address is not available; nothing is left open.
        """
        agents = _make_agents(settings, agent)  # first: a wrong script is found before the engine is loaded
        async with AsyncExitStack() as resources:
            phones = resources.enter_context(
                bind_socket(settings.audiosocket_host, settings.audiosocket_port, flag=_AUDIOSOCKET_FLAG)
            )
            web = resources.enter_context(bind_socket(settings.host, settings.http_port, flag="--http-port"))
            if engine is None:
                engine = await resources.enter_async_context(await _open_engine(settings))
            voices = await VoiceRegistry.open(engine.voices, _make_voice_policy(settings), settings.speakers)
            resources.callback(voices.close)
            calls = await _open_calls(settings, engine, voices, agents, phones, resources)
            trimming = asyncio.create_task(trim_memory_while(lambda: not len(calls.registry)), name="trim")
            resources.push_async_callback(_cancel_task, trimming)
            access = _make_access_control(settings)
            guard = UrlGuard(UrlPolicy(allowed_hosts=frozenset(settings.reference_hosts or ())))
            apis = SpeechApis(engine, access, voices, guard, _make_openai_policy(settings, voices))
            resources.push_async_callback(apis.aclose)
            call_routes = calls_api.routes(calls.registry, calls.expected, _make_speech(settings), voices)
            mounts = [
                *apis.mounts(),
                Mount(placed_calls.routes(calls.rtp_server, calls.ari), Scope.CALLS),
                Mount(call_routes, Scope.CALLS, [calls_api.ERROR_FORMAT]),
                Mount(browser_routes(calls.browser_calls), Scope.CALLS),
                *websocket_mounts(calls.websocket_calls, settings, access),
            ]
            app = make_app(
                unready=lambda: _unready_reason(calls.registry),
                registry=engine.metrics.registry,
                access=access,
                mounts=mounts,
            )
            http_task = await _start_http(HttpServer(app, web, settings.keep_alive_s), resources)
            return cls(
                settings=settings,
                engine=engine,
                voices=voices,
                call_registry=calls.registry,
                audiosocket_server=calls.audiosocket_server,
                browser_calls=calls.browser_calls,
                websocket_calls=calls.websocket_calls,
                apis=apis,
                addresses=Addresses(bound_address(phones), bound_address(web)),
                background_tasks=(calls.clock_task, http_task, trimming),
                resources=resources.pop_all(),
            )

    def unready(self) -> str | None:
        """Return why the server takes no new call now; None if it does."""
        return _unready_reason(self.call_registry)

    async def finish(self) -> None:
        """Refuse new calls and requests; wait until the open ones end their sentence, at most ``drain_s``."""
        within_s = self.settings.drain_s
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.apis.finish(within_s))
            await self.call_registry.finish_calls(within_s)

    def wait_for_failure(self) -> "asyncio.Task[None]":
        """Return a task that ends only if the clock or the HTTP server does, which is a bug."""
        return asyncio.create_task(_raise_first_failure(self.background_tasks))

    async def aclose(self) -> None:
        """End all calls and close everything."""
        await self.resources.aclose()


@dataclass(frozen=True, slots=True)
class _Agents:
    phone: Agent
    browser: Agent | None  # None: the greeting, and then what is typed
    named: Mapping[str, Agent]  # for calls that are announced


@dataclass(frozen=True, slots=True)
class _OpenCalls:
    registry: CallRegistry
    audiosocket_server: AudioSocketCallServer
    rtp_server: RtpCallServer
    ari: AriController | None
    browser_calls: BrowserCalls
    websocket_calls: WebSocketCalls
    expected: ExpectedCalls
    clock_task: "asyncio.Task[None]"


async def _open_calls(
    settings: Settings,
    engine: Engine,
    voices: VoiceRegistry,
    agents: _Agents,
    sock: socket.socket,
    resources: AsyncExitStack,
) -> _OpenCalls:
    media = MediaServers(settings.media_processes, _make_speech_detector, phases=settings.clock_phases)
    resources.push_async_callback(media.aclose)
    await media.start()
    clock = Clock(phases=settings.clock_phases)
    clock_task = asyncio.create_task(clock.run(), name="clock")
    resources.push_async_callback(_cancel_task, clock_task)
    registry = CallRegistry(engine, max_calls=settings.max_calls)
    services = CallServices(engine, registry)
    expected = ExpectedCalls(agents.named, required=settings.expected_calls_only)
    audiosocket_server = AudioSocketCallServer(
        media=media,
        services=services,
        agent=agents.phone,
        expected=expected,
        policy=_make_audiosocket_policy(settings),
    )
    await _listen(audiosocket_server, sock)
    resources.push_async_callback(audiosocket_server.aclose)
    call_settings = _make_call_settings(settings)
    rtp_server = make_rtp_server(settings, media, services, agents.phone, call_settings)
    resources.push_async_callback(rtp_server.aclose)
    ari = open_ari(settings, rtp_server)
    if ari is not None:
        resources.push_async_callback(ari.aclose)
    browser_calls = BrowserCalls(
        engine=engine,
        clock=clock,
        registry=registry,
        voices=voices,
        settings=_make_browser_settings(settings),
        make_speech_detector=_make_speech_detector,
        agent=agents.browser,
    )
    resources.push_async_callback(browser_calls.aclose)
    websocket_calls = make_websocket_calls(
        settings, services, clock, agents.phone, call_settings, _make_speech_detector
    )
    resources.push_async_callback(websocket_calls.aclose)
    return _OpenCalls(
        registry, audiosocket_server, rtp_server, ari, browser_calls, websocket_calls, expected, clock_task
    )


def _make_speech_detector() -> SpeechDetector:
    from ..adapters.voice_activity import VoiceActivityDetector

    return VoiceActivityDetector()


async def _listen(server: AudioSocketCallServer, sock: socket.socket) -> None:
    try:
        await server.listen(sock)
    except OSError as error:
        raise address_unavailable(bound_address(sock), error, flag=_AUDIOSOCKET_FLAG) from None


async def _start_http(http: HttpServer, resources: AsyncExitStack) -> "asyncio.Task[None]":
    http_task = asyncio.create_task(http.run_until_closed(), name="http")
    resources.push_async_callback(_close_http, http, http_task)
    await http.wait_started(http_task)
    return http_task


async def serve(settings: Settings, *, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; call ``announce`` with the line of addresses when the server is ready.

    Raises:
        VivavoceError: the server could not start; the message is a sentence for the operator.
    """
    async with StopSignals() as stop_signals:
        opening_task = asyncio.create_task(Gateway.open(settings))
        if await stop_signals.interrupts(opening_task):
            return
        async with contextlib.aclosing(opening_task.result()) as gateway:
            tune_process()
            announce(_ready_line(gateway))
            if not await stop_signals.interrupts(gateway.wait_for_failure()):
                return
            logger.info("Shutting down: %d calls may finish their sentence", len(gateway.call_registry))
            await stop_signals.interrupts(asyncio.create_task(gateway.finish()))


def _make_access_control(settings: Settings) -> AccessControl:
    """Return the access control of HTTP; raise SettingsError if the keys file holds no valid key."""
    origins = Origins(
        frozenset(settings.allowed_origins or ()), loopback_names_only=is_loopback(settings.host)
    )
    if settings.keys_file is None:
        return AccessControl.open_to_all(origins)
    keys = KeysFile(settings.keys_file)
    if all(key.revoked_at is not None for key in keys):
        raise SettingsError(
            f"keys_file: {settings.keys_file} holds no valid key; make one: "
            f"vivavoce keys add NAME --keys-file {settings.keys_file}"
        )
    return AccessControl(keys, origins, has_public_lists=settings.public_lists)


def _make_agents(settings: Settings, agent: Agent | None) -> _Agents:
    policy = ScriptPolicy(settings.script_tokens_per_s, settings.script_pause_s)
    make = partial(make_agent, policy=policy, loops=settings.script_loops)
    named = {name: make(choice) for name, choice in (settings.agents or {}).items()}
    if agent is not None:
        return _Agents(agent, agent, named)
    phone = make(settings.agent or _DEFAULT_PHONE_AGENT)
    return _Agents(phone, None if settings.agent is None else phone, named)


def _make_audiosocket_policy(settings: Settings) -> AudioSocketCallSettings:
    return AudioSocketCallSettings(
        sample_rate=None if settings.audiosocket_rate == "caller" else settings.audiosocket_rate,
        first_message_s=settings.first_message_s,
        stalled_s=settings.stalled_s,
        silent_s=settings.silent_s,
        lead_s=settings.lead_s,
        speech=_make_speech(settings),
        caller_speech_action=CallerSpeechAction(settings.caller_speech),
    )


def _make_call_settings(settings: Settings) -> CallSettings:
    action = CallerSpeechAction(settings.caller_speech)
    return CallSettings(settings.lead_s, _make_speech(settings), action)


def _make_browser_settings(settings: Settings) -> BrowserCallSettings:
    chat = None
    key = settings.llm_api_key.get_secret_value() if settings.llm_api_key else ""
    if settings.llm_base_url is not None and settings.llm_model is not None:
        chat = ChatSettings(settings.llm_base_url, settings.llm_model, key)
    return BrowserCallSettings(
        lead_s=settings.lead_s,
        speech=_make_speech(settings),
        greeting=settings.greeting,
        ice_servers=tuple(server.server() for server in settings.ice_servers or ()),
        ports=settings.webrtc_ports,
        chat=chat,
    )


def _make_speech(settings: Settings) -> CallSpeechOptions:
    return CallSpeechOptions(settings.voice, settings.speed)


def _make_voice_policy(settings: Settings) -> VoicePolicy:
    return VoicePolicy(settings.voice, settings.voice_aliases or {})


def _make_openai_policy(settings: Settings, voices: VoiceRegistry) -> OpenAIPolicy:
    """Return the settings of OpenAI's API; raise VivavoceError for an alias of a missing voice."""
    models = ModelPolicy(settings.model_aliases or {}, settings.strict_models)
    for name, voice in models.voices.items():
        voices.check_configured(f"model_aliases: {name}", voice)
    return OpenAIPolicy(settings.max_input_characters, models, settings.voice_list)


async def _open_engine(settings: Settings) -> Engine:
    config = EngineConfig(
        scheduler=SchedulerPolicy(max_streams=settings.max_streams), reading=settings.reading_style
    )
    process = ProcessPolicy(niceness=RENDERING_NICENESS) if settings.engine_process else None
    engine = await Engine.open(
        settings.bundle,
        voices=settings.voice_store,
        precision=settings.precision,
        device=settings.device,
        executor=settings.executor,
        config=config,
        process=process,
    )
    if process is None:
        lower_rendering_priority()
    return engine


def _ready_line(gateway: Gateway) -> str:
    addresses, settings = gateway.addresses, gateway.settings
    agent = settings.agent or _DEFAULT_PHONE_AGENT
    voice = gateway.engine.voices.get(settings.voice).id
    return (
        f"vivavoce is ready: AudioSocket on {format_address(addresses.audiosocket)}, "
        f"HTTP on http://{format_address(addresses.http)}, agent {agent}, voice {voice}"
    )


def _unready_reason(registry: CallRegistry) -> str | None:
    refusal = registry.refusal()
    if refusal is None:
        return None
    return "shutting down" if refusal.reason == "shutting_down" else "full"


async def _raise_first_failure(tasks: "tuple[asyncio.Task[None], ...]") -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        await task
    raise RuntimeError("a task of the server ended by itself")


async def _close_http(http: HttpServer, http_task: "asyncio.Task[None]") -> None:
    http.close()
    await asyncio.wait({http_task})


async def _cancel_task(task: "asyncio.Task[T]") -> None:
    task.cancel()
    await asyncio.wait({task})
