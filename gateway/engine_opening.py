"""Opens the engine that the settings describe: one bundle, or several as a set."""

import asyncio
import functools
from contextlib import AsyncExitStack
from pathlib import Path

from ..tts_engine.backends.loading import BundleKind, find_kind, load_backend
from ..tts_engine.backends.process import ProcessPolicy
from ..tts_engine.bundles import require_folder
from ..tts_engine.engine import Engine, EngineConfig
from ..tts_engine.engine_set import EngineSet, NamedEngine, OtherLanguage
from ..tts_engine.errors import BadRequest
from ..tts_engine.metrics import Metrics
from ..tts_engine.reading.pronunciation.lexicon_files import LexiconFile
from ..tts_engine.scheduler import SchedulerPolicy
from .bundle_settings import BundleSetting
from .process_tuning import RENDERING_NICENESS, lower_rendering_priority
from .settings import Settings

MAIN_BUNDLE = "vivavoce"  # of the setting ``bundle``, as the APIs call their model


async def open_engine(settings: Settings) -> Engine:
    """Load the bundles and the lexicon. Raises BundleError, BadRequest and MissingExtra."""
    config = EngineConfig(
        scheduler=SchedulerPolicy(max_streams=settings.max_streams),
        reading=settings.reading_style,
        lexicon=LexiconFile(settings.lexicon) if settings.lexicon else None,
    )
    async with AsyncExitStack() as opened:
        main = await opened.enter_async_context(await _open_main_engine(settings, config))
        engine = main
        if settings.bundles:
            members = [NamedEngine(MAIN_BUNDLE, main)]
            for name, bundle in settings.bundles.items():
                further = await _open_further(name, bundle, settings, config, main.metrics)
                await opened.enter_async_context(further)
                members.append(NamedEngine(name, further, bundle.voice))
            engine = EngineSet(tuple(members), settings.voice, OtherLanguage(settings.other_language))
        opened.pop_all()
    if not settings.engine_process:
        lower_rendering_priority()
    return engine


def models_of(engine: Engine) -> dict[str, str]:
    """The id of the default voice of each further bundle by its name, which the APIs take as a model."""
    if not isinstance(engine, EngineSet):
        return {}
    return {name: voice for name, voice in engine.default_voices.items() if name != MAIN_BUNDLE}


async def _open_main_engine(settings: Settings, config: EngineConfig) -> Engine:
    process = ProcessPolicy(niceness=RENDERING_NICENESS) if settings.engine_process else None
    return await Engine.open(
        settings.bundle,
        voices=settings.voice_store,
        precision=settings.precision,
        device=settings.device,
        executor=settings.executor,
        config=config,
        process=process,
    )


async def _open_further(
    name: str, bundle: BundleSetting, settings: Settings, config: EngineConfig, metrics: Metrics
) -> Engine:
    if bundle.folder != "default":
        require_folder(Path(bundle.folder))
    if BundleKind.COSYVOICE in (find_kind(bundle.folder), find_kind(settings.bundle)):
        raise BadRequest(
            f"bundles.{name}: {bundle.folder} and the bundle {settings.bundle} cannot be served together; "
            "allowed are the packaged voice and folders of Piper and Kokoro voices"
        )
    load = functools.partial(load_backend, bundle.folder, workers=bundle.workers)
    backend = await asyncio.to_thread(load)
    return await Engine.open(bundle.folder, backend=backend, config=config, metrics=metrics)
