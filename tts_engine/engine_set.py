"""Several engines behind the interface of one: the voice of a stream chooses the engine.

Each engine has its own bundle, workers and admission, so that a slow bundle delays the streams of its own
voices only. A voice keeps its id; where two bundles have the same one, the later bundle's is NAME/ID.

``exchange`` replaces engines while streams are open: new streams go to the new engines, and an engine that is
no longer in the set is closed when its last stream has ended. A canary takes a share of another engine's new
streams, in the voices that both have.
"""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .errors import BadRequest, Overloaded, UnknownVoice
from .reading.pronunciation.lexicon_files import LexiconFile
from .scheduler import Admission
from .speech_engine import SpeechEngine, SpeechStream
from .stream_request import Delivery, StreamRequest
from .voices.enrollable import EnrollableVoices
from .voices.languages import OtherLanguage, require_language, speaks
from .voices.voices import Voice, Voices

logger = logging.getLogger(__name__)

_MAX_WARNED = 1_000  # languages come from clients
_RETIRING_INTERVAL_S = 0.2  # between two looks at an engine that may be closed


@dataclass(frozen=True, slots=True)
class NamedEngine:
    """An engine of a set."""

    name: str
    engine: SpeechEngine
    voice: str | None = None  # id of its default voice; None is its first
    canary_of: str | None = None  # name of the engine of which it takes a share
    share: float = 0.0  # 0 to 1, of that engine's new streams


class EngineSetVoices(Voices):
    """The voices of all engines, those of the first engine first and those of canaries last.

    Stored voices, and mixtures of voices, are found and not listed; NAME/ID is that of the engine NAME.

    Attributes:
        retiring: engines that are no longer in the set; their temporary voices speak until they are removed.
    """

    def __init__(self, engines: tuple[NamedEngine, ...], retiring: Collection[SpeechEngine] = ()) -> None:
        self.members = engines = tuple(sorted(engines, key=lambda each: each.canary_of is not None))
        self.retiring = retiring
        self._owners: dict[str, tuple[SpeechEngine, str]] = {}
        self._engines = {each.name: each.engine for each in engines}
        found = []
        for each in engines:
            for voice in each.engine.voices:
                voice_id = f"{each.name}/{voice.id}" if voice.id in self._owners else voice.id
                self._owners[voice_id] = (each.engine, voice.id)
                found.append(replace(voice, id=voice_id))
        super().__init__(tuple(found))

    def become(self, other: "EngineSetVoices") -> None:
        """Take over the voices of other engines."""
        self.members, self.retiring = other.members, other.retiring
        self._owners, self._engines, self._voices = other._owners, other._engines, other._voices

    def __contains__(self, voice_id: object) -> bool:
        return isinstance(voice_id, str) and self._find_owner(voice_id) is not None

    def is_unlisted(self, name: str) -> bool:
        """Whether a voice of an engine has the name and is not listed."""
        return any(engine.voices.is_unlisted(name) for engine in self._engines.values())

    def get(self, voice_id: str | None) -> Voice:
        """The voice with that id, or the default for None. Raises UnknownVoice."""
        if voice_id is None:
            return self.default
        engine, own_id = self.owner(voice_id)
        return replace(engine.voices.get(own_id), id=voice_id)

    @property
    def default(self) -> Voice:
        """The default voice of the first engine, of another one if it has none. Raises UnknownVoice."""
        main = self.members[0]
        with contextlib.suppress(UnknownVoice):
            voice = main.engine.voices.default
            return replace(voice, id=self.id_in(main, voice.id) or voice.id)
        return super().default

    def owner(self, voice_id: str) -> tuple[SpeechEngine, str]:
        """The engine of a voice, and the voice's id there. Raises UnknownVoice."""
        found = self._find_owner(voice_id)
        if found is None:
            raise UnknownVoice(f"no voice {voice_id[:140]!r}; loaded: {', '.join(self._voices)}")
        return found

    def follows_instructions(self, voice_id: str) -> bool:
        """As ``Voices.follows_instructions``."""
        engine, own_id = self.owner(voice_id)
        return engine.voices.follows_instructions(own_id)

    def id_in(self, member: NamedEngine, own_id: str) -> str | None:
        """The id of a voice that is ``own_id`` in an engine of the set, None if that has none."""
        if own_id not in member.engine.voices:
            return None
        listed = (each for each in self.ids_of(member.engine) if self._owners[each][1] == own_id)
        is_owner = self._find_owner(own_id) == (member.engine, own_id)
        return next(listed, own_id if is_owner else f"{member.name}/{own_id}")

    def id_beside(self, voice_id: str, name: str) -> str | None:
        """As ``Voices.id_beside``."""
        engine, _ = self.owner(voice_id)
        member = next((each for each in self.members if each.engine is engine), None)
        return None if member is None else self.id_in(member, name)

    def ids_of(self, engine: SpeechEngine) -> Iterator[str]:
        """The ids of an engine's listed voices."""
        return (voice_id for voice_id, (owner, _) in self._owners.items() if owner is engine)

    def _find_owner(self, voice_id: str) -> tuple[SpeechEngine, str] | None:
        if voice_id in self._owners:
            return self._owners[voice_id]
        name, _, own_id = voice_id.partition("/")
        if name in self._engines and own_id in self._engines[name].voices:
            return self._engines[name], own_id
        found = [engine for engine in self._engines.values() if voice_id in engine.voices]
        found += [engine for engine in self.retiring if voice_id in engine.voices.temporary_ids]
        fitting = (engine for engine in found if engine.voices.fits_model(voice_id))
        engine = next(fitting, found[0] if found else None)
        return None if engine is None else (engine, voice_id)


class EngineSet(SpeechEngine):
    """Engines that are open together. ``aclose`` closes all.

    Args:
        engines: the first one has the default voice.
        default_voice: id of the voice that stands for "none given"; None: the first.
        other_language: for texts whose language the caller gave.

    Attributes:
        default_voices: id of the default voice of each engine by the engine's name.
        further_voices: the same without the first engine; changes with the set.
    """

    def __init__(
        self,
        engines: tuple[NamedEngine, ...],
        default_voice: str | None = None,
        other_language: OtherLanguage = OtherLanguage.REFUSE,
    ) -> None:
        self._main = engines[0].engine
        self.metrics = self._main.metrics
        self.voices: EngineSetVoices = EngineSetVoices(())
        self._default_voice = default_voice
        self._other_language = other_language
        self._warned: set[tuple[str, str]] = set()
        self._retiring: dict[SpeechEngine, asyncio.Task[None]] = {}
        self._canary_parts: defaultdict[str, float] = defaultdict(float)  # of a stream, due to each canary
        self.further_voices: dict[str, str] = {}
        self.exchange(engines)

    @property
    def lexicon(self) -> LexiconFile | None:
        """That of the first engine."""
        return self._main.lexicon

    @property
    def active_streams(self) -> int:
        """Number of open streams of all engines."""
        return sum(engine.active_streams for engine in self._engines())

    @property
    def max_streams(self) -> int:
        """Most streams open at once, of all engines of the set together."""
        return sum(each.engine.max_streams for each in self.voices.members)

    @property
    def compute_s_per_audio_s(self) -> float:
        """As ``SpeechEngine.compute_s_per_audio_s``, of the engine where it is most."""
        return max(each.engine.compute_s_per_audio_s for each in self.voices.members)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """As ``SpeechEngine.process_ids``, of all engines."""
        return tuple(pid for engine in self._engines() for pid in engine.process_ids)

    @property
    def failed_engines(self) -> tuple[str, ...]:
        """Names of the engines that nothing computes now, such as after a fault of their device."""
        refusals = ((each.name, each.engine.refusal(Admission.OVERDUE)) for each in self.voices.members)
        return tuple(name for name, refusal in refusals if refusal is not None and refusal.reason == "device")

    def refusal(self, admission: Admission = Admission.NEW) -> Overloaded | None:
        """The error with which the first engine would refuse one more stream."""
        return self._main.refusal(admission)

    def open_stream(self, request: StreamRequest, admission: Admission = Admission.NEW) -> SpeechStream:
        """Open a stream in the engine of the voice, as ``SpeechEngine.open_stream``.

        Raises BadRequest too if the voice does not speak ``delivery.language`` and the set refuses that.
        """
        delivery = request.delivery
        chosen = self.voices.get(request.voice or self._default_voice)
        if delivery.language and not speaks(chosen, delivery.language):
            chosen, delivery = self._for_other_language(chosen, delivery, delivery.language)
        engine, own_id = self.voices.owner(chosen.id)
        request = replace(request, voice=own_id, delivery=delivery)
        canary = self._due_canary(engine, own_id)
        if canary is not None:
            try:
                return canary.open_stream(request, admission)
            except (Overloaded, BadRequest):  # of a trial; the engine itself may have room, or the language
                pass
        return engine.open_stream(request, admission)

    def language_spoken(self, voice: str | None, language: str) -> str | None:
        """As ``SpeechEngine.language_spoken``, in the engine of the voice."""
        engine, own_id = self.voices.owner(self.voices.get(voice or self._default_voice).id)
        return engine.language_spoken(own_id, language)

    def exchange(self, engines: tuple[NamedEngine, ...], needed_voices: Iterable[str] = ()) -> None:
        """Serve these engines from now on.

        needed_voices: ids that must not disappear. Raises UnknownVoice or BadRequest for a voice or a canary,
        and changes nothing then.
        """
        voices = EngineSetVoices(engines, self._retiring)
        for voice_id in (*needed_voices, *([self._default_voice] if self._default_voice else ())):
            voices.get(voice_id)
        defaults = {each.name: default for each in voices.members if (default := _default_of(each, voices))}
        names = [each.name for each in engines]
        for each in engines:
            if each.canary_of is not None and (each.canary_of == each.name or each.canary_of not in names):
                raise BadRequest(
                    f"{each.name} is the canary of {each.canary_of!r}; there are {', '.join(names)}"
                )
            if each is not engines[0] and each.name not in defaults:
                raise BadRequest(
                    f"bundles.{each.name}: it has no voice yet; enrol one with 'vivavoce voices add'"
                )
        before = {each.engine for each in self.voices.members}
        self.voices.become(voices)
        self._main, self.default_voices = engines[0].engine, defaults
        self.further_voices.clear()
        self.further_voices |= {each.name: defaults[each.name] for each in engines[1:]}
        for engine in before - {each.engine for each in engines}:
            self._retiring[engine] = asyncio.create_task(self._close_when_unused(engine))

    async def _close_when_unused(self, engine: SpeechEngine) -> None:
        # An engine does not report the end of a stream.
        while engine.active_streams or engine.voices.temporary_ids:  # noqa: ASYNC110
            await asyncio.sleep(_RETIRING_INTERVAL_S)
        try:
            await engine.aclose()
        finally:
            del self._retiring[engine]

    def _engines(self) -> tuple[SpeechEngine, ...]:
        return (*(each.engine for each in self.voices.members), *self._retiring)

    def _due_canary(self, engine: SpeechEngine, own_id: str) -> SpeechEngine | None:
        """The engine that takes the next stream instead, if it is its turn: every tenth for a tenth."""
        named = {each.name: each.engine for each in self.voices.members}
        for each in self.voices.members:
            if each.canary_of is None or named[each.canary_of] is not engine:
                continue
            if own_id not in each.engine.voices:
                continue
            self._canary_parts[each.name] += each.share
            if self._canary_parts[each.name] >= 1.0 - 1e-9:  # sums of 0.1 are not exact
                self._canary_parts[each.name] -= 1.0
                return each.engine
        return None

    async def open_conversion(
        self, samples: NDArray[np.float32], sample_rate: int, request: StreamRequest
    ) -> SpeechStream:
        """As ``SpeechEngine.open_conversion``, in the engine of the voice."""
        engine, own_id = self.voices.owner(self.voices.get(request.voice or self._default_voice).id)
        return await engine.open_conversion(samples, sample_rate, replace(request, voice=own_id))

    async def aclose(self) -> None:
        """Close every engine. May be called twice."""
        closing = tuple(self._retiring.values())
        for task in closing:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)
        await asyncio.gather(*(engine.aclose() for engine in self._engines()))

    def _for_other_language(self, voice: Voice, delivery: Delivery, language: str) -> tuple[Voice, Delivery]:
        """Voice and delivery for a text that the voice does not speak.

        The default voice counts as left open, so that a default voice of the text's language replaces it.
        """
        is_left_open = voice.id == self.voices.get(self._default_voice).id
        if is_left_open or self._other_language is OtherLanguage.OTHER_VOICE:
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


def enrollable_of(voices: Voices) -> EnrollableVoices | None:
    """The voices to which recordings are added, of a set those of the first engine that clones; or None."""
    found = (
        [each.engine.voices for each in voices.members] if isinstance(voices, EngineSetVoices) else [voices]
    )
    return next((each for each in found if isinstance(each, EnrollableVoices)), None)


def _default_of(member: NamedEngine, voices: EngineSetVoices) -> str | None:
    """The id of an engine's default voice, None if it has no voice at all."""
    if member.voice is None:
        with contextlib.suppress(UnknownVoice):
            return voices.id_in(member, member.engine.voices.default.id)
        return None
    ids = list(voices.ids_of(member.engine))
    if member.voice in ids:
        return member.voice
    voice_id = voices.id_in(member, member.voice)
    if voice_id is None:
        raise BadRequest(f"bundles.{member.name}: no voice {member.voice!r}; it has {', '.join(ids)}")
    return voice_id
