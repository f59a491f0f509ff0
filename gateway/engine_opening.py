"""Opens the engine that the settings describe.

It has one bundle, or several as a set. A voice renders in this process, in a child process or in the replicas
of a cluster; ``open_shared_store`` opens what its gateways share.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, Protocol

from ..tts_engine.backends.base import ProcessPolicy
from ..tts_engine.backends.kinds import find_kind
from ..tts_engine.backends.voice_kind import KeptSpeechConfig
from ..tts_engine.engine import Engine, EngineConfig
from ..tts_engine.engine_set import EngineSet, NamedEngine
from ..tts_engine.errors import BadRequest
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

# Of rendered lines for streams that say the same: 1,000 s for phones, 330 s at 24 kHz.
KEPT_SPEECH_BYTES: Final = 32_000_000


async def open_engine(settings: Settings) -> SpeechEngine:
    """Load the bundles and the lexicon. Raises BundleError, BadRequest and MissingExtra."""
    config = engine_config(settings, _default_lexicon(settings))
    bundles = bundles_of(settings)
    engines: dict[str, SpeechEngine] = {}
    metrics: Metrics | None = None  # of the main bundle, shared by all
    async with AsyncExitStack() as opened:
        for name, bundle in bundles.items():
            opening = await open_bundle(name, bundle, settings, config, metrics)
            engines[name] = await opened.enter_async_context(opening)
            metrics = engines[MAIN_BUNDLE].metrics
        engine = engines[MAIN_BUNDLE]
        if settings.bundles is not None:  # an empty table too: bundles may be added to it
            members = engine_set_members(engines, bundles)
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


def bundles_of(settings: Settings) -> dict[str, BundleTable]:
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


def engine_set_members(
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


def engine_config(settings: Settings, lexicon: LexiconFile | None) -> EngineConfig:
    """The configuration of every engine of a server."""
    return EngineConfig(
        scheduler=SchedulerPolicy(max_streams=settings.engine.max_streams),
        reading=settings.reading.style,
        lexicon=lexicon,
        other_language=settings.reading.stated_language,
    )


def _default_lexicon(settings: Settings) -> LexiconFile | None:
    path = settings.lexicons.get(DEFAULT_NAME)
    return None if path is None else LexiconFile(path)


async def open_bundle(
    name: str, bundle: BundleTable, settings: Settings, config: EngineConfig, metrics: Metrics | None
) -> SpeechEngine:
    """Load a bundle; metrics: of the server, None for the main one at its start."""
    executor = settings.engine.executor if name == MAIN_BUNDLE else "auto"
    if name == MAIN_BUNDLE and (address := settings.engine.ray_address) is not None:
        if metrics is not None:
            raise BadRequest("the replicas of a cluster get another bundle when they are deployed again")
        from .cluster.ray.ray_engine import open_cluster

        return await open_cluster(address, bundle, settings, config)
    return await Engine.open(
        bundle.folder,
        voices=settings.voices.store,
        precision=bundle.precision,
        device=bundle.device,
        executor=executor,
        config=config,
        process=_process_of(bundle),
        metrics=metrics,
        kept_speech=_kept_speech(settings),
    )


def _kept_speech(settings: Settings) -> KeptSpeechConfig:
    if (table := settings.kept_speech) is None:
        return KeptSpeechConfig(KEPT_SPEECH_BYTES)
    return KeptSpeechConfig(KEPT_SPEECH_BYTES, table.folder, table.max_mb * 1_000_000)


def _process_of(bundle: BundleTable) -> ProcessPolicy | None:
    """A process of its own for networks that would delay packets: it costs 130 MB and a tenth of compute."""
    is_apart = find_kind(bundle.folder).renders_apart
    return ProcessPolicy(niceness=RENDERING_NICENESS) if is_apart else None
