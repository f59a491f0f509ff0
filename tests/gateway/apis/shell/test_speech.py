"""An utterance for any API: formats, speeds, prosody, back-pressure and cancellation."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, get_args

import numpy as np
import pytest

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S, StandInBackend
from shared.event_loop import until
from vivavoce.adapters.audio.encoders import SAMPLE_RATES, AudioFormat, Codec
from vivavoce.adapters.audio.formats.g711 import ulaw_decode
from vivavoce.gateway.apis.shell import speech
from vivavoce.gateway.apis.shell.speech import EncodedChunk, EncodedStream, SynthesisOptions
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import BadRequest, StreamClosed, SynthesisFailed, UnknownVoice
from vivavoce.tts_engine.metrics import Metrics
from vivavoce.tts_engine.reading.clause_boundaries import BoundaryKind
from vivavoce.tts_engine.reading.pauses import usual_pause_s
from vivavoce.tts_engine.reading.prosody import Prosody

TEXT = "One two three four, five six seven eight nine ten."
TIMEOUT_S = 30.0


class CountingBackend(StandInBackend):
    """Counts its steps; fails after ``broken_after`` of them."""

    def __init__(self, broken_after: int | None = None, **backend_options: Any) -> None:
        super().__init__(**backend_options)
        self.steps = 0
        self.broken_after = broken_after
        self.stepped = threading.Event()

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        self.steps += 1
        self.stepped.set()
        if self.broken_after is not None and self.steps > self.broken_after:
            raise RuntimeError("the voice broke")
        return super().step(worker, turns)


def with_engine(test: Callable[[Engine, CountingBackend], Coroutine[Any, Any, None]], **backend: Any) -> None:
    async def run() -> None:
        counting_backend = CountingBackend(pitches_hz=(440, 330), **backend)
        async with Engine(counting_backend, EngineConfig(), Metrics()) as engine:
            await asyncio.wait_for(test(engine, counting_backend), TIMEOUT_S)

    asyncio.run(run())


async def speak(engine: Engine, options: SynthesisOptions, text: str = TEXT) -> list[EncodedChunk]:
    async with EncodedStream(engine, options) as utterance:
        utterance.push_text(text)
        utterance.end_input()
        return [encoded async for encoded in utterance]


def test_the_audio_equals_the_engines() -> None:
    async def test(engine: Engine, _: CountingBackend) -> None:
        async with engine.stream(voice="tone-330") as stream:
            stream.push_text(TEXT)
            stream.end_input()
            expected = b"".join([chunk.pcm async for chunk in stream])
        pieces = await speak(engine, SynthesisOptions("tone-330"))
        assert b"".join(piece.audio for piece in pieces) == expected
        assert pieces[-1].final
        assert pieces[-1].samples[1] == len(expected) // 2
        assert [piece.final for piece in pieces].count(True) == 1
        assert " ".join(word.text for piece in pieces for word in piece.words) == (
            "One two three four five six seven eight nine ten"
        )

    with_engine(test)


@pytest.mark.parametrize("codec", ["mp3", "opus", "webm", "aac", "m4a", "flac", "wav", "ulaw"])
def test_every_format_is_encoded(codec: Any) -> None:
    async def test(engine: Engine, _: CountingBackend) -> None:
        pieces = await speak(engine, SynthesisOptions(audio=AudioFormat(codec, 8_000)))
        assert len(b"".join(piece.audio for piece in pieces)) > 2_000
        assert engine.active_streams == 0

    with_engine(test)


class BriefBackend(CountingBackend):
    """Renders each word as ``word_samples`` samples."""

    word_samples = 1

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        return [
            replace(result, samples=result.samples[: self.word_samples], words=())
            for result in super().step(worker, turns)
            if isinstance(result, StepResult)
        ]


@pytest.mark.slow
@pytest.mark.parametrize("word_samples", [1, 480])
@pytest.mark.parametrize("codec", get_args(Codec))
def test_hardly_any_sound_is_encoded_in_every_format_at_every_rate_and_speed(
    codec: Any, word_samples: int
) -> None:
    async def test() -> None:
        backend = BriefBackend()
        backend.word_samples = word_samples
        async with Engine(backend, EngineConfig(), Metrics()) as engine:
            for rate, speed in product(SAMPLE_RATES, (0.25, 1.0, 4.0)):
                options = SynthesisOptions(audio=AudioFormat(codec, rate), speed=speed)
                for text in (".", "One.", "One, two."):
                    encoded = await speak(engine, options, text)
                    assert encoded[-1].final and encoded[-1].samples[1] > 0

    asyncio.run(asyncio.wait_for(test(), TIMEOUT_S))


@pytest.mark.parametrize("speed", [0.25, 0.5, 2.0, 4.0])
def test_a_speed_outside_the_voices_range_stretches_audio_and_word_times(speed: float) -> None:
    async def test(engine: Engine, _: CountingBackend) -> None:
        # The stand-in ignores its speed, so only the time stretcher and the pause change the length.
        engine_speed = min(max(speed, 0.5), 2.0)
        stretch = speed / engine_speed
        normal = await speak(engine, SynthesisOptions())
        pieces = await speak(engine, SynthesisOptions(speed=speed))
        usual, changed = (usual_pause_s(BoundaryKind.CLAUSE, each) for each in (1.0, engine_speed))
        expected = (normal[-1].samples[1] + (changed - usual) * SAMPLE_RATE) / stretch
        assert pieces[-1].samples[1] == pytest.approx(expected, abs=2_400)
        words = [word for piece in pieces for word in piece.words]
        assert words[1].start_s == pytest.approx(WORD_S / stretch)
        assert pitch_of(b"".join(piece.audio for piece in pieces)) == pytest.approx(440, abs=6)

    with_engine(test)


def test_pitch_and_volume_change_the_audio() -> None:
    async def test(engine: Engine, _: CountingBackend) -> None:
        pieces = await speak(engine, SynthesisOptions(pitch=1.5, volume=0.5))
        pcm = b"".join(piece.audio for piece in pieces)
        assert pitch_of(pcm) == pytest.approx(660, abs=8)
        assert np.abs(np.frombuffer(pcm, "<i2").astype(int)).max() == pytest.approx(4_096, rel=0.1)
        loud = b"".join(piece.audio for piece in await speak(engine, SynthesisOptions(volume=10)))
        assert np.frombuffer(loud, "<i2").max() == 32_767

    with_engine(test)


def test_prosody_is_clamped_to_the_allowed_ranges() -> None:
    options = SynthesisOptions(speed=2.0, pitch=0.8, volume=0.5)
    assert options.with_prosody(Prosody(1.5, 1.25, 4.0)) == SynthesisOptions(speed=3.0, pitch=1.0, volume=2.0)
    assert options.with_prosody(Prosody(100.0, 100.0, 100.0)) == SynthesisOptions(
        speed=4.0, pitch=2.0, volume=10.0
    )
    assert options.with_prosody(Prosody(0.0, 0.0, 0.0)) == SynthesisOptions(speed=0.25, pitch=0.5, volume=0.0)


def test_prosody_can_be_set_until_text_has_been_pushed() -> None:
    async def test(engine: Engine, _: CountingBackend) -> None:
        async with EncodedStream(engine, SynthesisOptions(speed=0.5)) as utterance:
            utterance.set_prosody(
                Prosody(speed=100.0, pitch=1.5)
            )  # 4.0 after clamping: 8 times the engine's 0.5
            utterance.push_text(TEXT)
            utterance.set_prosody(Prosody(pitch=0.5))
            utterance.end_input()
            pieces = [encoded async for encoded in utterance]
        normal = await speak(engine, SynthesisOptions())
        assert pieces[-1].samples[1] == pytest.approx(normal[-1].samples[1] / 4, abs=2_400)
        assert pitch_of(b"".join(piece.audio for piece in pieces)) == pytest.approx(660, abs=12)

    with_engine(test)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 0.24}, "got speed 0.24; allowed is 0.25 to 4.0"),
        ({"speed": 4.01}, "got speed 4.01"),
        ({"speed": float("nan")}, "got speed nan"),
        ({"pitch": 0.0}, "got pitch 0.0; allowed is 0.5 to 2.0"),
        ({"volume": -1.0}, "got volume -1.0; allowed is 0.0 to 10.0"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        SynthesisOptions(**options)  # type: ignore[arg-type]


def test_an_unknown_voice_is_refused_on_entering_and_takes_no_stream() -> None:
    async def test(engine: Engine, _: CountingBackend) -> None:
        with pytest.raises(UnknownVoice, match="no voice 'anna'"):
            async with EncodedStream(engine, SynthesisOptions("anna")):
                pass
        assert engine.active_streams == 0

    with_engine(test)


def test_a_consumer_that_stops_iterating_stops_the_engine() -> None:
    async def test(engine: Engine, backend: CountingBackend) -> None:
        async with EncodedStream(engine, SynthesisOptions(audio=AudioFormat("mp3"))) as utterance:
            utterance.push_text("word " * 1_000 + ".")
            utterance.end_input()
            await anext(utterance)
            await until(lambda: backend.steps >= 5)
            await asyncio.sleep(0.1)
            assert backend.steps <= 8  # 1 s of unread words, one that was read, and one in the running step

    with_engine(test)


@pytest.mark.parametrize("codec", ["pcm", "mp3"])
def test_leaving_the_block_frees_the_engine_at_once(codec: Any) -> None:
    async def test(engine: Engine, backend: CountingBackend) -> None:
        async with EncodedStream(engine, SynthesisOptions(audio=AudioFormat(codec))) as utterance:
            utterance.push_text("word " * 1_000 + ".")
            await anext(utterance)
        await until(lambda: backend.open_slots == 0)
        steps = backend.steps
        await asyncio.sleep(0.05)
        assert backend.steps == steps

    with_engine(test)


def test_an_encoder_is_closed_once_no_thread_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = threading.Event(), threading.Event()
    calls: list[str] = []

    class SlowEncoder:
        content_type = "audio/mpeg"

        def push(self, pcm: bytes) -> bytes:
            calls.append("push")
            began.set()
            assert may_end.wait(TIMEOUT_S)
            calls.append("pushed")
            return b"1"

        def finish(self) -> bytes:
            return b""

        def close(self) -> None:
            calls.append("close")

    async def test(engine: Engine, _: CountingBackend) -> None:
        async with EncodedStream(engine, SynthesisOptions(audio=AudioFormat("mp3"))) as utterance:
            utterance.push_text(TEXT)
            waiting = asyncio.create_task(anext(utterance, None))
            assert await asyncio.to_thread(began.wait, TIMEOUT_S)
        assert calls == ["push"]
        may_end.set()
        await until(lambda: calls == ["push", "pushed", "close"])
        assert await waiting is None

        async with EncodedStream(engine, SynthesisOptions(audio=AudioFormat("mp3"))):
            pass
        assert calls[3:] == ["close"]

    monkeypatch.setattr(speech, "open_encoder", lambda audio_format: SlowEncoder())
    with_engine(test)


def test_cancel_ends_a_waiting_iteration() -> None:
    async def test(engine: Engine, _: CountingBackend) -> None:
        async with EncodedStream(engine, SynthesisOptions()) as utterance:
            waiting = asyncio.create_task(anext(utterance, None))
            await asyncio.sleep(0)
            utterance.cancel()
            assert await waiting is None
            with pytest.raises(StreamClosed):
                utterance.push_text("more")

    with_engine(test)


def test_a_failure_is_raised_once_and_leaves_the_engine_usable() -> None:
    async def test(engine: Engine, backend: CountingBackend) -> None:
        with pytest.raises(SynthesisFailed, match="the voice broke"):
            await speak(engine, SynthesisOptions())
        backend.broken_after = None
        assert (await speak(engine, SynthesisOptions()))[-1].final

    with_engine(test, broken_after=2)


def test_flush_speaks_the_buffered_text() -> None:
    async def test(engine: Engine, _: CountingBackend) -> None:
        async with EncodedStream(engine, SynthesisOptions()) as utterance:
            utterance.push_text("no full stop")
            utterance.flush()
            first = await anext(utterance)
            assert first.words[0].text == "no"
            assert utterance.text == "no full stop"

    with_engine(test)


def test_concurrent_utterances_are_not_mixed_up() -> None:
    async def test(engine: Engine, _: CountingBackend) -> None:
        voices = ["tone-440", "tone-330"] * 10
        all_options = [SynthesisOptions(voice, AudioFormat("ulaw", 8_000)) for voice in voices]
        heard = await asyncio.gather(*(speak(engine, options) for options in all_options))
        for voice, pieces in zip(voices, heard, strict=True):
            pcm = ulaw_decode(b"".join(piece.audio for piece in pieces))
            assert pitch_of(pcm, 8_000) == pytest.approx(float(voice.removeprefix("tone-")), abs=5)

    with_engine(test)
