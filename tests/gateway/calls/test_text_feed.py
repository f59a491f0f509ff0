"""The text feed: pushing text as it arrives, and stopping at the end of a sentence; the character quota."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from shared.counted_work import counted_callbacks
from shared.dense_documents import dense_document
from shared.event_loop import until
from vivavoce.adapters.ssml.document import BadSsml
from vivavoce.gateway.access.errors import RateLimited
from vivavoce.gateway.calls.text_feed import CharacterQuota, TextCommand, TextFeed
from vivavoce.tts_engine.chunk import AudioChunk, Provenance
from vivavoce.tts_engine.reading.pronunciation.lexicon import Pronunciation
from vivavoce.tts_engine.reading.prosody import Prosody


class Sink:
    def __init__(self) -> None:
        self.pushed: list[str] = []
        self.ended = 0
        self.rate = 1.0

    def push_text(
        self, text: str, pronunciation: Pronunciation | None = None, pause_s: float | None = None
    ) -> None:
        self.pushed.append(text if pause_s is None else f"{text}<pause {pause_s:g}>")

    def set_prosody(self, prosody: Prosody) -> None:
        if prosody.speed != self.rate:
            self.rate = prosody.speed
            self.pushed.append(f"<rate {prosody.speed:g}>")

    def set_language(self, language: str | None) -> None: ...

    def mark(self, name: str) -> None:
        self.pushed.append(f"<mark {name}>")

    def flush(self) -> None:
        self.pushed.append("<flush>")

    def end_input(self) -> None:
        self.ended += 1


def chunk(start: int, stop: int) -> AudioChunk:
    return AudioChunk(b"", 0, (0, 0), (start, stop), (), Provenance(None, None, 0.0, 0.0), final=False)


async def deltas(*texts: str) -> AsyncIterator[str]:
    for text in texts:
        yield text


TEXT = "First of all, hello. How are you?"
FIRST, HELLO, HOW = chunk(0, 13), chunk(13, 20), chunk(20, 33)


def ends_before(*chunks: AudioChunk, end_after: int) -> list[bool]:
    """Return ``ends_before`` of each chunk; ``end_after_sentence`` is called before chunk ``end_after``."""

    async def scenario() -> list[bool]:
        answers = []
        async with TextFeed(Sink(), TEXT) as feed:
            await asyncio.sleep(0)
            for number, each in enumerate(chunks):
                if number == end_after:
                    feed.end_after_sentence()
                answers.append(feed.ends_before(each))
        return answers

    return asyncio.run(scenario())


def test_ends_before_is_false_without_end_after_sentence() -> None:
    assert ends_before(FIRST, HELLO, HOW, end_after=9) == [False, False, False]


def test_speech_continues_to_the_end_of_the_sentence() -> None:
    assert ends_before(FIRST, HELLO, HOW, end_after=1) == [False, False, True]


def test_a_started_segment_is_spoken_to_its_end() -> None:
    assert ends_before(FIRST, HELLO, HOW, HOW, HOW, end_after=3) == [False] * 5


def test_text_is_pushed_as_it_arrives_and_then_ended() -> None:
    async def scenario() -> Sink:
        sink = Sink()
        async with TextFeed(sink, deltas("One ", "two.")) as feed:
            await feed.raise_source_error()
        return sink

    sink = asyncio.run(scenario())
    assert sink.pushed == ["One ", "two."]
    assert sink.ended == 1


def test_a_source_is_closed_when_the_feed_stops_before_its_end() -> None:
    closed: list[bool] = []

    async def endless() -> AsyncGenerator[str, None]:
        try:
            yield "And so"
            await asyncio.sleep(0.01)
            yield " on. "
            yield "Never spoken."
        finally:
            closed.append(True)

    async def scenario() -> None:
        source = endless()  # referenced here, so that garbage collection does not close it
        async with TextFeed(Sink(), source) as feed:
            await asyncio.sleep(0.001)
            feed.end_after_sentence()
            await feed.raise_source_error()
            assert feed.text == "And so on. "
            assert closed

    asyncio.run(scenario())


def test_an_unread_error_of_the_source_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "One."
        raise ConnectionError("gone")

    async def scenario() -> None:
        async with TextFeed(Sink(), broken()):
            await asyncio.sleep(0.001)

    asyncio.run(scenario())
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == []


def test_has_failed_is_set_when_the_source_raises() -> None:
    async def broken() -> AsyncIterator[str]:
        yield "One."
        await asyncio.sleep(0.001)
        raise ConnectionError("gone")

    async def scenario() -> tuple[bool, bool]:
        async with TextFeed(Sink(), broken()) as feed:
            await asyncio.sleep(0)
            before = feed.has_failed
            with pytest.raises(ConnectionError):
                await feed.raise_source_error()
            return before, feed.has_failed

    assert asyncio.run(scenario()) == (False, True)


def test_after_a_refusal_a_flush_or_the_end_lets_text_through_again() -> None:
    taken: list[int] = []

    def charge(characters: int) -> None:
        if characters > 5:
            raise RateLimited("too much", 3.0)
        taken.append(characters)

    quota = CharacterQuota(charge)
    assert quota.accept("five.")
    with pytest.raises(RateLimited, match=r"too much; from here on .* flush or end") as refused:
        quota.accept("sixsix")
    assert refused.value.retry_after_s == 3.0
    assert [quota.accept(delta) for delta in ("one", TextCommand.FLUSH, "four")] == [False, True, True]
    with pytest.raises(RateLimited):
        quota.accept("sixsix")
    quota.end()
    assert quota.accept("")
    assert taken == [5, 4, 0]


def test_a_document_is_pushed_piece_by_piece_with_its_rate_and_plain_text_follows_at_the_usual_one() -> None:
    marked = 'One <mark name="a"/>two<break time="1s"/>'
    document = f'<speak rate="2">{marked} <prosody rate="50%">3</prosody></speak>'

    async def scenario() -> tuple[Sink, str, list[str]]:
        sink, announced = Sink(), list[str]()
        async with TextFeed(sink, deltas(document[:9], document[9:], "Four."), announced.append) as feed:
            await feed.raise_source_error()
            return sink, feed.text, announced

    sink, text, announced = asyncio.run(scenario())
    assert "".join(sink.pushed) == "<rate 2>One <mark a>two<pause 1> <rate 1>3 Four."
    assert text == "".join(announced) == "One two 3 Four."


def test_a_fault_of_a_document_is_an_error_of_the_source_and_the_text_before_it_is_spoken() -> None:
    async def scenario() -> tuple[Sink, str]:
        sink = Sink()
        async with TextFeed(sink, deltas("<speak>One.</speak>", "<speak>Two.")) as feed:
            with pytest.raises(BadSsml, match="no element found") as fault:
                await feed.raise_source_error()
        return sink, str(fault.value)

    sink, fault = asyncio.run(scenario())
    assert (sink.pushed, sink.ended) == (["One."], 1)
    assert fault.startswith("SSML, line 1, column 12: ")


def test_a_long_document_is_pushed_in_slices_and_whole_although_the_call_ends() -> None:
    sink = Sink()

    async def test() -> None:
        with counted_callbacks() as calls:
            async with TextFeed(
                sink, deltas("<speak>One. " + dense_document("<break/>a")[7:], "Not.")
            ) as feed:
                await until(lambda: len(sink.pushed) > 100)
                feed.end_after_sentence()
                await until(lambda: sink.ended)
        assert max(calls) < 20_000  # of over 500,000

    asyncio.run(asyncio.wait_for(test(), 60))
    assert len(sink.pushed) > 20_000
    assert sink.pushed[-1] == "Not."
