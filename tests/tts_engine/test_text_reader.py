"""Reading of long texts beside the event loop: what is read where, how far ahead, in which order."""

import asyncio
import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from shared.engine.engine_streams import collect, content, run
from shared.engine.standin_backend import StandInBackend
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import LanguageNotSpoken, StreamClosed, SynthesisFailed
from vivavoce.tts_engine.reading.pronunciation.lexicon import Pronunciation
from vivavoce.tts_engine.reading.prosody import Prosody
from vivavoce.tts_engine.segmenter import Segment, Segmenter
from vivavoce.tts_engine.stream import Stream

LONG_TEXT = "Seven small boats sailed slowly home, and the eighth one stayed out at sea. " * 20
MAX_READ_ON_THE_LOOP = 64  # characters
MAX_READ_IN_A_TURN = 128


@dataclass
class Reading:
    """One call of a segmenter."""

    thread: threading.Thread
    characters: int  # that could be read: those held and those of the call
    waiting_segments: int


class RecordingSegmenter(Segmenter):
    def __init__(self, backend: "RecordingBackend") -> None:
        super().__init__()
        self._backend = backend

    def push(self, text: str, pronunciation: Pronunciation | None = None) -> list[Segment]:
        self._backend.record(self.held_characters + len(text))
        if text.startswith("!!"):
            raise ValueError("a fault of a rule")
        return super().push(text, pronunciation)


@dataclass
class RecordingBackend(StandInBackend):
    readings: list[Reading] = field(default_factory=list)
    stream: Stream | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def segmenter(self, request: SlotRequest) -> Segmenter:
        return RecordingSegmenter(self)

    def record(self, characters: int) -> None:
        waiting = 0 if self.stream is None else len(self.stream._session.pending)
        self.readings.append(Reading(threading.current_thread(), characters, waiting))


def spoken(give: Callable[[Stream], None], backend: StandInBackend | None = None) -> list[AudioChunk]:
    """All chunks of a stream that is given its text by a function."""
    chunks: list[AudioChunk] = []

    async def test() -> None:
        used = backend or StandInBackend()
        async with await Engine.open(backend=used, warm_up=False) as engine, engine.stream() as stream:
            if isinstance(used, RecordingBackend):
                used.stream = stream
            give(stream)
            stream.end_input()
            chunks.extend(await collect(stream))

    run(test())
    return chunks


def test_the_event_loop_reads_short_text_only() -> None:
    backend = RecordingBackend()

    def give(stream: Stream) -> None:
        stream.push_text("Hello there. ")
        stream.push_text(LONG_TEXT)
        for character in "½" * 400:
            stream.push_text(character)

    spoken(give, backend)
    on_the_loop = [each.characters for each in backend.readings if each.thread is threading.main_thread()]
    assert 0 < max(on_the_loop) <= MAX_READ_ON_THE_LOOP
    beside = {each.thread.name for each in backend.readings if each.thread is not threading.main_thread()}
    assert beside == {"vivavoce-reader"}


def test_the_event_loop_reads_few_of_many_short_texts_in_one_turn() -> None:
    backend = RecordingBackend()

    def give(stream: Stream) -> None:
        for _ in range(300):
            stream.push_text("It is ½. ", pause_s=0.1)
            stream.push_text("", pause_s=0.1)

    chunks = spoken(give, backend)
    on_the_loop = [each.characters for each in backend.readings if each.thread is threading.main_thread()]
    assert 0 < sum(on_the_loop) <= MAX_READ_IN_A_TURN
    assert sum(len(chunk.words) for chunk in chunks) == 300 * 4


def test_text_is_read_two_segments_ahead_of_the_rendering() -> None:
    backend = RecordingBackend()
    spoken(lambda stream: stream.push_text(LONG_TEXT), backend)
    assert {each.waiting_segments for each in backend.readings} == {0, 1}


def test_short_texts_are_not_read_further_ahead_over_many_turns() -> None:
    backend = RecordingBackend()

    async def test() -> None:
        async with await Engine.open(backend=backend, warm_up=False) as engine, engine.stream() as stream:
            backend.stream = stream
            for _ in range(200):
                stream.push_text("a", pause_s=0.01)
                await asyncio.sleep(0)
            stream.end_input()
            chunks = await collect(stream)
        assert sum(len(chunk.words) for chunk in chunks) == 200

    run(test())
    assert {each.waiting_segments for each in backend.readings} <= {0, 1}


@pytest.mark.parametrize("split", [1, 7, 63, 64, 65, 200])
def test_the_chunks_are_the_same_whoever_reads(split: int) -> None:
    text = LONG_TEXT + "It costs $3.50, or 1½ times as much on 3/14/2025." + LONG_TEXT

    def give_in_parts(stream: Stream) -> None:
        for start in range(0, len(text), split):
            stream.push_text(text[start : start + split])

    assert content(spoken(give_in_parts)) == content(spoken(lambda stream: stream.push_text(text)))


def test_a_pause_follows_the_last_word_of_a_long_text() -> None:
    def give(stream: Stream) -> None:
        stream.push_text(LONG_TEXT, pause_s=2.0)
        stream.push_text("Now it goes on.")

    chunks = spoken(give)
    silent = [chunk for chunk in chunks if len(chunk.pcm) > 2 * SAMPLE_RATE * 2]
    assert [chunk.words[0].text for chunk in silent] == ["sea"]
    assert silent[0].words[0].text_stop == len(LONG_TEXT) - len(". ")


def test_rate_marks_and_flushes_keep_their_places_in_a_long_text() -> None:
    def give(stream: Stream) -> None:
        stream.push_text(LONG_TEXT)
        stream.mark("between")
        stream.set_prosody(Prosody(1.5))
        stream.push_text("Next word")
        stream.flush()
        stream.push_text(LONG_TEXT)

    chunks = spoken(give)
    marked = next(chunk for chunk in chunks if chunk.marks)
    assert marked.marks[0].name == "between"
    assert marked.text[1] >= len(LONG_TEXT.rstrip())
    assert "".join(word.text for chunk in chunks for word in chunk.words).count("Nextword") == 1


def test_texts_that_wait_are_no_work_for_the_garbage_collector() -> None:
    async def test() -> None:
        engine = await Engine.open(backend=RecordingBackend(), warm_up=False)
        async with engine, engine.stream() as stream:
            stream.push_text(LONG_TEXT)
            gc.collect()
            before = len(gc.get_objects())
            for number in range(1_000):
                stream.push_text(f"{number} ", None, 1.5)
            gc.collect()
            assert len(gc.get_objects()) - before < 500

    run(test())


def test_cancel_drops_the_text_that_is_not_read() -> None:
    backend = RecordingBackend()

    async def test() -> None:
        async with await Engine.open(backend=backend, warm_up=False) as engine:
            stream = engine.stream()
            stream.push_text(LONG_TEXT)
            await anext(stream)
            stream.cancel()
            assert not stream._session.inputs
            with pytest.raises(StreamClosed):
                stream.push_text("More.")
            async with engine.stream() as other:  # the reader goes on with others
                other.push_text(LONG_TEXT)
                other.end_input()
                assert (await collect(other))[-1].final

    run(test())
    read = sum(each.characters for each in backend.readings)
    assert read < 2 * 2 * len(LONG_TEXT)


def test_a_fault_while_text_is_read_ends_its_own_stream_and_no_other() -> None:
    async def test() -> None:
        async with await Engine.open(backend=RecordingBackend(), warm_up=False) as engine:
            async with engine.stream() as faulty, engine.stream() as other:
                other.push_text(LONG_TEXT)
                faulty.push_text("!!" + LONG_TEXT)
                other.end_input()
                with pytest.raises(SynthesisFailed, match="a fault of a rule"):
                    await collect(faulty)
                assert (await collect(other))[-1].final
            assert engine.active_streams == 0

    run(test())


def test_a_language_is_refused_when_it_is_set_and_not_when_it_is_read() -> None:
    def give(stream: Stream) -> None:
        stream.push_text(LONG_TEXT)
        with pytest.raises(LanguageNotSpoken):
            stream.set_language("de")

    assert spoken(give)[-1].final


def test_an_engine_that_is_closed_ends_its_reader() -> None:
    async def test() -> None:
        engine = await Engine.open(backend=StandInBackend(), warm_up=False)
        stream = engine.stream()
        stream.push_text(LONG_TEXT)
        await engine.aclose()
        assert [each for each in threading.enumerate() if each.name == "vivavoce-reader"] == []
        await asyncio.sleep(0)

    run(test())
