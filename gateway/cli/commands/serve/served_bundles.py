"""The bundles of a running server, and their replacement.

A bundle that does not load does not stop the server: the one before goes on.
"""

import asyncio
import logging
import threading

from .....tts_engine.engine_set import EngineSet
from .....tts_engine.errors import VivavoceError
from .....tts_engine.speech_engine import SpeechEngine
from ....configuration.settings import Settings
from ....engine_opening import bundles_of, engine_config, engine_set_members, open_bundle
from ....engine_settings import BundleTable
from ....process_tuning import lower_rendering_priority
from ....voice_registry import VoiceRegistry

logger = logging.getLogger(__name__)


class ServedBundles:
    """The tables ``[bundle]`` and ``[bundles.NAME]`` of a running server. Belongs to its event loop."""

    def __init__(self, engine: EngineSet, settings: Settings, voices: VoiceRegistry) -> None:
        """Take over the bundles that ``open_engine`` opened; voices: lists those of the engine."""
        self._engine = engine
        self._settings = settings
        self._voices = voices
        self._served = bundles_of(settings)
        self._lexicon = engine.voices.members[0].engine.lexicon  # all bundles follow its changes

    async def replace(self, settings: Settings) -> None:
        """Serve the bundles of other settings, of which nothing else is used.

        New streams go to the new bundles; open streams end where they began. A bundle that does not load is
        logged, and the one with its name goes on.
        """
        members = {each.name: each.engine for each in self._engine.voices.members}
        served, opened = {}, []
        kept: dict[str, SpeechEngine] = {}
        for name, bundle in bundles_of(settings).items():
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
            self._engine.exchange(engine_set_members(kept, served), self._voices.configured_ids())
        except VivavoceError as error:
            logger.error("the bundles stay as they are: %s", error)
            await asyncio.gather(*(engine.aclose() for engine in opened))
            return
        self._voices.refresh()
        logger.info("bundles served: %s", ", ".join(map(_describe, served, served.values())))
        self._served = served

    async def _open(self, name: str, bundle: BundleTable) -> SpeechEngine | None:
        """Load a bundle, None if that fails. Boundary: no fault of a bundle ends the server."""
        config = engine_config(self._settings, self._lexicon)
        metrics, threads = self._engine.metrics, threading.enumerate()
        try:
            engine = await open_bundle(name, bundle, self._settings, config, metrics)
        except VivavoceError as error:
            logger.error("the bundle %s was not loaded: %s", name, error)
        except Exception:
            logger.exception("the bundle %s was not loaded", name)
        else:
            lower_rendering_priority(but=threads)
            return engine
        return None


def _describe(name: str, bundle: BundleTable) -> str:
    canaries = "".join(f", {part:g} of it {canary}" for canary, part in bundle.canaries.items())
    return f"{name} of {bundle.folder}{canaries}"
