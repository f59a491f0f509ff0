"""One utterance for a client of any speech API: text in as it is written, speech out in the client's format.

    async with EncodedStream(engine, SynthesisOptions("anna", AudioFormat("mp3"))) as stream:
        stream.push_text("Hello.")
        stream.end_input()
        async for chunk in stream:
            await send(chunk.audio)

The engine renders at most a second ahead of the iteration, so a client that does not read stops its own
utterance. Leaving the block frees the engine at once. Protocols, keys, sockets and the names of voices are
not in this module.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Self

import numpy as np

from ....adapters.audio.encoders import AudioFormat, open_encoder
from ....adapters.audio.tempo import TimeStretcher
from ....adapters.ssml.document import MAX_DOCUMENT_CHARACTERS, BadSsml, SsmlDocument, plain_document
from ....adapters.ssml.input import SsmlInput, TextTags, push_document_in_slices
from ....adapters.ssml.markup import SlicedWork
from ....adapters.written_words import WrittenWords
from ....tts_engine.chunk import SAMPLE_RATE, Mark, Word
from ....tts_engine.errors import BadRequest, LanguageNotSpoken, StreamClosed, UnknownVoice, VivavoceError
from ....tts_engine.reading.pronunciation.lexicon import Lexicon
from ....tts_engine.reading.prosody import Prosody
from ....tts_engine.speech_engine import SpeechEngine
from ....tts_engine.stream_request import Delivery, StreamRequest
from ....tts_engine.voices.voice_sequence import VoiceSequence
from ...sliced_inputs import SlicedInputs
from .encoding_threads import EncodingThreads, EncodingUrgency

# Factors. The voice model renders speeds of the first range itself; the remainder is done by a time
# stretcher.
_ENGINE_SPEED_RANGE: Final = (0.5, 2.0)
_SPEED_RANGE: Final = (0.25, 4.0)
_PITCH_RANGE: Final = (0.5, 2.0)
_VOLUME_RANGE: Final = (0.0, 10.0)


@dataclass(frozen=True, slots=True)
class SynthesisOptions:
    """Voice, encoding and prosody of an utterance; raises BadRequest if a value is out of range."""

    voice: str | None = None  # the engine's voice id, None for its default
    audio: AudioFormat = field(default_factory=lambda: AudioFormat("pcm"))
    speed: float = 1.0  # factor, 0.25 to 4
    pitch: float = 1.0  # factor, 0.5 to 2
    volume: float = 1.0  # factor of the amplitude, 0 to 10; samples saturate
    seed: int = 0  # of the utterance's random generator
    delivery: Delivery = field(
        default_factory=Delivery
    )  # instruction and language, if the voice supports them
    finds_ssml: bool = True  # whether a text that begins with <speak is an SSML document
    text_tags: TextTags | None = field(default=None, compare=False)  # of plain text; they keep their state
    lexicon: Lexicon | None = None  # ahead of all others
    lexicon_names: tuple[str, ...] = ()  # of the server's, ahead of the key's
    keeps_speech: bool = True  # as of ``StreamRequest``
    leading_silence_s: float = 0.0  # before the speech, for loudspeakers that swallow its beginning
    trailing_silence_s: float = 0.0  # after it

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
        """The part of the speed that the voice model renders."""
        return _clamp(_ENGINE_SPEED_RANGE, self.speed)

    def with_prosody(self, prosody: Prosody) -> Self:
        """Return these options with the prosody's factors applied, clamped to the allowed ranges."""
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
    """A piece of encoded speech."""

    audio: bytes  # empty if the encoder withholds it
    words: tuple[Word, ...]  # that begin in it; times in seconds from the utterance's first sample
    samples: tuple[int, int]  # (start, stop) at 24 kHz of the speech that went into the encoder
    text: tuple[int, int]  # (start, stop) in the text pushed, of the segment that this is a part of
    final: bool  # whether it is the last one
    marks: tuple[Mark, ...] = ()  # of SSML, that are heard in it
    written_words: tuple[Word, ...] = ()  # the words with all that is written around them


class EncodedStream:
    """An utterance: a stream of the engine, a time stretcher, if one is needed, and an encoder.

    Belongs to one event loop. ``async with`` opens the stream.

    Args:
        threads: shared by the utterances of a server; None: threads of its own.
        lexicons: ahead of the engine's, after that of the options.
        trace_id: names the stream in logs.
        check_text: gets each text whose language is not stated; may raise LanguageNotSpoken.
        resolve_voice: returns the engine's id of a voice that the text names; may raise UnknownVoice.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        options: SynthesisOptions,
        threads: EncodingThreads | None = None,
        lexicons: Sequence[Lexicon] = (),
        trace_id: str = "-",
        check_text: Callable[[str], None] | None = None,
        resolve_voice: Callable[[str], str] = str,
    ) -> None:
        self._engine, self._trace_id = engine, trace_id
        self._check_text = check_text
        self._resolve_voice = resolve_voice
        self._lexicons = (*([options.lexicon] if options.lexicon else []), *lexicons)
        self._threads = threads or EncodingThreads()
        self._options = options
        self._stream: VoiceSequence
        self._engine_speed = options.engine_speed
        self._make_stretcher()
        self._encoder = open_encoder(options.audio)
        self._encoding = threading.Lock()  # held while a thread uses the encoder, or while it is closed
        self._ssml_input = SsmlInput(options.text_tags) if options.finds_ssml else None
        self._inputs = SlicedInputs(self._fail, MAX_DOCUMENT_CHARACTERS)
        self._input_ended = False
        self._fault: VivavoceError | None = None
        self._written_words = WrittenWords()
        self._samples = 0  # given to the encoder so far, at 24 kHz
        self._silence_before = _silence(options.leading_silence_s)  # of what is encoded next
        self._opened_at = time.monotonic()
        self._first_audio_at: float | None = None  # monotonic s of the first piece with audio
        self._cancelled = False

    def _make_stretcher(self) -> None:
        options = self._options
        self._tempo = _clamp(_SPEED_RANGE, options.speed / self._engine_speed)
        stretched = self._tempo != 1.0 or options.pitch != 1.0
        self._stretcher = TimeStretcher(self._tempo, options.pitch) if stretched else None
        self._encodes_on_thread = options.audio.is_cpu_intensive or stretched

    async def __aenter__(self) -> Self:
        """Open a stream of the engine; raises UnknownVoice, BadRequest or Overloaded."""
        options = self._options
        request = StreamRequest(
            options.voice,
            self._engine_speed,
            options.seed,
            options.delivery,
            self._lexicons,
            self._trace_id,
            keeps_speech=options.keeps_speech,
        )
        self._stream = VoiceSequence.open(self._engine, request)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cancel()

    @property
    def text(self) -> str:
        """All text pushed so far."""
        return self._stream.text

    @property
    def unread_characters(self) -> int:
        """As ``Stream.unread_characters``."""
        return self._stream.unread_characters

    def set_prosody(self, prosody: Prosody) -> None:
        """Apply the prosody of an SSML document; without effect once text has been pushed."""
        if not self.text:
            self._options = self._options.with_prosody(prosody)
            self._make_stretcher()

    def push_text(self, text: str) -> None:
        """Add text, split anywhere; one that begins with ``<speak`` is an SSML document.

        Raises StreamClosed after ``end_input``, BadText if there is too much. The iteration raises BadSsml,
        LanguageNotSpoken, and any fault of what is behind a long document.
        """
        self._require_open()
        self._inputs.add(self._take_text(text), len(text))

    def push_document(self, document: SsmlDocument) -> None:
        """Add an SSML document; the prosody of the first text counts. Raises as ``push_text``."""
        self._require_open()
        self._inputs.add(self._take_document(document), document.source_characters)

    def flush(self) -> None:
        """Speak the buffered text as a sentence, without waiting for more."""
        self._require_open()
        self._inputs.add(self._take_flush())

    def end_input(self) -> None:
        """Complete the text."""
        if not self._input_ended:
            self._input_ended = True
            self._inputs.add(self._take_end())

    def _require_open(self) -> None:
        if self._input_ended:
            raise StreamClosed("no more text after end_input()")

    def _take_text(self, text: str) -> SlicedWork[None]:
        if self._ssml_input is None:
            yield from self._take_document(plain_document(text))
        else:
            yield from self._take_found(self._ssml_input.push_in_slices(text))

    def _take_document(self, document: SsmlDocument) -> SlicedWork[None]:
        if self._fault is not None:
            return
        try:
            if self._check_text is not None and not document.languages:
                self._check_text(document.text)
        except LanguageNotSpoken as error:
            self._fail(error)
            return
        self.set_prosody(document.prosody)
        set_voice = self._set_voice
        yield from push_document_in_slices(self._stream, document, tempo=self._tempo, set_voice=set_voice)

    def _set_voice(self, name: str | None) -> None:
        self._stream.set_voice(None if name is None else self._resolve_voice(name))

    def _take_flush(self) -> SlicedWork[None]:
        if self._ssml_input is not None:
            yield from self._take_found(self._ssml_input.flush_in_slices())
        if self._fault is None:
            self._stream.flush()

    def _take_end(self) -> SlicedWork[None]:
        if self._ssml_input is not None:
            yield from self._take_found(self._ssml_input.flush_in_slices())
        self._stream.end_input()

    def _take_found(self, find: SlicedWork[list[SsmlDocument]]) -> SlicedWork[None]:
        """Push what the input found; a fault of a document ends the utterance."""
        if self._fault is not None:
            return
        try:
            for number, document in enumerate((yield from find)):
                if number:
                    yield
                yield from self._take_document(document)
        except (BadSsml, LanguageNotSpoken, UnknownVoice) as error:
            self._fail(error)

    def _fail(self, error: VivavoceError) -> None:
        """End the utterance; the iteration raises the error."""
        self._fault = error
        self._inputs.cancel()
        self._stream.cancel()

    def cancel(self) -> None:
        """End the utterance: the iteration stops, and the engine is free after the step under way."""
        self._cancelled = True
        self._inputs.cancel()
        self._stream.cancel()
        self._close_encoder()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> EncodedChunk:
        """Return the next piece; raises, once, SynthesisFailed or a BadText, such as BadSsml."""
        try:
            chunk = await anext(self._stream)
        except StopAsyncIteration:
            fault, self._fault = self._fault, None
            if fault is None or self._cancelled:
                raise
            raise fault from None
        if self._encodes_on_thread:  # takes milliseconds, for which other streams would wait
            encode = partial(self._encode_on_thread, chunk.pcm, chunk.final)
            audio, samples = await self._threads.run(self._urgency, encode)
        else:
            audio, samples = self._encode(chunk.pcm, chunk.final)
        if self._cancelled:  # while the chunk was awaited or encoded
            raise StopAsyncIteration
        start, self._samples = self._samples, self._samples + samples
        if audio and self._first_audio_at is None:
            self._first_audio_at = time.monotonic()
        marks = tuple(replace(mark, at_s=self._heard_at(mark.at_s)) for mark in chunk.marks)
        words = self._stretch_word_times(chunk.words)
        written = self._written_words.push(words, self.text, chunk.text[1])
        written += self._written_words.finish(self.text) if chunk.final else ()
        return EncodedChunk(audio, words, (start, self._samples), chunk.text, chunk.final, marks, written)

    @property
    def _urgency(self) -> EncodingUrgency:
        if self._first_audio_at is None:
            return False, self._opened_at
        return True, self._first_audio_at + self._samples / SAMPLE_RATE

    def _stretch_word_times(self, words: tuple[Word, ...]) -> tuple[Word, ...]:
        if self._tempo == 1.0 and not self._options.leading_silence_s:
            return words
        return tuple(word.timed(self._heard_at) for word in words)

    def _heard_at(self, seconds: float) -> float:
        """The time at which a place of the engine's stream is heard."""
        return self._options.leading_silence_s + seconds / self._tempo

    def _encode_on_thread(self, pcm: bytes, final: bool) -> tuple[bytes, int]:
        with self._encoding:
            encoded = (b"", 0) if self._cancelled else self._encode(pcm, final)
        if self._cancelled:
            self._close_encoder()
        return encoded

    def _close_encoder(self) -> None:
        """Close the encoder, unless a thread uses it, which closes it then."""
        if self._encoding.acquire(blocking=False):
            try:
                self._encoder.close()
            finally:
                self._encoding.release()

    def _with_silence(self, pcm: bytes, final: bool) -> bytes:
        before, self._silence_before = self._silence_before, b""
        return before + pcm + (_silence(self._options.trailing_silence_s) if final else b"")

    def _encode(self, pcm: bytes, final: bool) -> tuple[bytes, int]:
        """Return the encoded bytes of a chunk, and the number of samples that went into the encoder."""
        if self._stretcher is not None:
            pcm = self._stretcher.push(pcm) + (self._stretcher.drain() if final else b"")
        if self._options.volume != 1.0:
            pcm = _amplify(pcm, self._options.volume)
        pcm = self._with_silence(pcm, final)
        audio = self._encoder.push(pcm) + (self._encoder.finish() if final else b"")
        return audio, len(pcm) // 2


def _silence(seconds: float) -> bytes:
    return bytes(2 * round(seconds * SAMPLE_RATE))


def _amplify(pcm: bytes, factor: float) -> bytes:
    """Multiply s16le samples by a factor; they saturate."""
    samples = np.rint(np.frombuffer(pcm, "<i2") * np.float32(factor))
    return bytes(np.clip(samples, -32_768, 32_767).astype("<i2").tobytes())
