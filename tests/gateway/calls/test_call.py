"""One call, in virtual time, with an engine that renders one second for each sentence."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from vivavoce.adapters.playback.playout import Playout
from vivavoce.adapters.voice_activity import VoiceActivityChange
from vivavoce.gateway.calls.call import Call, CallSpeechOptions, UtteranceOutcome
from vivavoce.gateway.calls.events import CallEvent
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance
from vivavoce.tts_engine.errors import BadText, Overloaded, StreamClosed, SynthesisFailed
from vivavoce.tts_engine.metrics import Metrics

RunVirtually = Callable[[Coroutine[Any, Any, None]], None]
SENTENCE_S = 1.0
LEAD_S = 0.6


class FakeStream:
    """Renders a second of the constant ``level`` for each sentence; the sentence "Fail." raises."""

    def __init__(self, level: int, now: Callable[[], float]) -> None:
        self.pushed = ""
        self.ended = self.cancelled = False
        self.taken_at: list[float] = []
        self.deadlines: list[float] = []
        self.on_chunk: Callable[[], object] = lambda: None
        self._level = level
        self._now = now
        self._rendered = 0
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "FakeStream":
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cancel()

    def push_text(self, text: str) -> None:
        if self.cancelled or self.ended:
            raise StreamClosed("no more")
        if "\x00" in text:
            raise BadText("a zero")
        self.pushed += text
        self._changed.set()

    def end_input(self) -> None:
        self.ended = True
        self._changed.set()

    def cancel(self) -> None:
        self.cancelled = True
        self._changed.set()

    def set_deadline(self, runs_dry_at: float) -> None:
        self.deadlines.append(runs_dry_at)

    def __aiter__(self) -> "FakeStream":
        return self

    async def __anext__(self) -> AudioChunk:
        while True:
            if self.cancelled:
                raise StopAsyncIteration
            stop = self.pushed.find(".", self._rendered) + 1
            if stop:
                chunk = self._speak(self._rendered, stop)
                self.on_chunk()
                return chunk
            if self.ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()

    def _speak(self, start: int, stop: int) -> AudioChunk:
        if self.pushed[start:stop].strip() == "Fail.":
            raise SynthesisFailed("the voice failed")
        index = len(self.taken_at)
        self._rendered = stop
        self.taken_at.append(self._now())
        samples = round(SENTENCE_S * SAMPLE_RATE)
        pcm = np.full(samples, self._level, "<i2").tobytes()
        at = (index * samples, (index + 1) * samples)
        return AudioChunk(pcm, index, at, (start, stop), (), Provenance(None, None, 0, 0), final=False)


class FakeEngine:
    def __init__(self, now: Callable[[], float]) -> None:
        self.metrics = Metrics()
        self.streams: list[FakeStream] = []
        self.asked: list[tuple[str | None, float, int]] = []
        self.full = False
        self._now = now

    def stream(self, *, voice: str | None, speed: float, seed: int) -> FakeStream:
        if self.full:
            raise Overloaded("256 streams are open", reason="streams", retry_after_s=1.0)
        self.asked.append((voice, speed, seed))
        self.streams.append(FakeStream(1000 * (len(self.streams) + 1), self._now))
        return self.streams[-1]


class Leg:
    """A call that is ticked every 20 ms; ``heard`` has the level of each packet sent."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time
        self.engine = FakeEngine(loop.time)
        self.heard: list[int] = []
        self.reasons: list[str] = []
        playout = Playout(start=loop.time(), sample_rate=SAMPLE_RATE)
        self.call = Call(
            "call-1", engine=self.engine, playout=playout, send=self._send, close=self._close,
            lead_s=LEAD_S, now=loop.time,
        )  # fmt: skip
        self.on_close = self.call.on_closed

    def _send(self, packet: bytes) -> None:
        samples = np.frombuffer(packet, "<i2")
        self.heard.append(int(samples[len(samples) // 2]))

    def _close(self, reason: str) -> None:
        if not self.reasons:
            self.reasons.append(reason)
            self.on_close()

    async def tick(self) -> None:
        start = self.now()
        for number in range(100_000):
            await asyncio.sleep(start + number * 0.02 - self.now())
            self.call.tick(self.now())

    def seconds_of(self, level: int) -> float:
        return self.heard.count(level) * 0.02

    def metric(self, name: str) -> float | None:
        return self.engine.metrics.registry.get_sample_value(f"vivavoce_{name}")


@asynccontextmanager
async def open_leg() -> AsyncIterator[Leg]:
    leg = Leg()
    ticking = asyncio.create_task(leg.tick())
    yield leg
    ticking.cancel()
    await asyncio.wait({ticking})
    left_over = asyncio.all_tasks() - {asyncio.current_task()}
    assert left_over == set()


async def deltas(*texts: str, every_s: float = 0.0) -> AsyncIterator[str]:
    for text in texts:
        await asyncio.sleep(every_s)
        yield text


def test_an_utterance_is_played_once_and_whole(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            assert await leg.call.speak(deltas("One", ". T", "wo.", " Three.")) is UtteranceOutcome.SPOKEN
            await leg.call.wait_played()
            assert leg.engine.streams[0].pushed == "One. Two. Three."
            assert leg.seconds_of(1000) == pytest.approx(3.0, abs=0.05)

    run_virtually(scenario())


def test_text_may_be_one_string(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            assert await leg.call.speak("One.") is UtteranceOutcome.SPOKEN
            await leg.call.wait_played()
            assert leg.seconds_of(1000) == pytest.approx(1.0, abs=0.05)

    run_virtually(scenario())


def test_chunks_are_taken_only_while_the_lead_is_below_its_limit(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            await leg.call.speak("One. Two. Three. Four.")
            taken = leg.engine.streams[0].taken_at
            leads = [index * SENTENCE_S - (at - taken[0]) for index, at in enumerate(taken)]
            assert leads[1:] == pytest.approx([LEAD_S] * 3, abs=0.03)

    run_virtually(scenario())


def test_the_stream_gets_the_playout_deadline(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            start = leg.now()
            await leg.call.speak("One. Two. Three.")
            deadlines = [deadline - start for deadline in leg.engine.streams[0].deadlines]
            assert deadlines == pytest.approx([1.0, 2.0, 3.0], abs=0.03)

    run_virtually(scenario())


def test_the_lead_of_later_chunks_is_measured(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            await leg.call.speak("One. Two. Three.")
            assert leg.metric("playout_lead_seconds_count") == 2
            assert leg.metric("playout_lead_seconds_sum") == pytest.approx(2 * LEAD_S, abs=0.05)

    run_virtually(scenario())


def test_a_discard_ends_the_utterance_at_once(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            speaking = asyncio.create_task(leg.call.speak("One. Two. Three."))
            await asyncio.sleep(0.5)
            discarded = leg.call.discard()
            heard = len(leg.heard)
            assert leg.engine.streams[0].cancelled
            await asyncio.sleep(3.0)
            assert await speaking is UtteranceOutcome.DISCARDED
            assert discarded.cut_ms == pytest.approx(1500, abs=25)  # half a sentence and one in hand
            assert leg.call.discarded_ms == discarded.cut_ms
            assert set(leg.heard[heard + 1 :]) == {0}

    run_virtually(scenario())


def test_after_a_discard_only_the_next_utterance_is_heard(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            speaking = asyncio.create_task(leg.call.speak("One. Two. Three."))
            await asyncio.sleep(0.5)
            leg.call.discard()
            assert await leg.call.speak("Four.") is UtteranceOutcome.SPOKEN
            assert speaking.done()
            await leg.call.wait_played()
            assert leg.seconds_of(2000) == pytest.approx(1.0, abs=0.05)
            assert leg.seconds_of(1000) <= 0.54

    run_virtually(scenario())


def test_a_discard_also_drops_utterances_that_wait(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            first = asyncio.create_task(leg.call.speak("One. Two."))
            second = asyncio.create_task(leg.call.speak("Three."))
            await asyncio.sleep(0.1)
            leg.call.discard()
            assert await first is UtteranceOutcome.DISCARDED
            assert await second is UtteranceOutcome.DISCARDED
            assert len(leg.engine.streams) == 1

    run_virtually(scenario())


def test_a_chunk_that_arrives_at_the_moment_of_a_discard_is_not_heard(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            speaking = asyncio.create_task(leg.call.speak(deltas("One.", every_s=0.2)))
            await asyncio.sleep(0.1)
            leg.engine.streams[0].on_chunk = leg.call.discard
            assert await speaking is UtteranceOutcome.DISCARDED
            await asyncio.sleep(0.5)
            assert set(leg.heard) == {0}

    run_virtually(scenario())


def test_utterances_follow_one_another(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            outcomes = await asyncio.gather(leg.call.speak("One."), leg.call.speak("Two."))
            assert outcomes == [UtteranceOutcome.SPOKEN, UtteranceOutcome.SPOKEN]
            await leg.call.wait_played()
            spoken = [level for level in leg.heard if level]
            assert spoken == sorted(spoken)
            assert set(spoken) == {1000, 2000}

    run_virtually(scenario())


def test_wait_played_returns_when_the_playout_is_empty(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            start = leg.now()
            await leg.call.speak("One. Two.")
            await leg.call.wait_played()
            assert leg.now() - start == pytest.approx(2.0, abs=0.03)
            await leg.call.wait_played()
            assert leg.now() - start == pytest.approx(2.0, abs=0.03)

    run_virtually(scenario())


def test_wait_played_returns_at_a_discard(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            await leg.call.speak("One.")
            start = leg.now()
            asyncio.get_running_loop().call_later(0.05, leg.call.discard)
            await leg.call.wait_played()
            assert leg.now() - start == pytest.approx(0.05, abs=0.001)

    run_virtually(scenario())


def test_an_error_of_the_voice_ends_its_utterance_only(
    run_virtually: RunVirtually, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            assert await leg.call.speak("One. Fail. Two.") is UtteranceOutcome.FAILED
            assert await leg.call.speak("Three.") is UtteranceOutcome.SPOKEN
            await leg.call.wait_played()
            assert leg.seconds_of(1000) == pytest.approx(1.0, abs=0.05)
            assert leg.seconds_of(2000) == pytest.approx(1.0, abs=0.05)
            assert leg.call.playout.stats.underruns == 0
            assert leg.reasons == []

    run_virtually(scenario())
    assert "Call call-1: an utterance failed: the voice failed" in caplog.text


def test_a_full_engine_fails_the_utterance_at_once(
    run_virtually: RunVirtually, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            leg.engine.full = True
            start = leg.now()
            assert await leg.call.speak("One.") is UtteranceOutcome.FAILED
            assert leg.now() == start

    run_virtually(scenario())
    assert "Call call-1: an utterance failed: 256 streams are open" in caplog.text


def test_text_that_the_engine_refuses_fails_the_utterance(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            assert await leg.call.speak(deltas("One.", "\x00")) is UtteranceOutcome.FAILED
            assert leg.engine.streams[0].ended

    run_virtually(scenario())


def test_an_exception_of_the_text_s_source_is_raised_after_the_text_before_it(
    run_virtually: RunVirtually,
) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "One."
        raise ConnectionError("the language model is gone")

    async def scenario() -> None:
        async with open_leg() as leg:
            with pytest.raises(ConnectionError, match="language model"):
                await leg.call.speak(broken())
            await leg.call.wait_played()
            assert leg.seconds_of(1000) == pytest.approx(1.0, abs=0.05)
            assert await leg.call.speak("Two.") is UtteranceOutcome.SPOKEN

    run_virtually(scenario())


def test_a_source_is_closed_when_its_utterance_is_discarded(run_virtually: RunVirtually) -> None:
    closed = []

    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "One."
                await asyncio.sleep(0.01)
        finally:
            closed.append(True)

    async def scenario() -> None:
        async with open_leg() as leg:
            speaking = asyncio.create_task(leg.call.speak(endless()))
            await asyncio.sleep(0.1)
            leg.call.discard()
            await speaking
            assert closed == [True]

    run_virtually(scenario())


def test_speak_may_be_cancelled(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            speaking = asyncio.create_task(leg.call.speak(deltas("One.", "Two.", every_s=0.5)))
            await asyncio.sleep(0.7)
            speaking.cancel()
            await asyncio.wait({speaking})
            assert speaking.cancelled()
            assert leg.engine.streams[0].cancelled
            assert await leg.call.speak("Three.") is UtteranceOutcome.SPOKEN

    run_virtually(scenario())


def test_the_end_of_the_connection_ends_the_utterance(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            speaking = asyncio.create_task(leg.call.speak("One. Two. Three."))
            await asyncio.sleep(0.5)
            leg.call.on_closed()
            start = leg.now()
            assert await speaking is UtteranceOutcome.DISCARDED
            await leg.call.wait_closed()
            assert leg.now() == start
            assert leg.engine.streams[0].cancelled
            assert await leg.call.speak("Four.") is not UtteranceOutcome.SPOKEN
            assert len(leg.engine.streams) == 1

    run_virtually(scenario())


def test_finish_speaks_the_current_sentence_and_nothing_else(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            speaking = asyncio.create_task(leg.call.speak("One. Two. Three. Four. Five."))
            await asyncio.sleep(1.2)  # the second is being heard, the third is not asked for yet
            await leg.call.finish()
            assert leg.reasons == ["finished"]
            assert await speaking is UtteranceOutcome.CUT_SHORT
            assert leg.seconds_of(1000) == pytest.approx(2.0, abs=0.05)
            assert leg.call.playout.lead_s(leg.now()) == 0

    run_virtually(scenario())


def test_finish_waits_for_the_end_of_a_sentence_still_being_written(
    run_virtually: RunVirtually,
) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            source = deltas("One ", "is", " long.", " Two.", " Three.", every_s=0.5)
            speaking = asyncio.create_task(leg.call.speak(source))
            await asyncio.sleep(0.7)
            await leg.call.finish()
            assert await speaking is UtteranceOutcome.CUT_SHORT
            assert leg.engine.streams[0].pushed == "One is long."
            assert leg.seconds_of(1000) == pytest.approx(1.0, abs=0.05)

    run_virtually(scenario())


def test_finish_does_not_wait_for_text_after_the_sentence(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            speaking = asyncio.create_task(leg.call.speak(deltas("One.", "Two.", every_s=3.0)))
            await asyncio.sleep(3.5)
            start = leg.now()
            await leg.call.finish()
            assert await speaking is UtteranceOutcome.CUT_SHORT
            assert leg.now() - start == pytest.approx(0.5, abs=0.05)

    run_virtually(scenario())


def test_finish_ends_a_silent_call_at_once(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            start = leg.now()
            await leg.call.finish()
            assert leg.reasons == ["finished"]
            assert leg.now() == start

    run_virtually(scenario())


def test_an_agent_that_speaks_in_a_loop_does_not_spin_while_the_call_ends(
    run_virtually: RunVirtually,
) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:

            async def speak_in_a_loop() -> None:
                while not leg.reasons:
                    await leg.call.speak("One. Two.")

            speaking = asyncio.create_task(speak_in_a_loop())
            await asyncio.sleep(0.5)
            await leg.call.finish()
            await speaking
            assert len(leg.engine.streams) == 1

    run_virtually(scenario())


def test_speak_after_finish_waits_for_the_end_of_the_call(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            leg.on_close = lambda: None  # the connection takes its time
            await leg.call.finish()
            speaking = asyncio.create_task(leg.call.speak("Too late."))
            await asyncio.sleep(1.0)
            assert not speaking.done()
            leg.call.on_closed()
            assert await speaking is UtteranceOutcome.CUT_SHORT
            assert leg.engine.streams == []

    run_virtually(scenario())


def test_keys_are_read_in_order_and_excess_ones_are_dropped(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            for digit in "12#" + "9" * 200:
                leg.call.press(digit)
            assert [await leg.call.next_key() for _ in range(64)] == list("12#" + "9" * 61)
            leg.call.press("0")
            assert await leg.call.next_key() == "0"

    run_virtually(scenario())


class FakeSpeechDetector:
    """Takes any audio but digital silence for speech."""

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        return [VoiceActivityChange(any(pcm), 0.0)]


def test_caller_speech_is_detected_while_there_is_a_listener(run_virtually: RunVirtually) -> None:
    def listener(event: CallEvent) -> None:
        pass

    async def scenario() -> None:
        async with open_leg() as leg:
            leg.call.set_speech_detector(FakeSpeechDetector())
            leg.call.events.add_listener(listener)
            leg.call.receive_audio(b"\1\1" * 160, 8_000)
            asked_at = leg.now()
            await leg.call.wait_caller_silent(10.0)
            assert leg.now() - asked_at == pytest.approx(10.0)
            leg.call.events.remove_listener(listener)
            leg.call.receive_audio(b"\1\1" * 160, 8_000)  # without a listener it is not analysed
            await leg.call.wait_caller_silent(10.0)
            assert leg.now() - asked_at == pytest.approx(10.0)

    run_virtually(scenario())


def test_underruns_are_counted_while_speech_is_expected(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            await leg.call.speak(deltas("One.", "Two.", every_s=1.5))
            await leg.call.wait_played()
            await asyncio.sleep(1.0)
            assert leg.metric("underruns_total") == 1
            leg.call.on_closed()
            assert leg.metric("underruns_total") == 1

    run_virtually(scenario())


def test_late_packets_are_counted(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            asyncio.get_running_loop().call_later(0.5, asyncio.get_running_loop().pass_time, 0.3)
            await asyncio.sleep(0.9)  # they are counted once a second, and at the end
            leg.call.on_closed()
            assert leg.metric("late_packets_total") == leg.call.playout.stats.late_packets > 0

    run_virtually(scenario())


def test_an_utterance_may_have_its_own_speech_options(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_leg() as leg:
            await leg.call.speak("One.")
            await leg.call.speak("Two.", speech=CallSpeechOptions("anna", 1.2, 7))
            assert leg.engine.asked == [(None, 1.0, 0), ("anna", 1.2, 7)]

    run_virtually(scenario())


def test_the_log_contains_no_spoken_text(
    run_virtually: RunVirtually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with open_leg() as leg:
            await leg.call.speak("My secret. Fail.")
            leg.call.discard()
            leg.call.hang_up()

    run_virtually(scenario())
    assert "secret" not in caplog.text
