"""The engine with a stand-in backend: chunks, words, back-pressure, cancellation and failures.

Tests that use the fixture ``stand_in`` run with the backend in this process and in a child process.
"""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shared.engine.engine_streams import TEXT, MakeStandIn, collect, content, pcm, run, speak
from shared.engine.standin_backend import WORD_S, StandInBackend
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import (
    Overloaded,
    StreamClosed,
    SynthesisFailed,
)
from vivavoce.tts_engine.scheduler import SchedulerPolicy


class GatedBackend(StandInBackend):
    """Counts steps and lets a test block them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.gate = threading.Semaphore(10_000)
        self.steps = 0
        self.stepping = threading.Event()

    def shut(self) -> None:
        while self.gate.acquire(blocking=False):
            pass

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        self.stepping.set()
        self.gate.acquire()
        self.steps += len(turns)
        return super().step(worker, turns)


def test_a_chunk_tells_that_no_text_is_left_until_the_writer_goes_on(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine, engine.stream() as stream:
            stream.push_text("One two three. ")
            stream.flush()
            chunk = await anext(stream)
            while not chunk.awaits_text:
                chunk = await anext(stream)
            assert chunk.sentence_stop is not None
            stream.push_text("Four five six. Seven eight nine.")
            stream.end_input()
            assert not any([chunk.awaits_text async for chunk in stream])

    run(test())


def test_chunks_are_contiguous_and_the_last_one_alone_is_final(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            chunks = await speak(engine, TEXT)
            assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
            assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
            position = 0
            for chunk in chunks:
                assert chunk.samples == (position, position + len(chunk.pcm) // 2)
                position = chunk.samples[1]

    run(test())


def test_no_silence_follows_the_last_sentence_whatever_its_mark(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            lengths = [len(pcm(await speak(engine, f"Are you there{mark}"))) for mark in ("", ".", "?", "!")]
            assert len(set(lengths)) == 1

    run(test())


def test_every_word_time_is_where_its_tone_is(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            chunks = await speak(engine, TEXT)
            words = [word for chunk in chunks for word in chunk.words]
            assert [word.text for word in words] == TEXT.replace(",", "").replace(".", "").replace(
                "!", ""
            ).split()
            samples = np.frombuffer(pcm(chunks), "<i2")
            for word in words:
                assert word.stop_s - word.start_s == pytest.approx(WORD_S)
                middle = round((word.start_s + WORD_S / 2) * SAMPLE_RATE)
                assert np.abs(samples[middle - 100 : middle + 100]).max() > 4000

    run(test())


@pytest.mark.parametrize("split", [1, 2, 3, 7, 20])
def test_any_split_of_the_text_gives_the_same_chunks(split: int, stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            whole, parts = await speak(engine, TEXT), await speak(engine, TEXT, split=split)
            assert content(whole) == content(parts)

    run(test())


# Written; words, and seconds of silence that are asked for
DIRECTED = [
    ("[pause:1s]One two.", ["One", "two"], 1.0),
    ('One<break time="1.5s"/> two [pause 300ms]three.', ["One", "two", "three"], 1.8),
    ("One, [pause:2s] two.", ["One", "two"], 2.0),
    ("One.[pause:700ms][pause:300ms]", ["One"], 1.0),
    ("[pause:1.25s]", [], 1.25),
    ("<think>Let me see.</think>One <tool_call>{}</tool_call>two.", ["One", "two"], 0.0),
]


@pytest.mark.parametrize("split", [0, 1])
@pytest.mark.parametrize(("text", "words", "silence_s"), DIRECTED)
def test_directions_are_followed_and_words_stay_where_their_tones_are(
    text: str, words: list[str], silence_s: float, split: int, stand_in: MakeStandIn
) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            chunks = await speak(engine, text, split=split)
            said = [word for chunk in chunks for word in chunk.words]
            assert [word.text for word in said] == words
            assert [text[word.text_start : word.text_stop] for word in said] == words
            assert chunks[-1].samples[1] / SAMPLE_RATE == pytest.approx(
                len(words) * WORD_S + silence_s + 0.02, abs=0.01
            )
            samples = np.frombuffer(pcm(chunks), "<i2")
            for word in said:
                middle = round((word.start_s + WORD_S / 2) * SAMPLE_RATE)
                assert np.abs(samples[middle - 100 : middle + 100]).max() > 4000

    run(test())


def test_a_pause_after_speech_that_was_rendered_is_as_long(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine, engine.stream() as stream:
            stream.push_text("One two, ")
            before = [await anext(stream)]
            while not before[-1].awaits_text:
                before.append(await anext(stream))
            stream.push_text("[pause:1s] three.")
            stream.end_input()
            chunks = [*before, *await collect(stream)]
            (three,) = [word for chunk in chunks for word in chunk.words if word.text == "three"]
            assert three.start_s == pytest.approx(2 * WORD_S + 1.0, abs=0.001)

    run(test())


def test_directions_are_spoken_where_they_are_switched_off() -> None:
    async def test() -> None:
        config = EngineConfig(follows_directions=False)
        async with await Engine.open(backend=StandInBackend(), config=config) as engine:
            chunks = await speak(engine, "<think>One</think> two.")
            assert "One" in [word.text for chunk in chunks for word in chunk.words]

    run(test())


def test_speech_begins_before_the_text_is_complete(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine, engine.stream() as stream:
            stream.push_text("Good morning, ")
            chunk = await anext(stream)
            assert chunk.words[0].text == "Good"

    run(test())


@pytest.mark.parametrize(
    "text", ["", "   ", "...", "\U0001f642\U0001f642", "\x00\x07\u200b", "\ud800", "!?\n\n---"]
)
def test_a_text_without_words_is_20_ms_of_silence(text: str, stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine:
            (chunk,) = await speak(engine, text)
            assert chunk.final
            assert chunk.pcm == bytes(2 * SAMPLE_RATE // 50)

    run(test())


def test_speech_beyond_full_scale_saturates() -> None:
    class Loud(StandInBackend):
        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            (rendered,) = super().step(worker, turns)
            assert isinstance(rendered, StepResult)
            return [replace(rendered, samples=8 * rendered.samples)]

    async def test() -> None:
        async with await Engine.open(backend=Loud()) as engine:
            samples = np.frombuffer(pcm(await speak(engine, "One.")), "<i2")
        assert (samples.min(), samples.max()) == (-32_768, 32_767)

    run(test())


def test_flush_speaks_what_is_buffered(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        async with await Engine.open(backend=stand_in()) as engine, engine.stream() as stream:
            stream.push_text("no full stop")
            stream.flush()
            first = await anext(stream)
            assert first.words[0].text == "no"
            stream.push_text("and more")
            stream.end_input()
            rest = await collect(stream)
            assert [word.text for chunk in rest for word in chunk.words] == ["full", "stop", "and", "more"]

    run(test())


def test_a_stream_that_is_not_read_pauses_its_own_rendering_only(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        config = EngineConfig(scheduler=SchedulerPolicy(max_unread_s=1.0))
        async with await Engine.open(backend=stand_in(), config=config) as engine:
            alone = content(await speak(engine, TEXT))
            async with engine.stream() as idle:
                idle.push_text("word " * 200 + ".")
                idle.end_input()
                for _ in range(2):
                    assert content(await speak(engine, TEXT)) == alone
                    assert 1.0 <= idle._session.unread_s <= 1.0 + WORD_S
                assert len([word for chunk in await collect(idle) for word in chunk.words]) == 200

    run(test())


def test_cancel_yields_nothing_more_and_frees_the_slot_within_one_step() -> None:
    async def test() -> None:
        backend = GatedBackend()
        async with await Engine.open(backend=backend) as engine:
            backend.shut()
            backend.stepping.clear()
            stream = engine.stream()
            stream.push_text(TEXT)
            await asyncio.to_thread(backend.stepping.wait)
            before = backend.steps
            stream.cancel()
            assert [chunk async for chunk in stream] == []
            backend.gate.release()
            while backend.open_slots:
                await asyncio.sleep(0.001)
            assert backend.steps == before + 1
            assert engine.active_streams == 0
            with pytest.raises(StreamClosed):
                stream.push_text("more")
            backend.gate.release(1000)

    run(test())


def test_a_new_stream_is_admitted_while_a_cancelled_one_is_in_its_last_step() -> None:
    async def test() -> None:
        backend = GatedBackend(slots=1)
        async with await Engine.open(backend=backend) as engine:
            backend.shut()
            backend.stepping.clear()
            first = engine.stream()
            first.push_text(TEXT)
            await asyncio.to_thread(backend.stepping.wait)
            with pytest.raises(Overloaded):
                engine.stream()
            first.cancel()
            try:
                second = engine.stream()
                assert backend.open_slots == 2
                with pytest.raises(Overloaded):
                    engine.stream()
            finally:
                backend.gate.release(1000)
            async with second:
                second.push_text(TEXT)
                second.end_input()
                words = [word.text for chunk in await collect(second) for word in chunk.words]
                assert len(words) == 15
            assert backend.open_slots == 0

    run(test())


def test_leaving_the_context_early_frees_the_slot(stand_in: MakeStandIn) -> None:
    async def test() -> None:
        backend = stand_in()
        async with await Engine.open(backend=backend) as engine:
            async with engine.stream() as stream:
                stream.push_text(TEXT)
                await anext(stream)
            while backend.open_slots:
                await asyncio.sleep(0.001)

    run(test())


def test_a_failing_step_ends_its_own_stream_and_no_other() -> None:
    class Failing(StandInBackend):
        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            rendered = super().step(worker, turns)
            bad = [slot for slot, state in self._open.items() if state.pitch_hz == 666]
            return [
                RuntimeError("no such tone") if turn.slot in bad else result
                for turn, result in zip(turns, rendered, strict=True)
            ]

    async def test() -> None:
        backend = Failing((440, 666), max_batch_size=8)
        async with await Engine.open(backend=backend) as engine:
            good = asyncio.create_task(speak(engine, TEXT))
            with pytest.raises(SynthesisFailed, match="no such tone"):
                await speak(engine, TEXT, voice="tone-666")
            assert (await good)[-1].final
            assert backend.open_slots == 0

    run(test())


def test_a_step_that_raises_ends_its_sessions_and_the_engine_continues() -> None:
    class Raising(StandInBackend):
        fail = False

        def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
            if self.fail:
                raise MemoryError("device full")
            return super().step(worker, turns)

    async def test() -> None:
        backend = Raising()
        async with await Engine.open(backend=backend) as engine:
            backend.fail = True
            with pytest.raises(SynthesisFailed, match="device full"):
                await speak(engine, TEXT)
            backend.fail = False
            assert (await speak(engine, TEXT))[-1].final
            assert backend.open_slots == 0

    run(test())
