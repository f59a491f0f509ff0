"""The end, the keys, the caller's speech and the counters of one call, in virtual time."""

import asyncio
import logging

import pytest

from shared.calls.ticked_call import (
    RunVirtually,
    deltas,
    open_call,
)
from vivavoce.adapters.voice_activity import VoiceActivityChange
from vivavoce.gateway.calls.call_end import CallEnd
from vivavoce.gateway.calls.events import CallEvent
from vivavoce.gateway.calls.pressure import playout_pressure
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome


def test_the_end_of_the_connection_ends_the_utterance(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            speaking = asyncio.create_task(ticked.call.speech.speak("One. Two. Three."))
            await asyncio.sleep(0.5)
            ticked.call.on_closed()
            start = ticked.now()
            assert await speaking is UtteranceOutcome.DISCARDED
            await ticked.call.end.wait_closed()
            assert ticked.now() == start
            assert ticked.engine.streams[0].cancelled
            assert await ticked.call.speech.speak("Four.") is not UtteranceOutcome.SPOKEN
            assert len(ticked.engine.streams) == 1

    run_virtually(scenario())


def test_finish_speaks_the_current_sentence_and_nothing_else(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            speaking = asyncio.create_task(ticked.call.speech.speak("One. Two. Three. Four. Five."))
            await asyncio.sleep(1.2)  # the second sentence is playing, the third is not requested yet
            await ticked.call.end.finish()
            assert ticked.reasons == ["finished"]
            assert await speaking is UtteranceOutcome.CUT_SHORT
            assert ticked.seconds_of(1000) == pytest.approx(2.0, abs=0.05)
            assert ticked.media.playout.lead_s(ticked.now()) == 0

    run_virtually(scenario())


def test_finish_waits_for_the_end_of_a_sentence_still_being_written(
    run_virtually: RunVirtually,
) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            source = deltas("One ", "is", " long.", " Two.", " Three.", every_s=0.5)
            speaking = asyncio.create_task(ticked.call.speech.speak(source))
            await asyncio.sleep(0.7)
            await ticked.call.end.finish()
            assert await speaking is UtteranceOutcome.CUT_SHORT
            assert ticked.engine.streams[0].pushed == "One is long."
            assert ticked.seconds_of(1000) == pytest.approx(1.0, abs=0.05)

    run_virtually(scenario())


def test_finish_does_not_wait_for_text_after_the_sentence(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            speaking = asyncio.create_task(ticked.call.speech.speak(deltas("One.", "Two.", every_s=3.0)))
            await asyncio.sleep(3.5)
            start = ticked.now()
            await ticked.call.end.finish()
            assert await speaking is UtteranceOutcome.CUT_SHORT
            assert ticked.now() - start == pytest.approx(0.5, abs=0.05)

    run_virtually(scenario())


def test_finish_ends_a_silent_call_at_once(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            start = ticked.now()
            await ticked.call.end.finish()
            assert ticked.reasons == ["finished"]
            assert ticked.now() == start

    run_virtually(scenario())


def test_an_agent_that_speaks_in_a_loop_does_not_spin_while_the_call_ends(
    run_virtually: RunVirtually,
) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:

            async def speak_in_a_loop() -> None:
                while not ticked.reasons:
                    await ticked.call.speech.speak("One. Two.")

            speaking = asyncio.create_task(speak_in_a_loop())
            await asyncio.sleep(0.5)
            await ticked.call.end.finish()
            await speaking
            assert len(ticked.engine.streams) == 1

    run_virtually(scenario())


def test_speak_after_finish_waits_for_the_end_of_the_call(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            ticked.on_close = lambda: None  # the connection does not close yet
            await ticked.call.end.finish()
            speaking = asyncio.create_task(ticked.call.speech.speak("Too late."))
            await asyncio.sleep(1.0)
            assert not speaking.done()
            ticked.call.on_closed()
            assert await speaking is UtteranceOutcome.CUT_SHORT
            assert ticked.engine.streams == []

    run_virtually(scenario())


def test_keys_are_read_in_order_and_excess_ones_are_dropped(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            for digit in "12#" + "9" * 200:
                ticked.call.listening.press(digit)
            assert [await ticked.call.listening.next_key() for _ in range(64)] == list("12#" + "9" * 61)
            ticked.call.listening.press("0")
            assert await ticked.call.listening.next_key() == "0"

    run_virtually(scenario())


class FakeSpeechDetector:
    """Takes any audio but digital silence for speech."""

    def push(self, pcm: bytes, sample_rate: int) -> list[VoiceActivityChange]:
        return [VoiceActivityChange(any(pcm), 0.0)]


def test_caller_speech_is_detected_while_there_is_a_listener(run_virtually: RunVirtually) -> None:
    def listener(event: CallEvent) -> None:
        pass

    async def scenario() -> None:
        async with open_call(FakeSpeechDetector()) as ticked:
            ticked.call.events.add_listener(listener)
            ticked.media.receive_audio(b"\1\1" * 160, 8_000)
            asked_at = ticked.now()
            await ticked.call.listening.wait_caller_silent(10.0)
            assert ticked.now() - asked_at == pytest.approx(10.0)
            ticked.call.events.remove_listener(listener)
            ticked.media.receive_audio(b"\1\1" * 160, 8_000)  # without a listener it is not analysed
            await ticked.call.listening.wait_caller_silent(10.0)
            assert ticked.now() - asked_at == pytest.approx(10.0)

    run_virtually(scenario())


def test_underruns_are_counted_while_speech_is_expected(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            await ticked.call.speech.speak(deltas("One.", "Two.", every_s=1.5))
            await ticked.call.speech.wait_played()
            await asyncio.sleep(1.0)
            assert ticked.metric("underruns_total") == 1
            ticked.call.on_closed()
            assert ticked.metric("underruns_total") == 1

    run_virtually(scenario())


def test_late_packets_are_counted(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            asyncio.get_running_loop().call_later(0.5, asyncio.get_running_loop().pass_time, 0.15)
            await asyncio.sleep(0.9)  # the counter is updated once a second and at the end
            ticked.call.on_closed()
            assert ticked.metric("late_packets_total") == ticked.media.playout.stats.late_packets > 0

    run_virtually(scenario())


def test_packets_left_out_after_a_stall_keep_new_calls_away(
    run_virtually: RunVirtually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playout_pressure, "MIN_PACKETS", 10)
    monkeypatch.setattr(playout_pressure, "MIN_FAULTY_SECONDS", 1)

    async def scenario() -> None:
        async with open_call() as ticked:
            loop = asyncio.get_running_loop()
            loop.call_later(0.5, loop.pass_time, 0.3)
            await asyncio.sleep(0.9)
            assert ticked.pressure.playout.refusal(ticked.now()) is None
            ticked.call.on_closed()
            assert ticked.media.playout.stats.late_packets == 0
            refusal = ticked.pressure.playout.refusal(ticked.now())
            assert refusal is not None and "15 late packets" in str(refusal)

    run_virtually(scenario())


def test_the_log_contains_no_spoken_text(
    run_virtually: RunVirtually, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with open_call() as ticked:
            await ticked.call.speech.speak("My secret. Fail.")
            ticked.call.speech.discard()
            ticked.call.end.hang_up()

    run_virtually(scenario())
    assert "secret" not in caplog.text


@pytest.mark.parametrize("linger_s", [0.0, 0.1])
def test_a_call_ends_when_what_the_listener_still_holds_is_played(
    run_virtually: RunVirtually, linger_s: float
) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            closed: list[float] = []
            speech = ticked.call.speech
            end = CallEnd(speech, asyncio.Event(), lambda _: closed.append(ticked.now()), None, linger_s)
            for ending in (end.hang_up_when_heard("done"), end.finish()):
                speaking = asyncio.create_task(speech.speak("One."))
                await asyncio.sleep(0.1)
                ended = asyncio.create_task(ending)
                await speaking
                await speech.wait_played()
                heard_at = ticked.now()
                await ended
                assert closed.pop() - heard_at == pytest.approx(linger_s, abs=0.021)

    run_virtually(scenario())


def test_a_connection_that_is_gone_is_not_waited_for(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            closed, gone = list[float](), asyncio.Event()
            end = CallEnd(ticked.call.speech, gone, lambda _: closed.append(ticked.now()), None, 5.0)
            ending = asyncio.create_task(end.hang_up_when_heard("done"))
            await asyncio.sleep(0.1)
            gone.set()
            await ending
            assert closed == [pytest.approx(ticked.now())]

    run_virtually(scenario())
