"""One utterance for a client of any API: text in as it comes, speech out in the format that was ordered.

    async with open_encoded_stream(engine, SynthesisOptions("anna", AudioFormat("mp3"))) as utterance:
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
from typing import Final, Self, get_args

import numpy as np

from ...adapters.audio.encoders import AudioFormat, Codec, open_encoder
from ...adapters.audio.tempo import TimeStretcher
from ...adapters.prosody import Prosody
from ...tts_engine.backends.base import Delivery
from ...tts_engine.chunk import Word
from ...tts_engine.engine import Engine
from ...tts_engine.errors import BadRequest
from ...tts_engine.stream import Stream

# Media types of all formats, without their parameters.
AUDIO_CONTENT_TYPES: Final = tuple(
    AudioFormat(codec).content_type.partition(";")[0] for codec in get_args(Codec)
)
_ENGINE_SPEED_RANGE = (0.5, 2.0)  # what a voice does itself; the rest is stretched
_SPEED_RANGE, _PITCH_RANGE, _VOLUME_RANGE = (0.25, 4.0), (0.5, 2.0), (0.0, 10.0)


@dataclass(frozen=True, slots=True)
class SynthesisOptions:
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
        for name, value, (minimum, maximum) in (
            ("speed", self.speed, _SPEED_RANGE),
            ("pitch", self.pitch, _PITCH_RANGE),
            ("volume", self.volume, _VOLUME_RANGE),
        ):
            if not minimum <= value <= maximum:
                raise BadRequest(f"got {name} {value}; allowed is {minimum} to {maximum}")

    @property
    def engine_speed(self) -> float:
        """The part of the speed that the voice does itself."""
        return _clamp(_ENGINE_SPEED_RANGE, self.speed)

    def with_prosody(self, prosody: Prosody) -> Self:
        """The same in that manner, as far as it goes."""
        return replace(
            self,
            speed=_clamp(_SPEED_RANGE, self.speed * prosody.speed),
            pitch=_clamp(_PITCH_RANGE, self.pitch * prosody.pitch),
            volume=_clamp(_VOLUME_RANGE, self.volume * prosody.volume),
        )


def _clamp(limits: tuple[float, float], value: float) -> float:
    minimum, maximum = limits
    return min(max(value, minimum), maximum)


@dataclass(frozen=True, slots=True)
class EncodedChunk:
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


def open_encoded_stream(engine: Engine, options: SynthesisOptions) -> "EncodedStream":
    """An utterance to be entered with ``async with``, which takes a stream of the engine."""
    return EncodedStream(engine, options)


class EncodedStream:
    """A stream of the engine with an encoder behind it; belongs to one task's loop."""

    def __init__(self, engine: Engine, options: SynthesisOptions) -> None:
        self._engine = engine
        self._options = options
        self._stream: Stream
        self._engine_speed = options.engine_speed
        self._make_stretcher()
        self._encoder = open_encoder(options.audio)
        self._samples = 0
        self._cancelled = False

    def _make_stretcher(self) -> None:
        """What the voice does not do itself."""
        options = self._options
        self._tempo = _clamp(_SPEED_RANGE, options.speed / self._engine_speed)
        stretched = self._tempo != 1.0 or options.pitch != 1.0
        self._stretcher = TimeStretcher(self._tempo, options.pitch) if stretched else None
        self._encodes_on_thread = options.audio.is_cpu_intensive or stretched

    async def __aenter__(self) -> Self:
        """Take a stream of the engine; raises UnknownVoice, BadRequest or Overloaded."""
        options = self._options
        self._stream = self._engine.stream(
            voice=options.voice, speed=self._engine_speed, seed=options.seed, delivery=options.delivery
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    @property
    def text(self) -> str:
        """All text pushed so far."""
        return self._stream.text

    def set_prosody(self, prosody: Prosody) -> None:
        """Say it in that manner; without effect once there is text."""
        if not self.text:
            self._options = self._options.with_prosody(prosody)
            self._make_stretcher()

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

    async def __anext__(self) -> EncodedChunk:
        """The next piece; raises SynthesisFailed once if the voice failed."""
        chunk = await anext(self._stream)
        if self._encodes_on_thread:
            audio, samples = await asyncio.to_thread(self._encode, chunk.pcm, chunk.final)
        else:
            audio, samples = self._encode(chunk.pcm, chunk.final)
        if self._cancelled:
            raise StopAsyncIteration
        start, self._samples = self._samples, self._samples + samples
        return EncodedChunk(
            audio, self._stretch_word_times(chunk.words), (start, self._samples), chunk.text, chunk.final
        )

    def _stretch_word_times(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        if self._tempo == 1.0:
            return words
        return tuple(
            replace(word, start_s=word.start_s / self._tempo, stop_s=word.stop_s / self._tempo)
            for word in words
        )

    def _encode(self, pcm: bytes, final: bool) -> tuple[bytes, int]:
        """The bytes for a chunk, and how many samples went into them."""
        if self._stretcher is not None:
            pcm = self._stretcher.push(pcm) + (self._stretcher.drain() if final else b"")
        if self._options.volume != 1.0:
            pcm = _amplify(pcm, self._options.volume)
        audio = self._encoder.push(pcm) + (self._encoder.finish() if final else b"")
        return audio, len(pcm) // 2


def _amplify(pcm: bytes, factor: float) -> bytes:
    """s16le times a factor, saturated."""
    samples = np.rint(np.frombuffer(pcm, "<i2") * np.float32(factor))
    return bytes(np.clip(samples, -32_768, 32_767).astype("<i2").tobytes())
