"""Text on its way into a stream: pushed as it comes, and where a call that ends may stop."""

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from vivavoce.gateway.access.errors import RateLimited
from vivavoce.gateway.calls.text_feed import CharacterQuota, TextCommand, TextFeed
from vivavoce.tts_engine.chunk import AudioChunk, Provenance


class Sink:
    def __init__(self) -> None:
        self.pushed: list[str] = []
        self.ended = 0

    def push_text(self, text: str) -> None:
        self.pushed.append(text)

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


def over_before(*chunks: AudioChunk, end_after: int) -> list[bool]:
    """What is answered for each chunk when the end is asked for after that many."""

    async def scenario() -> list[bool]:
        answers = []
        async with TextFeed(Sink(), TEXT) as feed:
            await asyncio.sleep(0)
            for number, one in enumerate(chunks):
                if number == end_after:
                    feed.end_after_sentence()
                answers.append(feed.ends_before(one))
        return answers

    return asyncio.run(scenario())


def test_nothing_is_over_while_the_end_is_not_asked_for() -> None:
    assert over_before(FIRST, HELLO, HOW, end_after=9) == [False, False, False]


def test_a_sentence_goes_on_over_its_clauses() -> None:
    assert over_before(FIRST, HELLO, HOW, end_after=1) == [False, False, True]


def test_a_segment_that_has_begun_is_heard_to_its_end() -> None:
    assert over_before(FIRST, HELLO, HOW, HOW, HOW, end_after=3) == [False] * 5


def test_text_is_pushed_as_it_comes_and_then_ended() -> None:
    async def scenario() -> Sink:
        sink = Sink()
        async with TextFeed(sink, deltas("One ", "two.")) as feed:
            await feed.raise_source_error()
        return sink

    sink = asyncio.run(scenario())
    assert sink.pushed == ["One ", "two."]
    assert sink.ended == 1


def test_a_source_that_is_left_in_the_middle_is_closed_at_once() -> None:
    closed: list[bool] = []

    async def endless() -> AsyncGenerator[str, None]:
        try:
            yield "And so"
            await asyncio.sleep(0.01)
            yield " on. "
            yield "Never said."
        finally:
            closed.append(True)

    async def scenario() -> None:
        source = endless()  # held here, so that only the feed can close it
        async with TextFeed(Sink(), source) as feed:
            await asyncio.sleep(0.001)
            feed.end_after_sentence()
            await feed.raise_source_error()
            assert feed.text == "And so on. "
            assert closed

    asyncio.run(scenario())


def test_a_source_that_fails_without_being_asked_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "One."
        raise ConnectionError("gone")

    async def scenario() -> None:
        async with TextFeed(Sink(), broken()):
            await asyncio.sleep(0.001)

    asyncio.run(scenario())
    gc.collect()
    assert [record.getMessage() for record in caplog.records] == []


def test_a_failure_is_known_as_soon_as_it_happens() -> None:
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
