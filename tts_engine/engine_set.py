"""Several engines behind the interface of one: the voice of a stream chooses the engine.

Each engine has its own bundle, workers and admission, so that a slow bundle delays the streams of its own
voices only. A voice keeps its id; where two bundles have the same one, the later bundle's is NAME/ID.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from .backends.base import Delivery
from .backends.voice_reader import require_language, speaks
from .engine import Engine
from .errors import BadRequest, Overloaded, UnknownVoice
from .reading.pronunciation.lexicon import Lexicon
from .stream import Stream
from .voices.voices import Voice, Voices

logger = logging.getLogger(__name__)

_MAX_WARNED = 1_000  # languages come from clients


class OtherLanguage(StrEnum):
    """What happens to a text in a language that its voice does not speak."""

    REFUSE = "refuse"
    WARN = "warn"  # speak it with the voice's own rules
    OTHER_VOICE = "other-voice"  # speak it with the default voice of its language; refuse without one


@dataclass(frozen=True, slots=True)
class NamedEngine:
    """An engine of a set. voice: id of its default voice; None is its first."""

    name: str
    engine: Engine
    voice: str | None = None


class EngineSetVoices(Voices):
    """The voices of all engines, those of the first engine first."""

    def __init__(self, engines: tuple[NamedEngine, ...]) -> None:
        self._owners: dict[str, tuple[Engine, str]] = {}
        self._engines = {each.name: each.engine for each in engines}
        found = []
        for each in engines:
            for voice in each.engine.voices:
                voice_id = f"{each.name}/{voice.id}" if voice.id in self._owners else voice.id
                self._owners[voice_id] = (each.engine, voice.id)
                found.append(replace(voice, id=voice_id))
        super().__init__(tuple(found))

    def __contains__(self, voice_id: object) -> bool:
        return super().__contains__(voice_id) or (isinstance(voice_id, str) and self.is_unlisted(voice_id))

    def is_unlisted(self, name: str) -> bool:
        """Whether a voice of an engine has the name and is not listed."""
        return any(engine.voices.is_unlisted(name) for engine in self._engines.values())

    def get(self, voice_id: str | None) -> Voice:
        """The voice with that id, or the default for None. Raises UnknownVoice."""
        if voice_id is None or super().__contains__(voice_id):
            return super().get(voice_id)
        engine, own_id = self.owner(voice_id)
        return engine.voices.get(own_id)

    def owner(self, voice_id: str) -> tuple[Engine, str]:
        """The engine of a voice, and the voice's id there. Raises UnknownVoice."""
        if voice_id in self._owners:
            return self._owners[voice_id]
        for engine in self._engines.values():
            if engine.voices.is_unlisted(voice_id):
                return engine, voice_id
        raise UnknownVoice(f"no voice {voice_id[:140]!r}; loaded: {', '.join(self._voices)}")

    def id_beside(self, voice_id: str, name: str) -> str | None:
        """As ``Voices.id_beside``."""
        engine, _ = self.owner(voice_id)
        return next((each for each in self.ids_of(engine) if self._owners[each][1] == name), None)

    def ids_of(self, engine: Engine) -> Iterator[str]:
        """The ids of an engine's voices."""
        return (voice_id for voice_id, (owner, _) in self._owners.items() if owner is engine)


class EngineSet(Engine):
    """Engines that are open together. ``aclose`` closes all.

    Args:
        engines: the first one has the default voice.
        default_voice: id of the voice that stands for "none given"; None: the first.
        other_language: for texts whose language the caller gave.

    Attributes:
        default_voices: id of the default voice of each engine by the engine's name.
    """

    def __init__(
        self,
        engines: tuple[NamedEngine, ...],
        default_voice: str | None = None,
        other_language: OtherLanguage = OtherLanguage.REFUSE,
    ) -> None:
        # Not the base class's: the members have the sessions, threads and backends.
        self._members = engines
        self._main = engines[0].engine
        self.metrics = self._main.metrics
        self.voices: EngineSetVoices = EngineSetVoices(engines)
        self._default_voice = self.voices.get(default_voice).id
        self._other_language = other_language
        self._warned: set[tuple[str, str]] = set()
        self.default_voices = {each.name: self._default_of(each) for each in engines}

    @property
    def active_streams(self) -> int:
        """Number of open streams of all engines."""
        return sum(each.engine.active_streams for each in self._members)

    def refusal(self) -> Overloaded | None:
        """The error with which the first engine would refuse one more stream."""
        return self._main.refusal()

    def stream(
        self,
        *,
        voice: str | None = None,
        speed: float = 1.0,
        seed: int = 0,
        delivery: Delivery | None = None,
        lexicon: Lexicon | None = None,
    ) -> Stream:
        """Open a stream in the engine of the voice, as ``Engine.stream``.

        Raises BadRequest too if the voice does not speak ``delivery.language`` and the set refuses that.
        """
        delivery = delivery or Delivery()
        chosen = self.voices.get(voice or self._default_voice)
        if delivery.language and not speaks(chosen, delivery.language):
            chosen, delivery = self._for_other_language(chosen, delivery, delivery.language)
        engine, own_id = self.voices.owner(chosen.id)
        return engine.stream(voice=own_id, speed=speed, seed=seed, delivery=delivery, lexicon=lexicon)

    async def convert(
        self,
        samples: NDArray[np.float32],
        sample_rate: int,
        *,
        voice: str | None = None,
        speed: float = 1.0,
        seed: int = 0,
    ) -> Stream:
        """As ``Engine.convert``, in the engine of the voice."""
        engine, own_id = self.voices.owner(self.voices.get(voice or self._default_voice).id)
        return await engine.convert(samples, sample_rate, voice=own_id, speed=speed, seed=seed)

    async def aclose(self) -> None:
        """Close every engine. May be called twice."""
        await asyncio.gather(*(each.engine.aclose() for each in self._members))

    def _for_other_language(self, voice: Voice, delivery: Delivery, language: str) -> tuple[Voice, Delivery]:
        """Voice and delivery for a text that the voice does not speak.

        The default voice counts as left open, so that a default voice of the text's language replaces it.
        """
        if voice.id == self._default_voice or self._other_language is OtherLanguage.OTHER_VOICE:
            for voice_id in (*self.default_voices.values(), *(each.id for each in self.voices)):
                other = self.voices.get(voice_id)
                if speaks(other, language):
                    return other, delivery
        if self._other_language is not OtherLanguage.WARN:
            require_language(voice, language)
        if (voice.id, language) not in self._warned and len(self._warned) < _MAX_WARNED:
            self._warned.add((voice.id, language))
            logger.warning(
                "the voice %s does not speak %s; it reads the text by its own rules", voice.id, language
            )
        return voice, replace(delivery, language=None)

    def _default_of(self, member: NamedEngine) -> str:
        ids = list(self.voices.ids_of(member.engine))
        if member.voice is None:
            return ids[0]
        for voice_id in ids:
            if member.voice in (voice_id, self.voices.owner(voice_id)[1]):
                return voice_id
        if member.engine.voices.is_unlisted(member.voice):
            return member.voice
        raise BadRequest(f"bundles.{member.name}: no voice {member.voice!r}; it has {', '.join(ids)}")
