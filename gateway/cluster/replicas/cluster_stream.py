"""A stream that a replica speaks, as the gateway's caller sees it: a ``SpeechStream``.

The gateway keeps the text. When the replica is lost, ``remainder`` is what another one has to speak: the text
after the last word whose beginning was received. The rest of a word, or of a clause if the voice reports no
words, is lost with the replica; nothing that was received is spoken again.
"""

import logging
import re
import time
from dataclasses import replace
from typing import Protocol

from ....tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance, Word
from ....tts_engine.errors import StreamClosed, UnreadableText, VivavoceError
from ....tts_engine.reading.pronunciation.lexicon import Pronunciation
from ....tts_engine.reading.prosody import NEUTRAL_PROSODY, Prosody
from ....tts_engine.speech_engine import SpeechStream
from ....tts_engine.stream_buffers import ChunkQueue, PushedText
from ....tts_engine.voices.packed_prompt import StorablePrompt
from .input_log import InputLog
from .messages import (
    CancelStream,
    EndInput,
    Flush,
    OpenStream,
    PushText,
    ReplicaLost,
    ReportPlayout,
    SetLanguage,
    SetProsody,
    StreamChunk,
    StreamFailed,
    StreamInput,
)

logger = logging.getLogger(__name__)

# Of the first clause, as early as a replica could speak it: a mark with a space after it, or one of Chinese.
_CLAUSE_END = re.compile(r"[.,;:!?…]\s|[。，、！？；：\n]")
_MAX_UNPLACED_CHARACTERS = 40  # without a mark; a reader may cut such a text anywhere
_FINAL_SILENCE = bytes(2 * SAMPLE_RATE // 50)  # 20 ms, as at the end of every stream


class ClusterStreamHost(Protocol):
    """What a stream needs of its engine."""

    def send(self, stream: "ClusterStream", action: StreamInput | CancelStream | ReportPlayout) -> None:
        """Send an action to the replica that speaks the stream."""

    def move(self, stream: "ClusterStream", error: VivavoceError) -> None:
        """Have another replica speak the stream, which its replica refused."""

    def forget(self, stream: "ClusterStream") -> None:
        """Forget a stream that ended."""

    def language_spoken(self, voice: str | None, language: str) -> str | None:
        """As ``SpeechEngine.language_spoken``."""


class ClusterStream(SpeechStream):
    """One utterance. Used on the loop of its engine.

    Attributes:
        number: the gateway's number of the stream.
        opening: what opens it at a replica.
        prompt: of its voice, if that is an enrolled one.
        input_ended: no more text will come.
        has_clause: enough text has come to choose a replica.
        tried: the replicas that were asked to speak it.
    """

    def __init__(
        self,
        host: ClusterStreamHost,
        number: int,
        opening: OpenStream,
        max_characters: int,
        prompt: StorablePrompt | None = None,
    ) -> None:
        self._cluster = host
        self.number = number
        self.opening = opening
        self.prompt = prompt
        self.tried: set[str] = set()
        self._opened_at = time.monotonic()
        self._log = InputLog()
        self._pushed = PushedText(max_characters)
        self._prosody = NEUTRAL_PROSODY
        self._language: str | None = None
        self.input_ended = self.has_clause = self._cancelled = False
        self._chunks = ChunkQueue()
        # Where the replica's stream begins within this one.
        self._first_sample = self._first_character = self._first_index = self._earlier_unread = 0
        # Received so far.
        self._samples = self._count = self._unread = 0
        self._spoken_characters = 0  # up to the end of the last word that began
        self._has_words = False

    def __str__(self) -> str:
        return f"trace {self.opening.request.trace_id}: stream {self.number}"

    @property
    def text(self) -> str:
        """As ``SpeechStream.text``."""
        return str(self._pushed)

    @property
    def unread_characters(self) -> int:
        """As ``SpeechStream.unread_characters``, as of the last chunk received."""
        return self._unread

    def push_text(
        self, text: str, pronunciation: Pronunciation | None = None, pause_s: float | None = None
    ) -> None:
        """As ``SpeechStream.push_text``."""
        self._require_open()
        self._pushed.add(text, pronunciation)
        self._give(PushText(text, pronunciation, pause_s))

    def set_prosody(self, prosody: Prosody) -> None:
        """As ``SpeechStream.set_prosody``."""
        self._require_open()
        if prosody != self._prosody:
            self._prosody = prosody
            self._give(SetProsody(prosody))

    def set_language(self, language: str | None) -> None:
        """As ``SpeechStream.set_language``."""
        self._require_open()
        if language is not None:
            language = self._cluster.language_spoken(self.opening.request.voice, language)
        if language != self._language:
            self._language = language
            self._give(SetLanguage(language))

    def mark(self, name: str) -> None:
        """As ``SpeechStream.mark``."""
        self._require_open()
        self._pushed.mark(name)

    def flush(self) -> None:
        """As ``SpeechStream.flush``."""
        self._require_open()
        self._give(Flush())

    def end_input(self) -> None:
        """As ``SpeechStream.end_input``."""
        if not self.input_ended and not self._cancelled:
            self.input_ended = True
            self._give(EndInput())

    def _give(self, given: StreamInput) -> None:
        self._log.add(given)
        if not self.has_clause:
            self.has_clause = isinstance(given, Flush | EndInput) or _has_clause(self.text)
        self._cluster.send(self, given)

    def cancel(self) -> None:
        """As ``SpeechStream.cancel``; the replica stops too."""
        if self._cancelled:
            return
        self._cancelled = True
        self._cluster.send(self, CancelStream())
        self._cluster.forget(self)
        self._chunks.end()

    def set_deadline(self, runs_dry_at: float) -> None:
        """As ``SpeechStream.set_deadline``; it steers the replica's scheduler."""
        self._cluster.send(self, ReportPlayout(0.0, runs_dry_at - time.monotonic()))

    async def __anext__(self) -> AudioChunk:
        """The next chunk. Raises, once, SynthesisFailed, BadRequest or Overloaded."""
        chunk = await self._chunks.take()
        self._cluster.send(self, ReportPlayout(chunk.seconds, None))
        return chunk

    def _require_open(self) -> None:
        if self._cancelled:
            raise StreamClosed("the stream is cancelled")
        if self.input_ended:
            raise StreamClosed("no more text after end_input()")

    # Called by the engine and the link

    def remainder(self) -> list[StreamInput]:
        """Begin the replica's stream anew after what was received; its inputs."""
        self._first_character, inputs = self._log.after(self._spoken_characters)
        self._first_sample, self._first_index = self._samples, self._count
        self._earlier_unread = self._unread
        return inputs

    @property
    def has_audio(self) -> bool:
        """Whether anything was received."""
        return self._count > 0

    def receive(self, event: StreamChunk | StreamFailed) -> None:
        """Take an event of the replica that speaks the stream."""
        match event:
            case StreamChunk(_, chunk, unread_characters):
                self._unread = self._earlier_unread + unread_characters
                self._receive_audio(chunk)
            case StreamFailed(_, UnreadableText()) if self.has_audio:  # nothing readable was left
                self.end()
            case StreamFailed(_, error):
                self._cluster.move(self, error)

    def end(self) -> None:
        """End a stream of which all text was received."""
        begins = self._samples
        stop = begins + len(_FINAL_SILENCE) // 2
        text = (self._spoken_characters, self._log.characters)
        provenance = Provenance(None, None, 0.0, 0.0)
        self._add(AudioChunk(_FINAL_SILENCE, self._count, (begins, stop), text, (), provenance, True))

    def fail(self, error: VivavoceError) -> None:
        """End the stream with an error."""
        self._cluster.forget(self)
        self._chunks.fail(error)

    def _receive_audio(self, chunk: AudioChunk) -> None:
        expected = self._count - self._first_index, self._samples - self._first_sample
        if (chunk.index, chunk.samples[0]) != expected:
            fault = f"chunk {chunk.index} came in the place of chunk {expected[0]}"
            self._cluster.move(self, ReplicaLost(fault))
            return
        first_s, text = self._first_sample / SAMPLE_RATE, self.text
        words = tuple(self._placed(word, first_s, text) for word in chunk.words)
        start, stop = chunk.text[0] + self._first_character, chunk.text[1] + self._first_character
        if words:
            self._has_words = True
            self._spoken_characters = words[-1].text_stop
        elif not self._has_words:
            self._spoken_characters = stop
        samples = (chunk.samples[0] + self._first_sample, chunk.samples[1] + self._first_sample)
        index = chunk.index + self._first_index
        sentence_stop = None if chunk.sentence_stop is None else chunk.sentence_stop + self._first_character
        self._add(
            replace(
                chunk,
                index=index,
                samples=samples,
                text=(start, stop),
                words=words,
                sentence_stop=sentence_stop,
            )
        )

    def _placed(self, word: Word, first_s: float, text: str) -> Word:
        start, stop = word.text_start + self._first_character, word.text_stop + self._first_character
        moved = word.timed(lambda seconds: seconds + first_s)
        return replace(moved, text=text[start:stop], text_start=start, text_stop=stop)

    def _add(self, chunk: AudioChunk) -> None:
        self._samples, self._count = chunk.samples[1], chunk.index + 1
        self._chunks.put(replace(chunk, marks=self._pushed.reached_marks(chunk)))
        after_ms = 1000 * (time.monotonic() - self._opened_at)
        logger.debug(
            "%s: chunk %d, %.2f s of speech, came after %.0f ms", self, chunk.index, chunk.seconds, after_ms
        )
        if chunk.final:
            self._cluster.forget(self)


def _has_clause(text: str) -> bool:
    return len(text) > _MAX_UNPLACED_CHARACTERS or _CLAUSE_END.search(text) is not None
