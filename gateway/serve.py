"""The server: opens all parts in order, and closes them in reverse order.

engine -> clock -> ways in -> HTTP
"""

import asyncio
import functools
import logging
import socket
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI

from ..tts_engine.reading.pronunciation.lexicon_files import NamedLexicons
from ..tts_engine.speech_engine import SpeechEngine
from .access.access_control import AccessControl
from .access.keys import KeysFile
from .access.networks import AddressSet
from .access.origins import Origins
from .access.settings import AccessTable, HttpTable
from .access.url_guard import UrlGuard
from .apis.shell.speech_server import SpeechApiPolicy, SpeechServer
from .apis.speech_apis import SpeechApis
from .background_tasks import start_background_task
from .call_servers import CallServers, listeners, make_agents
from .calls.agents.agent import Agent, greetings_of
from .configuration.settings import DEFAULT_NAME, Settings
from .configuration.settings_table import SettingsError
from .engine_opening import (
    GatewaySharing,
    impaired_bundles,
    keeps_speech,
    models_of,
    open_engine,
    open_shared_store,
)
from .enrolment import SPEAKERS_FOLDER
from .listening_sockets import bind_socket, bound_address, format_address, is_loopback
from .operation.process_metrics import process_metrics
from .operation.traces import export_traces
from .process_tuning import trim_memory_while
from .voice_registry import VoicePolicy, VoiceRegistry
from .warm_phrases import Phrase, read_phrases, render_phrases
from .web.app import make_app, warm_up_app
from .web.connection_limits import ConnectionLimits
from .web.http_server import HttpServer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Addresses:
    """The (host, port) pairs that the gateway listens on, with the ports that the system chose for 0."""

    ways_in: Mapping[str, tuple[str, int]]  # by the names of those that listen
    http: tuple[str, int]


@dataclass(eq=False)
class Gateway:
    """A running server, made by ``open``; it serves until ``aclose``."""

    settings: Settings
    engine: SpeechEngine
    voices: VoiceRegistry
    calls: CallServers
    apis: SpeechApis
    addresses: Addresses
    background_tasks: tuple[asyncio.Task[None], ...]  # of the clock, HTTP, the trim of memory, keys
    resources: AsyncExitStack  # closes all of the above

    @classmethod
    async def open(
        cls, settings: Settings, *, engine: SpeechEngine | None = None, agent: Agent | None = None
    ) -> "Gateway":
        """Open all parts and start to listen.

        ``engine`` and ``agent`` replace those of the settings; the caller closes an engine that it passes.

        Raises:
            VivavoceError: a script, voice, bundle or address is not available; nothing is left open.
        """
        agents = make_agents(
            settings.agents, agent
        )  # first: a wrong script is found before the engine is loaded
        async with AsyncExitStack() as resources:
            sockets = {
                name: resources.enter_context(bind_socket(to.host, to.port, flag=to.flag))
                for name, to in listeners(settings).items()
            }
            http = settings.http
            web = resources.enter_context(bind_socket(http.host, http.port, flag="--http-port"))
            greets = engine is None and keeps_speech(settings)
            if engine is None:
                engine = await resources.enter_async_context(await open_engine(settings))
            store = open_shared_store(settings.cluster, resources)
            voices = await _open_voices(settings, engine, store, resources)
            access = _make_access_control(settings.access, http)
            calls = await CallServers.open(settings, engine, voices, access, agents, sockets, resources)
            trimming = start_background_task(
                trim_memory_while(lambda: not calls.sends_packets), "trim", resources
            )
            if store is not None:
                store.share_access(access)
            watching = start_background_task(access.watch(), "keys", resources)
            apis = await _open_apis(settings, engine, access, voices, resources)
            _observe(engine, calls, resources)
            app = make_app(
                unready=lambda: calls.unready_reason,
                impaired=functools.partial(impaired_bundles, engine),
                registry=engine.metrics.registry,
                access=access,
                mounts=[*apis.mounts(), *calls.mounts()],
            )
            await warm_up_app(app)
            greetings = (*greetings_of(agents), *(way.greeting for way in calls.ways)) if greets else ()
            phrases = [*map(Phrase, filter(None, greetings)), *read_phrases(settings.kept_speech, engine)]
            start_background_task(render_phrases(engine, phrases), "phrases", resources)
            http_task = await _start_http(_make_http_server(app, web, http), resources)
            return cls(
                settings=settings,
                engine=engine,
                voices=voices,
                calls=calls,
                apis=apis,
                addresses=Addresses(
                    {name: bound_address(sock) for name, sock in sockets.items()}, bound_address(web)
                ),
                background_tasks=(calls.clock_task, http_task, trimming, watching),
                resources=resources.pop_all(),
            )

    def unready(self) -> str | None:
        """Return why the server takes no new call now; None if it does."""
        return self.calls.unready_reason

    async def finish(self) -> None:
        """Refuse new calls and requests; wait at most ``drain_s`` until the open ones end their sentence."""
        within_s = self.settings.server.drain_s
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.apis.finish(within_s))
            await self.calls.registry.finish_calls(within_s)

    def wait_for_failure(self) -> "asyncio.Task[None]":
        """Return a task that ends only if the clock or the HTTP server does, which is a bug."""
        return asyncio.create_task(_raise_first_failure(self.background_tasks))

    async def aclose(self) -> None:
        """End all calls and close everything."""
        await self.resources.aclose()


def _observe(engine: SpeechEngine, calls: CallServers, resources: AsyncExitStack) -> None:
    """Show the metrics of the processes, and export traces if a collector is named; raises MissingExtra."""
    pids = functools.partial(_child_processes, calls, engine)
    resources.enter_context(process_metrics(engine.metrics.registry, pids))
    if (traces := export_traces(engine.metrics)) is not None:
        resources.push_async_callback(asyncio.to_thread, traces.close)


def _child_processes(calls: CallServers, engine: SpeechEngine) -> dict[str, tuple[int, ...]]:
    """Return the ids of the processes that play and render speech beside this one, by what they do."""
    return {"media": calls.host.media.pids, "voice": engine.process_ids}


def _make_http_server(app: FastAPI, sock: socket.socket, http: HttpTable) -> HttpServer:
    proxies = AddressSet.parse(http.trusted_proxies)
    return HttpServer(app, sock, limits=ConnectionLimits.make(proxies=proxies), proxies=proxies)


async def _start_http(http: HttpServer, resources: AsyncExitStack) -> "asyncio.Task[None]":
    http_task = asyncio.create_task(http.run_until_closed(), name="http")
    resources.push_async_callback(_close_http, http, http_task)
    await http.wait_started(http_task)
    return http_task


async def _open_voices(
    settings: Settings, engine: SpeechEngine, store: GatewaySharing | None, resources: AsyncExitStack
) -> VoiceRegistry:
    """List the engine's voices, those of other gateways included; raise VivavoceError."""
    if store is not None:
        await store.share_voices(engine.voices)
    voices = await VoiceRegistry.open(
        engine.voices,
        VoicePolicy(settings.bundle.voice, settings.voices.aliases),
        _speakers_of(settings.voices.store),
        None if store is None else store.conditioning,
    )
    resources.callback(voices.close)
    return voices


def _speakers_of(store: Path | None) -> Path | None:
    """The folder of recordings that are enrolled at the start; None without one."""
    speakers = None if store is None else store / SPEAKERS_FOLDER
    return speakers if speakers is not None and speakers.is_dir() else None


async def _open_apis(
    settings: Settings,
    engine: SpeechEngine,
    access: AccessControl,
    voices: VoiceRegistry,
    resources: AsyncExitStack,
) -> SpeechApis:
    """Open the speech APIs, with gRPC if it has a port; raise VivavoceError."""
    guard = UrlGuard.allowing(settings.apis.reference_hosts)
    policy = SpeechApiPolicy(
        settings.apis.max_input_characters,
        models_of(engine),
        settings.reading.refuses_guessed_language,
        settings.apis.exchange_folder,
    )
    named = {name: path for name, path in settings.lexicons.items() if name != DEFAULT_NAME}
    lexicons = NamedLexicons(named) if named else None
    apis = SpeechApis(SpeechServer(engine, access, voices, guard, policy, lexicons))
    resources.push_async_callback(apis.aclose)
    for name, port in settings.apis.ports.items():
        bound = await apis.listen(name, (settings.http.host, port))
        logger.info("%s on %s", name, format_address((settings.http.host, bound)))
    return apis


def _make_access_control(table: AccessTable, http: HttpTable) -> AccessControl:
    """Return the access control of HTTP; raise SettingsError if the keys file holds no valid key."""
    is_open_knowingly = table.keys_file is not None or table.without_key == "everything"
    if http.public_url is not None and not is_open_knowingly:
        logger.warning(
            "http.public_url is %s and there is no keys file: whoever the proxy lets in can use everything",
            http.public_url,
        )
    origins = Origins(
        frozenset(http.allowed_origins or ()),
        loopback_names_only=is_loopback(http.host),
        public_url=http.public_url,
    )
    if table.keys_file is None:
        return AccessControl.open_to_all(origins)
    keys = KeysFile(table.keys_file)
    if not any(key.is_valid_at(time.time()) for key in keys):
        raise SettingsError(
            f"access.keys_file: {table.keys_file} holds no valid key; make one: "
            f"vivavoce keys add NAME --keys-file {table.keys_file}"
        )
    access = AccessControl(keys, origins, has_public_lists=table.without_key != "nothing")
    access.prepare_keys()
    return access


async def _raise_first_failure(tasks: "tuple[asyncio.Task[None], ...]") -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        await task
    raise RuntimeError("a task of the server ended by itself")


async def _close_http(http: HttpServer, http_task: "asyncio.Task[None]") -> None:
    http.close()
    await asyncio.wait({http_task})
