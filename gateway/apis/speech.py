"""One utterance for a client of any API: text in as it comes, speech out in the format that was ordered.

    async with open_utterance(engine, SpeechOrder("anna", AudioFormat("mp3"))) as utterance:
        utterance.push_text("Hello.")
        utterance.end_input()
        async for encoded in utterance:
            await send(encoded.audio)

Nothing is rendered ahead of a reader who does not read: the engine stops within a second of speech, and an
utterance holds what its encoder withholds and no more. Leaving the block frees the engine at once. Not here:
protocols, keys, sockets, and which voice a name means.
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from ...adapters.encoders import AudioFormat, open_encoder
from ...adapters.prosody import Manner
from ...adapters.tempo import Stretcher
from ...tts_engine.backend import Delivery
from ...tts_engine.chunk import Word
from ...tts_engine.engine import Engine
from ...tts_engine.errors import BadRequest
from ...tts_engine.stream import Stream

_ENGINE_SPEEDS = (0.5, 2.0)  # what a voice does itself; the rest is stretched
_SPEEDS, _PITCHES, _VOLUMES = (0.25, 4.0), (0.5, 2.0), (0.0, 10.0)


@dataclass(frozen=True, slots=True)
class SpeechOrder:
    """How an utterance is to sound; raises BadRequest for what is out of range.

    voice: an engine voice's id, None for the default. speed: 0.25 to 4. pitch: 0.5 to 2, a factor. volume:
    0 to 10, a factor, saturating. seed: of the voice's own generator. delivery: what not every voice can do.
    """

    voice: str | None = None
    audio: AudioFormat = field(default_factory=lambda: AudioFormat("pcm"))
    speed: float = 1.0
    pitch: float = 1.0
    volume: float = 1.0
    seed: int = 0
    delivery: Delivery = field(default_factory=Delivery)

    def __post_init__(self) -> None:
        for name, value, (least, most) in (
            ("speed", self.speed, _SPEEDS),
            ("pitch", self.pitch, _PITCHES),
            ("volume", self.volume, _VOLUMES),
        ):
            if not least <= value <= most:
                raise BadRequest(f"got {name} {value}; allowed is {least} to {most}")

    @property
    def engine_speed(self) -> float:
        """The part of the speed that the voice does itself."""
        return _within(_ENGINE_SPEEDS, self.speed)

    def said(self, manner: Manner) -> Self:
        """The same in that manner, as far as it goes."""
        return replace(
            self,
            speed=_within(_SPEEDS, self.speed * manner.speed),
            pitch=_within(_PITCHES, self.pitch * manner.pitch),
            volume=_within(_VOLUMES, self.volume * manner.volume),
        )


def _within(limits: tuple[float, float], value: float) -> float:
    least, most = limits
    return min(max(value, least), most)


@dataclass(frozen=True, slots=True)
class Encoded:
    """A piece of speech as the client gets it.

    audio: may be empty, where the encoder withholds. samples: (start, stop) at 24 kHz, of the speech that
    went into the encoder. words: those that begin in it, in seconds from the first sample. text: (start,
    stop) of the text pushed, of the segment that this is part of. final: nothing comes after it.
    """

    audio: bytes
    words: tuple[Word, ...]
    samples: tuple[int, int]
    text: tuple[int, int]
    final: bool


def open_utterance(engine: Engine, order: SpeechOrder) -> "Utterance":
    """An utterance to be entered with ``async with``, which takes a stream of the engine."""
    return Utterance(engine, order)


class Utterance:
    """A stream of the engine with an encoder behind it; belongs to one task's loop."""

    def __init__(self, engine: Engine, order: SpeechOrder) -> None:
        self._engine = engine
        self._order = order
        self._stream: Stream
        self._engine_speed = order.engine_speed
        self._stretch()
        self._encoder = open_encoder(order.audio)
        self._samples = 0
        self._cancelled = False

    def _stretch(self) -> None:
        """What the voice does not do itself."""
        order = self._order
        self._rest = _within(_SPEEDS, order.speed / self._engine_speed)
        stretched = self._rest != 1.0 or order.pitch != 1.0
        self._stretcher = Stretcher(self._rest, order.pitch) if stretched else None
        self._on_thread = order.audio.is_costly or stretched

    async def __aenter__(self) -> Self:
        """Take a stream of the engine; raises UnknownVoice, BadRequest or Overloaded."""
        order = self._order
        self._stream = self._engine.stream(
            voice=order.voice, speed=self._engine_speed, seed=order.seed, delivery=order.delivery
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    @property
    def text(self) -> str:
        """All text pushed so far."""
        return self._stream.text

    def say(self, manner: Manner) -> None:
        """Say it in that manner; without effect once there is text."""
        if not self.text:
            self._order = self._order.said(manner)
            self._stretch()

    def push_text(self, text: str) -> None:
        """Add text, split anywhere; raises StreamClosed after the end, BadText if there is too much."""
        self._stream.push_text(text)

    def flush(self) -> None:
        """Speak what is buffered, as a sentence, without waiting for more."""
        self._stream.flush()

    def end_input(self) -> None:
        """No more text will come."""
        self._stream.end_input()

    def cancel(self) -> None:
        """End for good: nothing more is given out, and the engine is free after the step under way."""
        self._cancelled = True
        self._stream.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Encoded:
        """The next piece; raises SynthesisFailed once if the voice failed."""
        chunk = await anext(self._stream)
        if self._on_thread:
            audio, samples = await asyncio.to_thread(self._encode, chunk.pcm, chunk.final)
        else:
            audio, samples = self._encode(chunk.pcm, chunk.final)
        if self._cancelled:
            raise StopAsyncIteration
        start, self._samples = self._samples, self._samples + samples
        return Encoded(audio, self._words(chunk.words), (start, self._samples), chunk.text, chunk.final)

    def _words(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        if self._rest == 1.0:
            return words
        return tuple(
            replace(word, start_s=word.start_s / self._rest, stop_s=word.stop_s / self._rest)
            for word in words
        )

    def _encode(self, pcm: bytes, final: bool) -> tuple[bytes, int]:
        """The bytes for a chunk, and how many samples went into them."""
        if self._stretcher is not None:
            pcm = self._stretcher.push(pcm) + (self._stretcher.drain() if final else b"")
        if self._order.volume != 1.0:
            pcm = _louder(pcm, self._order.volume)
        audio = self._encoder.push(pcm) + (self._encoder.finish() if final else b"")
        return audio, len(pcm) // 2


def _louder(pcm: bytes, factor: float) -> bytes:
    """s16le times a factor, saturated."""
    samples = np.rint(np.frombuffer(pcm, "<i2") * np.float32(factor))
    return bytes(np.clip(samples, -32_768, 32_767).astype("<i2").tobytes())
