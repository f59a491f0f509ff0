"""Silence before and after the speech, for loudspeakers that swallow its beginning; words are as late."""

import asyncio

import numpy as np
import pytest

from shared.engine.standin_backend import WORD_S, StandInBackend
from vivavoce.gateway.apis.shell.speech import EncodedChunk, EncodedStream, SynthesisOptions
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.metrics import Metrics

TEXT = '<speak>One <mark name="m"/>two.</speak>'


def speak(**options: float) -> tuple[np.ndarray, list[EncodedChunk]]:
    """Return the samples and the pieces of the text."""

    async def run() -> list[EncodedChunk]:
        wanted = SynthesisOptions(**options)  # type: ignore[arg-type]
        async with (
            Engine(StandInBackend(), EngineConfig(), Metrics()) as engine,
            EncodedStream(engine, wanted) as utterance,
        ):
            utterance.push_text(TEXT)
            utterance.end_input()
            return [chunk async for chunk in utterance]

    chunks = asyncio.run(run())
    return np.frombuffer(b"".join(chunk.audio for chunk in chunks), "<i2"), chunks


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_silence_is_before_and_after_the_speech_and_words_come_later(speed: float) -> None:
    plain, plain_chunks = speak(speed=speed)
    padded, chunks = speak(speed=speed, leading_silence_s=0.5, trailing_silence_s=0.25)
    assert not padded[:12_000].any() and not padded[-6_000:].any()
    assert np.array_equal(padded[12_000:-6_000], plain)
    assert chunks[-1].samples[1] == len(padded)
    times = [word.start_s for chunk in chunks for word in chunk.words]
    assert times == pytest.approx([0.5 + word.start_s for one in plain_chunks for word in one.words])
    (mark,) = (mark for chunk in chunks for mark in chunk.marks)
    assert mark.at_s == pytest.approx(times[1])
    assert len(plain) / 24_000 >= 2 * WORD_S / speed
