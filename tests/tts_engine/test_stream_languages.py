"""Parts of a text in other languages: their words, places and rules, and languages that a voice lacks."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from shared.engine.multilingual_backend import MultilingualStandIn
from vivavoce.tts_engine.chunk import AudioChunk
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import LanguageNotSpoken, StreamClosed
from vivavoce.tts_engine.metrics import Metrics
from vivavoce.tts_engine.reading.pronunciation.entries import lexicon_of
from vivavoce.tts_engine.voices.languages import OtherLanguage

Test = Callable[[Engine, MultilingualStandIn], Coroutine[Any, Any, None]]
PARTS = [("Room 12, ", None), ("Zimmer 12", "de"), (" and 1/4/2026 ", None), ("is 1/4/2026", "en-gb")]


def with_engine(test: Test, other_language: OtherLanguage = OtherLanguage.REFUSE) -> None:
    async def run() -> None:
        backend = MultilingualStandIn()
        async with Engine(backend, EngineConfig(other_language=other_language), Metrics()) as engine:
            await asyncio.wait_for(test(engine, backend), 30)

    asyncio.run(run())


def test_each_part_is_read_by_the_rules_of_its_language_and_words_keep_their_places() -> None:
    async def test(engine: Engine, backend: MultilingualStandIn) -> None:
        async with engine.stream(lexicons=[lexicon_of({"Zimmer": "Kammer"})]) as stream:
            for text, language in PARTS:
                stream.set_language(language)
                for character in text:
                    stream.push_text(character)
            stream.end_input()
            chunks: list[AudioChunk] = [chunk async for chunk in stream]
        assert backend.read() == [
            (None, "Room twelve,"),
            ("de", "Kammer zwölf"),
            (None, "and January fourth twenty twenty six"),
            ("en-gb", "is the first of April twenty twenty six."),
        ]
        written = "".join(text for text, _ in PARTS)
        found = [word.text for chunk in chunks for word in chunk.words]
        assert list(dict.fromkeys(found)) == ["Room", "12", "Zimmer", "and", "1/4/2026", "is"]
        assert stream.text == written
        # Segments cover the text without gaps.
        ranges = [(segment.start, segment.stop) for segment in backend.segments]
        assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
        assert ranges[-1][1] == len(written)

    with_engine(test)


def test_a_language_that_the_voice_lacks_is_refused_and_changes_nothing() -> None:
    async def test(engine: Engine, backend: MultilingualStandIn) -> None:
        async with engine.stream() as stream:
            stream.push_text("Room 12 ")
            with pytest.raises(LanguageNotSpoken, match=r"speaks en-US, de, fr; the language .* is 'nl'"):
                stream.set_language("nl")
            stream.push_text("and 13.")
            stream.end_input()
            with pytest.raises(StreamClosed):
                stream.set_language("de")
            assert [chunk async for chunk in stream]
        assert backend.read() == [(None, "Room twelve and thirteen.")]

    for policy in (OtherLanguage.REFUSE, OtherLanguage.OTHER_VOICE):
        with_engine(test, policy)


def test_with_a_warning_it_is_read_by_the_rules_of_the_voice(caplog: pytest.LogCaptureFixture) -> None:
    async def test(engine: Engine, backend: MultilingualStandIn) -> None:
        async with engine.stream() as stream:
            stream.set_language("nl")
            stream.push_text("Kamer 12.")
            stream.end_input()
            assert [chunk async for chunk in stream]
        assert backend.read() == [(None, "Kamer twelve.")]

    with caplog.at_level(logging.WARNING):
        with_engine(test, OtherLanguage.WARN)
    (record,) = caplog.records
    assert record.getMessage() == "the voice tone-440 does not speak nl; it reads the text by its own rules"
