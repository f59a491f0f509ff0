"""Utterances of one call, in virtual time, with an engine that renders one second for each sentence."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.calls.ticked_call import (
    LEAD_S,
    SENTENCE_S,
    RunVirtually,
    TickedCall,
    deltas,
    open_call,
)
from vivavoce.adapters.audio.dtmf import encode_dtmf
from vivavoce.gateway.calls.call_options import CallSpeechOptions
from vivavoce.gateway.calls.events import CallEvent, SpeechDiscarded, SpeechFinished
from vivavoce.gateway.calls.utterance_tracker import UtteranceOutcome
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.reading.pronunciation.entries import lexicon_of
from vivavoce.tts_engine.reading.pronunciation.lexicon_files import LexiconFile


def test_an_utterance_is_played_once_and_whole(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            assert (
                await ticked.call.speech.speak(deltas("One", ". T", "wo.", " Three."))
                is UtteranceOutcome.SPOKEN
            )
            await ticked.call.speech.wait_played()
            assert ticked.engine.streams[0].pushed == "One. Two. Three."
            assert ticked.seconds_of(1000) == pytest.approx(3.0, abs=0.05)

    run_virtually(scenario())


def test_text_may_be_one_string(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            assert await ticked.call.speech.speak("One.") is UtteranceOutcome.SPOKEN
            await ticked.call.speech.wait_played()
            assert ticked.seconds_of(1000) == pytest.approx(1.0, abs=0.05)

    run_virtually(scenario())


def test_chunks_are_taken_only_while_the_lead_is_below_its_limit(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            await ticked.call.speech.speak("One. Two. Three. Four.")
            taken_at = ticked.engine.streams[0].taken_at
            leads = [index * SENTENCE_S - (at - taken_at[0]) for index, at in enumerate(taken_at)]
            assert leads[1:] == pytest.approx([LEAD_S] * 3, abs=0.03)

    run_virtually(scenario())


def test_the_stream_gets_the_playout_deadline(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            start = ticked.now()
            await ticked.call.speech.speak("One. Two. Three.")
            deadlines = [deadline - start for deadline in ticked.engine.streams[0].deadlines]
            assert deadlines == pytest.approx([1.0, 2.0, 3.0], abs=0.03)

    run_virtually(scenario())


def test_the_lead_of_later_chunks_is_measured(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            await ticked.call.speech.speak("One. Two. Three.")
            assert ticked.metric("playout_lead_seconds_count") == 2
            assert ticked.metric("playout_lead_seconds_sum") == pytest.approx(2 * LEAD_S, abs=0.05)

    run_virtually(scenario())


def test_a_discard_ends_the_utterance_at_once(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            speaking = asyncio.create_task(ticked.call.speech.speak("One. Two. Three."))
            await asyncio.sleep(0.5)
            discarded = ticked.call.speech.discard().result()
            sent_before = len(ticked.sent_levels)
            assert ticked.engine.streams[0].cancelled
            await asyncio.sleep(3.0)
            assert await speaking is UtteranceOutcome.DISCARDED
            assert discarded.cut_ms == pytest.approx(1500, abs=25)  # half a sentence and one queued chunk
            assert ticked.call.speech.discarded_ms == discarded.cut_ms
            assert set(ticked.sent_levels[sent_before + 1 :]) == {0}

    run_virtually(scenario())


def test_after_a_discard_only_the_next_utterance_is_heard(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            speaking = asyncio.create_task(ticked.call.speech.speak("One. Two. Three."))
            await asyncio.sleep(0.5)
            ticked.call.speech.discard()
            assert await ticked.call.speech.speak("Four.") is UtteranceOutcome.SPOKEN
            assert speaking.done()
            await ticked.call.speech.wait_played()
            assert ticked.seconds_of(2000) == pytest.approx(1.0, abs=0.05)
            assert ticked.seconds_of(1000) <= 0.54

    run_virtually(scenario())


def test_a_discard_also_drops_utterances_that_wait(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            first = asyncio.create_task(ticked.call.speech.speak("One. Two."))
            second = asyncio.create_task(ticked.call.speech.speak("Three."))
            await asyncio.sleep(0.1)
            ticked.call.speech.discard()
            assert await first is UtteranceOutcome.DISCARDED
            assert await second is UtteranceOutcome.DISCARDED
            assert len(ticked.engine.streams) == 1

    run_virtually(scenario())


def test_a_chunk_that_arrives_at_the_moment_of_a_discard_is_not_heard(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            speaking = asyncio.create_task(ticked.call.speech.speak(deltas("One.", every_s=0.2)))
            await asyncio.sleep(0.1)
            ticked.engine.streams[0].on_chunk = ticked.call.speech.discard
            assert await speaking is UtteranceOutcome.DISCARDED
            await asyncio.sleep(0.5)
            assert set(ticked.sent_levels) == {0}

    run_virtually(scenario())


def lose_speech(ticked: TickedCall) -> None:
    """Lose what is queued, as with a media server that dies; the next one reports the call as played."""
    ticked.media.playout.discard(ticked.now())
    ticked.media._pushes = 0
    ticked.call.on_played(ticked.call.speech._pushes)


def test_an_utterance_whose_last_speech_is_lost_with_its_media_server_is_finished(
    run_virtually: RunVirtually,
) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            events: list[CallEvent] = []
            ticked.call.events.add_listener(events.append)
            speaking = asyncio.create_task(ticked.call.speech.speak("One."))
            await asyncio.sleep(0.2)  # all is rendered, and more than the lead is queued
            lose_speech(ticked)
            assert await speaking is UtteranceOutcome.SPOKEN
            await asyncio.sleep(0.1)
            assert [event for event in events if isinstance(event, SpeechFinished)] == [
                SpeechFinished(0, "spoken", "One.")
            ]

    run_virtually(scenario())


def test_an_utterance_whose_discard_is_answered_late_is_discarded_and_not_finished(
    run_virtually: RunVirtually, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            events: list[CallEvent] = []
            ticked.call.events.add_listener(events.append)
            speaking = asyncio.create_task(ticked.call.speech.speak("One. Two. Three."))
            await asyncio.sleep(0.5)
            discard = ticked.media.discard
            monkeypatch.setattr(ticked.media, "discard", lambda: None)
            ticked.call.speech.discard()
            assert await speaking is UtteranceOutcome.DISCARDED
            assert await ticked.call.speech.speak("") is UtteranceOutcome.SPOKEN
            discard()
            ends = [event for event in events if isinstance(event, SpeechFinished | SpeechDiscarded)]
            assert [type(end) for end in ends] == [SpeechDiscarded]

    run_virtually(scenario())


def test_utterances_follow_one_another(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            outcomes = await asyncio.gather(
                ticked.call.speech.speak("One."), ticked.call.speech.speak("Two.")
            )
            assert outcomes == [UtteranceOutcome.SPOKEN, UtteranceOutcome.SPOKEN]
            await ticked.call.speech.wait_played()
            spoken = [level for level in ticked.sent_levels if level]
            assert spoken == sorted(spoken)
            assert set(spoken) == {1000, 2000}

    run_virtually(scenario())


def test_wait_played_returns_when_the_playout_is_empty(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            start = ticked.now()
            await ticked.call.speech.speak("One. Two.")
            await ticked.call.speech.wait_played()
            assert ticked.now() - start == pytest.approx(2.0, abs=0.03)
            await ticked.call.speech.wait_played()
            assert ticked.now() - start == pytest.approx(2.0, abs=0.03)

    run_virtually(scenario())


def test_wait_played_returns_at_a_discard(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            await ticked.call.speech.speak("One.")
            start = ticked.now()
            asyncio.get_running_loop().call_later(0.05, ticked.call.speech.discard)
            await ticked.call.speech.wait_played()
            assert ticked.now() - start == pytest.approx(0.05, abs=0.001)

    run_virtually(scenario())


def test_an_error_of_the_voice_ends_its_utterance_only(
    run_virtually: RunVirtually, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            assert await ticked.call.speech.speak("One. Fail. Two.") is UtteranceOutcome.FAILED
            assert await ticked.call.speech.speak("Three.") is UtteranceOutcome.SPOKEN
            await ticked.call.speech.wait_played()
            assert ticked.seconds_of(1000) == pytest.approx(1.0, abs=0.05)
            assert ticked.seconds_of(2000) == pytest.approx(1.0, abs=0.05)
            assert ticked.call.media.report.stats.underruns == 0
            assert ticked.reasons == []

    run_virtually(scenario())
    assert "Call call-1: an utterance failed: the voice failed" in caplog.text


def test_an_utterance_waits_for_a_place_in_the_engine(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            ticked.engine.full = True
            start = ticked.now()
            asyncio.get_running_loop().call_later(1.5, setattr, ticked.engine, "full", False)
            assert await ticked.call.speech.speak("One.") is UtteranceOutcome.SPOKEN
            assert ticked.engine.streams[0].taken_at[0] - start == pytest.approx(1.5, abs=0.06)

    run_virtually(scenario())


def test_a_discard_ends_the_wait_for_a_place(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            ticked.engine.full = True
            start = ticked.now()
            asyncio.get_running_loop().call_later(0.5, ticked.call.speech.discard)
            assert await ticked.call.speech.speak("One.") is UtteranceOutcome.DISCARDED
            assert ticked.now() - start == pytest.approx(0.5)
            assert ticked.engine.streams == []

    run_virtually(scenario())


def test_an_engine_that_stays_full_fails_the_utterance_after_two_seconds(
    run_virtually: RunVirtually, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            ticked.engine.full = True
            start = ticked.now()
            assert await ticked.call.speech.speak("One.") is UtteranceOutcome.FAILED
            assert ticked.now() - start == pytest.approx(2.0, abs=0.06)

    run_virtually(scenario())
    assert "Call call-1: an utterance failed: 256 streams are open" in caplog.text


def test_text_that_the_engine_refuses_fails_the_utterance(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            assert await ticked.call.speech.speak(deltas("One.", "\x00")) is UtteranceOutcome.FAILED
            assert ticked.engine.streams[0].ended

    run_virtually(scenario())


def test_an_exception_of_the_text_s_source_is_raised_after_the_text_before_it(
    run_virtually: RunVirtually,
) -> None:
    async def broken() -> AsyncIterator[str]:
        yield "One."
        raise ConnectionError("the language model is gone")

    async def scenario() -> None:
        async with open_call() as ticked:
            with pytest.raises(ConnectionError, match="language model"):
                await ticked.call.speech.speak(broken())
            await ticked.call.speech.wait_played()
            assert ticked.seconds_of(1000) == pytest.approx(1.0, abs=0.05)
            assert await ticked.call.speech.speak("Two.") is UtteranceOutcome.SPOKEN

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
        async with open_call() as ticked:
            speaking = asyncio.create_task(ticked.call.speech.speak(endless()))
            await asyncio.sleep(0.1)
            ticked.call.speech.discard()
            await speaking
            assert closed == [True]

    run_virtually(scenario())


def test_keys_are_tones_after_the_speech_where_the_way_in_has_none(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            speaking = asyncio.create_task(ticked.call.speech.speak("One."))
            await asyncio.sleep(0.1)
            await ticked.call.send_keys("1w#")
            await speaking
            first, second = (encode_dtmf(key, SAMPLE_RATE).strip(b"\0") for key in "1#")
            at = [ticked.sent.find(tones) / 2 / SAMPLE_RATE for tones in (first, second)]
            assert at[0] > SENTENCE_S and at[1] - at[0] == pytest.approx(0.1 + 0.2 + 0.5, abs=0.1)
            assert 1000 not in ticked.sent_levels[round(at[0] / 0.02) :]

    run_virtually(scenario())


def test_speak_may_be_cancelled(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            speaking = asyncio.create_task(ticked.call.speech.speak(deltas("One.", "Two.", every_s=0.5)))
            await asyncio.sleep(0.7)
            speaking.cancel()
            await asyncio.wait({speaking})
            assert speaking.cancelled()
            assert ticked.engine.streams[0].cancelled
            assert await ticked.call.speech.speak("Three.") is UtteranceOutcome.SPOKEN

    run_virtually(scenario())


def test_an_utterance_may_have_its_own_speech_options(run_virtually: RunVirtually) -> None:
    async def scenario() -> None:
        async with open_call() as ticked:
            await ticked.call.speech.speak("One.")
            of_key = LexiconFile(Path("key.toml"), lexicon_of({"nginx": "engine x"}))
            await ticked.call.speech.speak("Two.", speech=CallSpeechOptions("anna", 1.2, 7, of_key))
            assert ticked.engine.requested == [(None, 1.0, 0), ("anna", 1.2, 7)]
            assert ticked.engine.lexicons == (lexicon_of({"nginx": "engine x"}),)
            assert ticked.engine.delivery.listener_rate == ticked.call.media.sample_rate

    run_virtually(scenario())
