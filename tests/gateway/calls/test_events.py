"""Events of a call: who gets them, in which order, and who is dropped."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from vivavoce.adapters.playback.heard_words import DiscardResult, HeardWord
from vivavoce.gateway.calls.events import (
    CallerAudio,
    CallEvent,
    CallEvents,
    EventQueueOverrun,
    EventSubscription,
    HungUp,
    KeyPressed,
    SpeechDiscarded,
    SpeechFinished,
    SpeechStarted,
    WordHeard,
)
from vivavoce.gateway.calls.utterance_tracker import UtteranceTracker
from vivavoce.tts_engine.chunk import Word


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 10))


def test_a_follower_gets_what_happens_while_it_follows_and_ends_with_the_call() -> None:
    async def test() -> None:
        events = CallEvents()
        events.emit(KeyPressed("0"))
        with events.subscribe() as follower:
            events.emit(KeyPressed("1"))
            events.emit(CallerAudio(b"\0\0", 8000))
            events.emit(HungUp())
            assert [event async for event in follower] == [KeyPressed("1"), HungUp()]
        assert not events.has_subscribers

    run(test())


def test_who_follows_a_call_that_is_over_is_told_so() -> None:
    async def test() -> None:
        events = CallEvents()
        events.emit(HungUp())
        with events.subscribe() as follower:
            assert [event async for event in follower] == [HungUp()]

    run(test())


def test_audio_goes_to_those_who_asked_for_it_and_the_oldest_is_dropped_first() -> None:
    async def test() -> None:
        events = CallEvents()
        with events.subscribe(wants_audio=True) as follower:
            assert events.wants_caller_audio
            for second in range(20):
                events.emit(CallerAudio(bytes([second]) * 16_000, 8000))
            events.emit(HungUp())
            heard = [event.pcm[0] async for event in follower if isinstance(event, CallerAudio)]
            assert heard == list(range(10, 20))

    run(test())


def test_a_follower_that_does_not_read_is_dropped_after_what_it_had() -> None:
    async def test() -> None:
        follower = EventSubscription(wants_audio=False)
        for _ in range(5_000):
            follower.put(KeyPressed("1"))
        with pytest.raises(EventQueueOverrun):
            async for _ in follower:
                pass

    run(test())


class FakePlayout:
    """Words to be told at the next question, and a lead."""

    def __init__(self) -> None:
        self.words: list[HeardWord] = []
        self.lead = 1.0

    def take_heard_words(self) -> tuple[HeardWord, ...]:
        words, self.words = tuple(self.words), []
        return words

    def lead_s(self, now: float) -> float:
        return self.lead


class Source:
    def __init__(self, text: str) -> None:
        self.text = text


class Recorder(CallEvents):
    def __init__(self) -> None:
        super().__init__()
        self.told: list[CallEvent] = []

    def emit(self, event: CallEvent) -> None:
        self.told.append(event)


HELLO = Word("Hello", 0.0, 0.4, 0, 5)


def log() -> tuple[UtteranceTracker, FakePlayout, Recorder]:
    playout, events = FakePlayout(), Recorder()
    return UtteranceTracker(events, playout), playout, events


def test_an_utterance_begins_is_heard_and_is_finished_when_it_has_been_played() -> None:
    speech, playout, events = log()
    speech.begin(Source("Hello"))
    playout.words = [HeardWord(0, HELLO)]
    speech.tick(1.0)
    speech.end("spoken")
    speech.tick(1.1)
    assert events.told == [SpeechStarted(0), WordHeard(0, HELLO)]
    playout.lead = 0.0
    speech.tick(1.2)
    speech.tick(1.3)
    assert events.told[2:] == [SpeechFinished(0, "spoken")]


def test_an_utterance_is_finished_when_the_first_word_of_the_next_is_heard() -> None:
    speech, playout, events = log()
    speech.begin(Source("Hello"))
    speech.end("failed")
    speech.begin(Source("Hello"))
    playout.words = [HeardWord(1, HELLO)]
    speech.tick(1.0)
    assert events.told[2:] == [SpeechFinished(0, "failed"), WordHeard(1, HELLO)]


def test_an_utterance_that_had_no_audio_is_not_told_of() -> None:
    speech, _, events = log()
    speech.end("failed")
    speech.tick(1.0)
    assert events.told == []


def test_a_barge_in_tells_the_text_that_was_heard_and_drops_what_waited() -> None:
    speech, playout, events = log()
    speech.begin(Source("Hello there, this is long."))
    speech.end("spoken")
    speech.begin(Source("And this was never heard."))
    playout.words = [HeardWord(0, HELLO)]
    heard = speech.discard(DiscardResult(0, 1500.0, (HELLO,), 5, 2.0))
    assert heard == "Hello"
    assert events.told[2:] == [WordHeard(0, HELLO), SpeechDiscarded(0, 1500.0, "Hello")]
    speech.end("discarded")
    speech.tick(2.0)
    assert len(events.told) == 4


def test_a_barge_in_into_silence_says_nothing() -> None:
    speech, _, events = log()
    assert speech.discard(DiscardResult(-1, 0.0, (), 0, 2.0)) is None
    assert events.told == []
