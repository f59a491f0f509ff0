"""A policy, a recording and streams, for tests of CosyVoice on small random weights."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import numpy as np

from vivavoce.models.cosyvoice.lm.generation import SpeechLengthRule
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk, Word
from vivavoce.tts_engine.cosyvoice.policy import CosyVoicePolicy
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.speech_engine import SpeechStream

SAMPLES_PER_ID = 960
FINAL_SILENCE = SAMPLE_RATE // 50  # samples
# Random weights would end a sentence at random, so every text id gets exactly two speech ids; no pause.
BRIEF = CosyVoicePolicy(length=SpeechLengthRule(2, 2), pause_share=0.0)


def recording(pitch_hz: float = 200.0, seconds: float = 3.2) -> np.ndarray:
    """A frequency-modulated tone at 16 kHz."""
    time_s = np.arange(round(seconds * 16_000)) / 16_000
    return (0.3 * np.sin(2 * np.pi * pitch_hz * time_s * (1 + 0.2 * np.sin(7 * time_s)))).astype(np.float32)


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 300))


async def collect(stream: SpeechStream) -> list[AudioChunk]:
    return [chunk async for chunk in stream]


async def speak(engine: Engine, parts: Sequence[str], **options: Any) -> list[AudioChunk]:
    async with engine.stream(**options) as stream:
        for part in parts:
            stream.push_text(part)
            await asyncio.sleep(0)
        stream.end_input()
        return await collect(stream)


def pcm(chunks: Sequence[AudioChunk]) -> bytes:
    return b"".join(chunk.pcm for chunk in chunks)


def content(chunks: Sequence[AudioChunk]) -> list[object]:
    """What depends on the request alone; word times also follow the pace that the voice had before."""
    rendered = [(chunk.pcm, chunk.samples, chunk.text) for chunk in chunks]
    return [*rendered, *((word.text, word.text_start, word.text_stop) for word in words_of(chunks))]


def words_of(chunks: Sequence[AudioChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


def spoken_ids(chunks: Sequence[AudioChunk]) -> int:
    return max(chunk.provenance.speech_ids[1] for chunk in chunks if chunk.provenance.speech_ids)
