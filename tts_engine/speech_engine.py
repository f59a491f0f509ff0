"""The interfaces of engines and of their streams, wherever the speech is rendered.

``Engine`` renders in this process or a child of it, ``EngineSet`` has an engine for each of several bundles,
and ``ClusterEngine`` of ``gateway.cluster`` passes streams to replicas. ``tests/conformance`` tries each.
"""

from collections.abc import Sequence
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from .chunk import AudioChunk
from .errors import Overloaded
from .metrics import Metrics
from .reading.pronunciation.lexicon import Lexicon, Pronunciation
from .reading.pronunciation.lexicon_files import LexiconFile
from .reading.prosody import Prosody
from .scheduler import Admission
from .stream_request import Delivery, StreamRequest
from .voices.voices import Voices


class TextSink(Protocol):
    """The methods of a stream that take plain text."""

    def push_text(self, text: str) -> None:
        """Add text, split anywhere."""

    def flush(self) -> None:
        """Speak the buffered text as a sentence, without waiting for more. Raises StreamClosed."""

    def end_input(self) -> None:
        """End the text: speak what is buffered, then end the stream. A second call does nothing."""


class SpeechStream(TextSink, Protocol):
    """One utterance. Use ``async with`` and iterate; leaving the block cancels the rest.

    Call its methods on the loop that opened it. None of them waits, apart from reading chunks.
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.cancel()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AudioChunk:
        """The next chunk. Raises, once, the error that ended the stream, a VivavoceError."""
        ...

    @property
    def text(self) -> str:
        """All text pushed so far. Text ranges of chunks and words count its characters."""
        ...

    @property
    def unread_characters(self) -> int:
        """Letters of the text that is read so far that the voice cannot read; their words are left out.

        After the final chunk it covers the whole text.
        """
        ...

    def push_text(
        self, text: str, pronunciation: Pronunciation | None = None, pause_s: float | None = None
    ) -> None:
        """Add text, split anywhere.

        pronunciation: of the whole text, which is then a word or phrase of its own. pause_s: silence after
        the last word of the text, instead of the usual pause; the sentence may go on after it.

        Raises StreamClosed after ``end_input``, BadText beyond the limit.
        """

    def set_prosody(self, prosody: Prosody) -> None:
        """Speak the text from here on faster or slower, higher, louder or livelier than the stream.

        The speed is kept within 0.5 to 2.0; CosyVoice ignores it. The packaged voice alone has pitch, at most
        7 semitones up or down, and range. Raises StreamClosed.
        """

    def set_language(self, language: str | None) -> None:
        """Read the text from here on by the rules of a language, BCP 47; None: of the stream's own.

        The voice stays the same. Raises StreamClosed, and LanguageNotSpoken if it does not speak that.
        """

    def mark(self, name: str) -> None:
        """Name the place between the text so far and the next; a chunk reports it. Raises StreamClosed."""

    def cancel(self) -> None:
        """End the stream at once: no further chunk is yielded or, after the running step, rendered."""

    def set_deadline(self, runs_dry_at: float) -> None:
        """Report when the listener will have played all chunks it took, as ``time.monotonic()``."""


class SpeechEngine(Protocol):
    """Voices, and streams that speak with them. A stream belongs to the event loop that opened it.

    Attributes:
        metrics: of its streams.
        voices: those with which it speaks.
    """

    metrics: Metrics
    voices: Voices

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    @property
    def lexicon(self) -> LexiconFile | None:
        """The lexicon of every stream."""
        ...

    @property
    def active_streams(self) -> int:
        """Number of open streams, without cancelled ones whose slot is still in a running step."""
        ...

    @property
    def max_streams(self) -> int:
        """Most streams open at once."""
        ...

    @property
    def compute_s_per_audio_s(self) -> float:
        """Measured compute seconds of the busiest worker for 1 s of audio; 0 until 5 s were rendered."""
        ...

    @property
    def process_ids(self) -> tuple[int, ...]:
        """Ids of the processes that render beside this one."""
        ...

    def refusal(self, admission: Admission = Admission.NEW) -> Overloaded | None:
        """The error with which one more stream would be refused now, None if it would be admitted."""
        ...

    def open_stream(self, request: StreamRequest, admission: Admission = Admission.NEW) -> SpeechStream:
        """Open an utterance stream on the running loop.

        admission: what the stream is for.

        Raises UnknownVoice, BadRequest for a delivery that the voice does not support, and Overloaded
        without waiting.
        """
        ...

    def stream(
        self,
        *,
        voice: str | None = None,
        speed: float = 1.0,
        seed: int = 0,
        delivery: Delivery | None = None,
        lexicons: Sequence[Lexicon] = (),
        admission: Admission = Admission.NEW,
        trace_id: str = "-",
    ) -> SpeechStream:
        """As ``open_stream``, with the fields of its request. Raises BadRequest for their values too."""
        request = StreamRequest(voice, speed, seed, delivery or Delivery(), tuple(lexicons), trace_id)
        return self.open_stream(request, admission)

    async def open_conversion(
        self, samples: NDArray[np.float32], sample_rate: int, request: StreamRequest
    ) -> SpeechStream:
        """Open a stream that speaks a recording in another voice. It takes no text.

        samples: (N,) mono float32 in [-1, 1]. sample_rate: Hz. Raises as ``open_stream``, and BadRequest for
        the recording.
        """
        ...

    async def convert(
        self,
        samples: NDArray[np.float32],
        sample_rate: int,
        *,
        voice: str | None = None,
        speed: float = 1.0,
        seed: int = 0,
    ) -> SpeechStream:
        """As ``open_conversion``, with fields of its request. Raises BadRequest for their values too."""
        return await self.open_conversion(samples, sample_rate, StreamRequest(voice, speed, seed))

    def language_spoken(self, voice: str | None, language: str) -> str | None:
        """As ``language_read`` of ``voices.languages``, by a voice of the engine. Raises UnknownVoice too."""
        ...

    async def aclose(self) -> None:
        """Cancel every stream and free what the engine holds. May be called twice."""
