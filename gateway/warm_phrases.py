"""Phrases that are rendered when the server starts, so that the engine has them before a call says them."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..tts_engine.errors import BadRequest, Overloaded, VivavoceError
from ..tts_engine.records.stream_log import UNHEARD
from ..tts_engine.speech_engine import SpeechEngine
from ..tts_engine.stream_request import Delivery
from .configuration.settings import DEFAULT_NAME
from .engine_settings import KeptSpeechTable

logger = logging.getLogger(__name__)

# Phones, and everything else: the packaged voice renders the two apart.
_LISTENER_RATES: Final = (8_000, 48_000)
_MAX_CHARACTERS: Final = 2_000  # of a phrase
_RETRY_S: Final = 1.0  # after a refusal


@dataclass(frozen=True, slots=True)
class Phrase:
    """What is rendered. voice: id; None: the default one."""

    text: str
    voice: str | None = None


def read_phrases(kept_speech: KeptSpeechTable | None, engine: SpeechEngine) -> list[Phrase]:
    """The phrases of the setting ``kept_speech.phrases``: by voice, a list, or a file with one on each line.

    Raises BadRequest for a file that cannot be read and a phrase that is too long, and UnknownVoice.
    """
    phrases = []
    for name, given in kept_speech.phrases.items() if kept_speech is not None else ():
        voice = None if name == DEFAULT_NAME else engine.voices.get(name).id
        for text in _read_file(given) if isinstance(given, Path) else given:
            if len(text) > _MAX_CHARACTERS:
                raise BadRequest(
                    f"kept_speech.phrases.{name}: a phrase has {len(text)} characters, "
                    f"beginning {text[:30]!r}; allowed are {_MAX_CHARACTERS}"
                )
            phrases.append(Phrase(text, voice))
    return phrases


async def render_phrases(engine: SpeechEngine, phrases: Sequence[Phrase]) -> None:
    """Speak every phrase to nobody, one after another, at the rate of phones first."""
    rendered, seconds = 0, 0.0
    for rate in _LISTENER_RATES:
        for phrase in phrases:
            try:
                seconds += await _speak(engine, phrase, rate)
            except VivavoceError as error:
                logger.warning("the phrase %r was not rendered: %s", phrase.text[:60], error)
            else:
                rendered += 1
    if rendered:
        count = len(_LISTENER_RATES)
        logger.info("%d phrases are rendered, %.0f s of speech", rendered // count, seconds / count)


async def _speak(engine: SpeechEngine, phrase: Phrase, rate: int) -> float:
    """Seconds of the speech. Waits while there is no room for a stream."""
    while True:
        try:
            delivery = Delivery(listener_rate=rate)
            stream = engine.stream(voice=phrase.voice, delivery=delivery, trace_id=UNHEARD)
        except Overloaded:
            await asyncio.sleep(_RETRY_S)
        else:
            break
    async with stream:
        stream.push_text(phrase.text)
        stream.end_input()
        return sum([chunk.seconds async for chunk in stream])


def _read_file(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadRequest(f"kept_speech.phrases: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadRequest(f"kept_speech.phrases: {path}: not a text in UTF-8") from error
    return tuple(line.strip() for line in lines if line.strip())
