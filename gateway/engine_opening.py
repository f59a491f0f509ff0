"""Opens the engine that the settings describe, and replaces bundles of a running server.

It has one bundle, or several as a set. A voice renders in this process, in a child process
(``load_backend``) or in the replicas of a cluster; ``open_shared_store`` opens what its gateways share.

A bundle that does not load does not stop a running server: the one before goes on.
"""

import asyncio
import functools
import logging
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, Protocol

from ..tts_engine.backends.base import ProcessPolicy
from ..tts_engine.backends.kinds import find_kind
from ..tts_engine.backends.loading import load_backend
from ..tts_engine.backends.voice_kind import KeptSpeechConfig
from ..tts_engine.engine import Engine, EngineConfig
from ..tts_engine.engine_set import EngineSet, NamedEngine
from ..tts_engine.errors import BadRequest, VivavoceError
from ..tts_engine.metrics import Metrics
from ..tts_engine.reading.pronunciation.lexicon_files import LexiconFile
from ..tts_engine.scheduler import SchedulerPolicy
from ..tts_engine.speech_engine import SpeechEngine
from ..tts_engine.voices.voices import Voices
from .access.access_control import AccessControl
from .cluster.settings import ClusterTable
from .configuration.settings import DEFAULT_NAME, Settings
from .engine_settings import MAIN_BUNDLE, BundleTable
from .enrolment import PromptSharing
from .process_tuning import RENDERING_NICENESS, lower_rendering_priority
from .voice_registry import VoiceRegistry

logger = logging.getLogger(__name__)

# Of rendered lines for streams that say the same: 1,000 s for phones, 330 s at 24 kHz.
KEPT_SPEECH_BYTES: Final = 32_000_000


async def open_engine(settings: Settings) -> SpeechEngine:
    """Load the bundles and the lexicon. Raises BundleError, BadRequest and MissingExtra."""
    config = _engine_config(settings, _default_lexicon(settings))
    async with AsyncExitStack() as opened:
        main = await opened.enter_async_context(
            await _open_main_engine(settings.bundle, settings, config, None)
        )
        engine = main
        if settings.bundles is not None:  # an empty table too: bundles may be added to it
            engines = {MAIN_BUNDLE: main}
            for name, bundle in settings.bundles.items():
                further = await _open_further(bundle, settings, config, main.metrics)
                engines[name] = await opened.enter_async_context(further)
            members = _members(engines, _bundles_of(settings))
            engine = EngineSet(members, settings.bundle.voice, settings.reading.stated_language)
        opened.pop_all()
    lower_rendering_priority()
    return engine


def keeps_speech(settings: Settings) -> bool:
    """Whether the engine keeps rendered lines of the main bundle's voices."""
    return settings.engine.ray_address is None and find_kind(settings.bundle.folder).keeps_speech


def models_of(engine: SpeechEngine) -> Mapping[str, str]:
    """The id of the default voice of each further bundle by its name, which the APIs take as a model.

    The mapping changes with the bundles.
    """
    return engine.further_voices if isinstance(engine, EngineSet) else {}


def impaired_bundles(engine: SpeechEngine) -> str | None:
    """Which bundles cannot speak because nothing computes them; None if all can."""
    failed = engine.failed_engines if isinstance(engine, EngineSet) else ()
    if not failed:
        return None
    return f"nothing computes the voices of {', '.join(failed)}: the device failed, or no replica renders"


class ServedBundles:
    """The tables ``[bundle]`` and ``[bundles.NAME]`` of a running server. Belongs to its event loop."""

    def __init__(self, engine: EngineSet, settings: Settings, voices: VoiceRegistry) -> None:
        """Take over the bundles that ``open_engine`` opened; voices: lists those of the engine."""
        self._engine = engine
        self._settings = settings
        self._voices = voices
        self._served = _bundles_of(settings)
        self._lexicon = engine.voices.members[0].engine.lexicon  # all bundles follow its changes

    async def replace(self, settings: Settings) -> None:
        """Serve the bundles of other settings, of which nothing else is used.

        New streams go to the new bundles; open streams end where they began. A bundle that does not load is
        logged, and the one with its name goes on.
        """
        members = {each.name: each.engine for each in self._engine.voices.members}
        served, opened = {}, []
        kept: dict[str, SpeechEngine] = {}
        for name, bundle in _bundles_of(settings).items():
            before = self._served.get(name)
            if before is not None and before.loads_as(bundle):
                engine: SpeechEngine | None = members[name]
            elif (engine := await self._open(name, bundle)) is not None:
                opened.append(engine)
            if engine is not None:
                served[name] = bundle
                kept[name] = engine
            elif before is not None:
                served[name] = before
                kept[name] = members[name]
        try:
            self._engine.exchange(_members(kept, served), self._voices.configured_ids())
        except VivavoceError as error:
            logger.error("the bundles stay as they are: %s", error)
            await asyncio.gather(*(engine.aclose() for engine in opened))
            return
        self._voices.refresh()
        logger.info("bundles served: %s", ", ".join(map(_describe, served, served.values())))
        self._served = served

    async def _open(self, name: str, bundle: BundleTable) -> SpeechEngine | None:
        """Load a bundle, None if that fails. Boundary: no fault of a bundle ends the server."""
        config = _engine_config(self._settings, self._lexicon)
        metrics, threads = self._engine.metrics, threading.enumerate()
        try:
            if name == MAIN_BUNDLE:
                engine = await _open_main_engine(bundle, self._settings, config, metrics)
            else:
                engine = await _open_further(bundle, self._settings, config, metrics)
        except VivavoceError as error:
            logger.error("the bundle %s was not loaded: %s", name, error)
        except Exception:
            logger.exception("the bundle %s was not loaded", name)
        else:
            lower_rendering_priority(but=threads)
            return engine
        return None


def _bundles_of(settings: Settings) -> dict[str, BundleTable]:
    """All bundles by name, the main one first."""
    return {MAIN_BUNDLE: settings.bundle, **(settings.bundles or {})}


class GatewaySharing(Protocol):
    """What a gateway shares with others."""

    @property
    def conditioning(self) -> PromptSharing:
        """Prompts of recordings."""

    def share_access(self, access: AccessControl) -> None:
        """Share keys and limits from now on."""

    async def share_voices(self, voices: Voices) -> None:
        """Share stored voices from now on."""


def open_shared_store(cluster: ClusterTable, resources: AsyncExitStack) -> GatewaySharing | None:
    """Open the store of the gateways, which ``resources`` closes; None without ``redis_url``.

    Raises MissingExtra and BadRequest.
    """
    if cluster.redis_url is None:
        return None
    from .cluster.shared_store.shared_store import SharedStore

    return SharedStore.open(cluster.redis_url.get_secret_value(), resources)


def _describe(name: str, bundle: BundleTable) -> str:
    canaries = "".join(f", {part:g} of it {canary}" for canary, part in bundle.canaries.items())
    return f"{name} of {bundle.folder}{canaries}"


def _members(
    engines: Mapping[str, SpeechEngine], bundles: Mapping[str, BundleTable]
) -> tuple[NamedEngine, ...]:
    """The engines of a set, which may lack bundles that were not loaded."""
    canaries = {
        canary: (name, part)
        for name, bundle in bundles.items()
        for canary, part in bundle.canaries.items()
        if name in engines
    }
    return tuple(
        NamedEngine(
            name,
            engine,
            bundles[name].voice if name != MAIN_BUNDLE else None,
            *canaries.get(name, (None, 0.0)),
        )
        for name, engine in engines.items()
    )


def _engine_config(settings: Settings, lexicon: LexiconFile | None) -> EngineConfig:
    return EngineConfig(
        scheduler=SchedulerPolicy(max_streams=settings.engine.max_streams),
        reading=settings.reading.style,
        lexicon=lexicon,
        other_language=settings.reading.stated_language,
    )


def _default_lexicon(settings: Settings) -> LexiconFile | None:
    path = settings.lexicons.get(DEFAULT_NAME)
    return None if path is None else LexiconFile(path)


async def _open_main_engine(
    bundle: BundleTable, settings: Settings, config: EngineConfig, metrics: Metrics | None
) -> SpeechEngine:
    """Load the main bundle; metrics: of the server, None at its start."""
    engine = settings.engine
    if engine.ray_address is not None:
        if metrics is not None:
            raise BadRequest("the replicas of a cluster get another bundle when they are deployed again")
        from .cluster.ray.gateway_engine import open_cluster

        return await open_cluster(engine.ray_address, bundle, settings, config)
    return await Engine.open(
        bundle.folder,
        voices=settings.voices.store,
        precision=bundle.precision,
        device=bundle.device,
        executor=engine.executor,
        config=config,
        process=_process_of(bundle),
        metrics=metrics,
        kept_speech=_kept_speech(settings),
    )


async def _open_further(
    bundle: BundleTable, settings: Settings, config: EngineConfig, metrics: Metrics
) -> SpeechEngine:
    load = functools.partial(
        load_backend,
        bundle.folder,
        settings.voices.store,
        bundle.precision,
        bundle.device,
        _process_of(bundle),
        kept_speech=_kept_speech(settings),
    )
    backend = await asyncio.to_thread(load)
    return await Engine.open(bundle.folder, backend=backend, config=config, metrics=metrics)


def _kept_speech(settings: Settings) -> KeptSpeechConfig:
    if (table := settings.kept_speech) is None:
        return KeptSpeechConfig(KEPT_SPEECH_BYTES)
    return KeptSpeechConfig(KEPT_SPEECH_BYTES, table.folder, table.max_mb * 1_000_000)


def _process_of(bundle: BundleTable) -> ProcessPolicy | None:
    """A process of its own for networks that would delay packets: it costs 130 MB and a tenth of compute."""
    is_apart = find_kind(bundle.folder).renders_apart
    return ProcessPolicy(niceness=RENDERING_NICENESS) if is_apart else None
