"""The life of the server process: open everything in order, serve until a signal, close everything in order.

engine -> clock -> AudioSocket -> HTTP        ready: one line on standard output
SIGTERM, SIGINT: no new calls, sentences are finished (bounded), HTTP -> AudioSocket -> clock -> engine
a second signal: at once
"""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Self, TypeVar

from ..tts_engine.backends.process import ProcessPolicy
from ..tts_engine.engine import Engine, EngineConfig
from ..tts_engine.errors import UnknownVoice, VivavoceError
from ..tts_engine.scheduler import SchedulerPolicy
from .access.access_control import AccessControl
from .access.keys import KeysFile, Scope
from .access.origins import Origins
from .access.url_guard import UrlGuard, UrlPolicy
from .apis.speech_apis import SpeechApis
from .browser.calls import BrowserCalls, BrowserCallSettings
from .browser.chat import ChatSettings
from .browser.routes import routes as browser_routes
from .calls import api
from .calls.agents import Agent, ScriptPolicy, make_agent
from .calls.audiosocket import AudioSocketCallServer, AudioSocketCallSettings
from .calls.call import CallerSpeechAction, CallSpeechOptions, make_speech_detector
from .calls.clock import Clock
from .calls.registry import CallRegistry
from .settings import Settings, SettingsError, is_loopback
from .voice_registry import VoicePolicy, VoiceRegistry
from .web.app import Mount, make_app
from .web.http_server import HttpServer

logger = logging.getLogger(__name__)

T = TypeVar("T")
_DEFAULT_PHONE_AGENT = "keys"  # where none is set; a browser gets the greeting then
_SWITCH_INTERVAL_S = 0.0005
_UNREADY_REASONS = {"shutting_down": "shutting down"}  # what keeps a call out; anything else is a full house
_RENDERING_NICENESS = 5  # a third of the share of who sends; rendering has a second of playout to hide in


class AddressUnavailable(VivavoceError):
    """Nothing can listen on that address; the message says why."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the gateway listens: (host, port), the ports as they turned out."""

    audiosocket: tuple[str, int]
    http: tuple[str, int]


class Gateway:
    """A running server. Open it with ``open``; it serves until ``aclose``."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        audiosocket_server: AudioSocketCallServer,
        browser_calls: BrowserCalls,
        voices: VoiceRegistry,
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.call_registry = audiosocket_server.registry
        self.audiosocket_server = audiosocket_server
        self.browser_calls = browser_calls
        self.voices = voices
        self.addresses: Addresses
        self._resources = AsyncExitStack()
        self._background_tasks: tuple[asyncio.Task[None], ...] = ()
        self._listening = False
        self._apis: SpeechApis

    @classmethod
    async def open(
        cls, settings: Settings, *, engine: Engine | None = None, agent: Agent | None = None
    ) -> "Gateway":
        """Open engine, clock, listeners; ``engine`` and ``agent`` take the place of those in the settings.

        An engine that is handed in stays its owner's to close.

        Raises:
            VivavoceError: a script, a voice or an address that cannot be had.
        """
        async with AsyncExitStack() as resources:
            agent_answers_browsers = agent is not None or settings.agent is not None
            agent = agent or _make_agent(settings)
            audiosocket = resources.enter_context(_bind(settings.audiosocket_host, settings.audiosocket_port))
            http_listener = resources.enter_context(_bind(settings.host, settings.http_port))
            if engine is None:
                engine = await resources.enter_async_context(await _open_engine(settings))
            voices = await VoiceRegistry.open(engine.voices, _make_voice_policy(settings), settings.speakers)
            resources.callback(voices.close)
            _check_voice(settings, engine)
            clock = Clock(metrics=engine.metrics, phases=settings.clock_phases)
            registry = CallRegistry(engine, max_calls=settings.max_calls)
            server = AudioSocketCallServer(
                engine=engine,
                clock=clock,
                agent=agent,
                policy=_make_audiosocket_policy(settings),
                registry=registry,
            )
            browsers = BrowserCalls(
                engine=engine,
                clock=clock,
                registry=registry,
                voices=voices,
                settings=_make_browser_settings(settings),
                make_speech_detector=make_speech_detector,
                agent=agent if agent_answers_browsers else None,
            )
            gateway = cls(settings, engine, server, browsers, voices)
            gateway.addresses = Addresses(_bound_address(audiosocket), _bound_address(http_listener))
            await gateway._start(clock, audiosocket, http_listener, resources)
            gateway._resources = resources.pop_all()
        return gateway

    def unready(self) -> str | None:
        """Why no call should be sent here now; None when one may."""
        if not self._listening:
            return "starting"
        refusal = self.call_registry.refusal()
        return None if refusal is None else _UNREADY_REASONS.get(refusal.reason, "full")

    async def finish(self) -> None:
        """Take nothing new, and let what is being said be finished, at most ``drain_s``."""
        within_s = self.settings.drain_s
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._apis.finish(within_s))
            await self.call_registry.finish_calls(within_s)

    def wait_for_failure(self) -> "asyncio.Task[None]":
        """A task that ends only if the clock or the HTTP server does, which is a fault of ours."""
        return asyncio.create_task(_raise_first_failure(self._background_tasks))

    async def aclose(self) -> None:
        """End every call and close everything."""
        await self._resources.aclose()

    async def _start(
        self,
        clock: Clock,
        audiosocket: socket.socket,
        http_listener: socket.socket,
        resources: AsyncExitStack,
    ) -> None:
        clock_task = asyncio.create_task(clock.run(), name="clock")
        resources.push_async_callback(_cancel_task, clock_task)
        try:
            await self.audiosocket_server.listen(audiosocket)
        except OSError as error:
            raise _address_unavailable(*_bound_address(audiosocket), error) from None
        resources.push_async_callback(self.audiosocket_server.aclose)
        resources.push_async_callback(self.browser_calls.aclose)
        access = _make_access_control(self.settings)
        guard = UrlGuard(UrlPolicy(allowed_hosts=frozenset(self.settings.reference_hosts or ())))
        max_text_characters = self.settings.max_input_characters
        self._apis = SpeechApis(self.engine, access, self.voices, guard, max_text_characters)
        resources.push_async_callback(self._apis.aclose)
        app = make_app(
            unready=self.unready,
            registry=self.engine.metrics.registry,
            access=access,
            mounts=[
                *self._apis.mounts(),
                Mount(
                    api.routes(self.call_registry, _make_speech(self.settings), self.voices),
                    Scope.CALLS,
                ),
                Mount(browser_routes(self.browser_calls), Scope.CALLS),
            ],
        )
        http = HttpServer(app, http_listener)
        http_task = asyncio.create_task(http.run_until_closed(), name="http")
        resources.push_async_callback(_close_http, http, http_task)
        await http.wait_started(http_task)
        self._background_tasks = (clock_task, http_task)
        self._listening = True


async def serve(settings: Settings, *, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` gets the one line that says where, when calls may come.

    Raises:
        VivavoceError: it could not start; the message is the sentence to show.
    """
    async with _StopSignals() as stop_signals:
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


class _StopSignals:
    """SIGTERM and SIGINT as something to wait for; as a context it holds the handlers."""

    _SIGNALS = (signal.SIGTERM, signal.SIGINT)

    def __init__(self) -> None:
        self._received: asyncio.Queue[int] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        for number in self._SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._received.put_nowait, number)
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in self._SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    async def interrupts(self, work: "asyncio.Task[T]") -> bool:
        """Wait for ``work`` or the next signal; a signal cancels the work. Raises what the work raised."""
        signalled = asyncio.create_task(self._received.get())
        try:
            await asyncio.wait({work, signalled}, return_when=asyncio.FIRST_COMPLETED)
            stopped = signalled.done() and not work.done()
        finally:
            await _cancel_task(signalled)
            if not work.done():
                await _cancel_task(work)
        if not work.cancelled():
            work.result()
        return stopped


def _make_access_control(settings: Settings) -> AccessControl:
    """Who may use the HTTP side; raises SettingsError where a file of keys is named that lets nobody in."""
    origins = Origins(
        frozenset(settings.allowed_origins or ()), loopback_names_only=is_loopback(settings.host)
    )
    if settings.keys_file is None:
        return AccessControl.open_to_all(origins)
    keys = KeysFile(settings.keys_file)
    if all(key.revoked_at is not None for key in keys):
        raise SettingsError(
            f"keys_file: {settings.keys_file} holds no key that is good; make one: "
            f"vivavoce keys add NAME --keys-file {settings.keys_file}"
        )
    return AccessControl(keys, origins)


def _make_agent(settings: Settings) -> Agent:
    policy = ScriptPolicy(settings.script_tokens_per_s, settings.script_pause_s)
    return make_agent(settings.agent or _DEFAULT_PHONE_AGENT, policy, loops=settings.script_loops)


def _make_audiosocket_policy(settings: Settings) -> AudioSocketCallSettings:
    return AudioSocketCallSettings(
        sample_rate=settings.audiosocket_rate,
        first_message_s=settings.first_message_s,
        stalled_s=settings.stalled_s,
        lead_s=settings.lead_s,
        speech=_make_speech(settings),
        caller_speech_action=CallerSpeechAction(settings.caller_speech),
    )


def _make_browser_settings(settings: Settings) -> BrowserCallSettings:
    chat = None
    key = settings.llm_api_key.get_secret_value() if settings.llm_api_key else ""
    if settings.llm_base_url is not None and settings.llm_model is not None:
        chat = ChatSettings(settings.llm_base_url, settings.llm_model, key)
    return BrowserCallSettings(
        lead_s=settings.lead_s,
        speech=_make_speech(settings),
        greeting=settings.greeting,
        ice_servers=settings.ice_servers or (),
        chat=chat,
    )


def _make_speech(settings: Settings) -> CallSpeechOptions:
    return CallSpeechOptions(settings.voice, settings.speed)


def _make_voice_policy(settings: Settings) -> VoicePolicy:
    return VoicePolicy(settings.voice, settings.voice_aliases or {})


async def _open_engine(settings: Settings) -> Engine:
    config = EngineConfig(scheduler=SchedulerPolicy(max_streams=settings.max_streams))
    process = ProcessPolicy(niceness=_RENDERING_NICENESS) if settings.engine_process else None
    engine = await Engine.open(
        settings.bundle,
        voices=settings.voice_store,
        precision=settings.precision,
        device=settings.device,
        config=config,
        process=process,
    )
    if process is None:
        _lower_rendering_priority()
    return engine


def _lower_rendering_priority() -> None:
    """Give the other threads of the process, which render, less of a busy core than this one, which sends.

    With 100 calls on 2 cores the worst tick in a thousand came 13 to 22 ms late before, 8 to 10 ms after.
    """
    if sys.platform != "linux":
        return  # elsewhere a thread has no priority of its own under this call
    niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) + _RENDERING_NICENESS
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and thread.native_id is not None:
            with contextlib.suppress(OSError):  # it may have ended
                os.setpriority(os.PRIO_PROCESS, thread.native_id, niceness)


def _check_voice(settings: Settings, engine: Engine) -> None:
    try:
        engine.voices.get(settings.voice)
    except UnknownVoice as error:
        raise UnknownVoice(f"voice: {error}") from None


def _bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket, not listening yet: nobody shall wait in its queue while the engine opens."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    # With the protocol named, asyncio sends without delay what it accepts here; left out, each answer of two
    # writes waits 40 ms for the peer's delayed acknowledgement.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _address_unavailable(host, port, error) from None
    return sock


def _address_unavailable(host: str, port: int, error: OSError) -> AddressUnavailable:
    if error.errno == errno.EADDRINUSE:
        return AddressUnavailable(
            f"{_format_address(host, port)} is in use by another program; choose another port."
        )
    return AddressUnavailable(f"Cannot listen on {_format_address(host, port)}: {error.strerror}.")


def _bound_address(sock: socket.socket) -> tuple[str, int]:
    host, port, *_ = sock.getsockname()
    return host, port


def _ready_line(gateway: Gateway) -> str:
    addresses, settings = gateway.addresses, gateway.settings
    voice = gateway.engine.voices.get(settings.voice).id
    return (
        f"vivavoce is ready: AudioSocket on {_format_address(*addresses.audiosocket)}, "
        f"HTTP on http://{_format_address(*addresses.http)}, agent {settings.agent or _DEFAULT_PHONE_AGENT}, voice {voice}"
    )


def _format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def tune_process() -> None:
    """Make this process one that paces audio; once, when everything is loaded.

    What is loaded by now stays: a full collection over it would stop every call for tens of milliseconds.
    And a thread that renders gives the interpreter back after 0.5 ms instead of 5, as the clock waits for it:
    with 100 calls on 2 busy cores 1 to 3 packets of 87,000 were late, where 72 to 177 had been.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)


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
