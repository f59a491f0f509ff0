"""One context of an Inworld socket: its text, its generations and the times of its words.

text   ->  a generation (open)  --a flush, the buffer delay or the end of the text-->  complete, spoken

Clients add up times: at ``flushCompleted`` they take the end of the last word for the beginning of the next
generation, although the pause after the word is still to come. Times are therefore sent from that word's end.

audio  |--generation 1--------|--generation 2-----
words  |one| |two|            |three|
sent   0                 0 ----> start of "three"

Source: pipecat-ai 1.14.0 (services/inworld/tts.py: _receive_messages); livekit-plugins-inworld 1.8.9 (tts.py:
_recv_loop).
"""

from typing import Final

from fastapi import WebSocket

from .....tts_engine.chunk import SAMPLE_RATE
from ....access.access_control import Grant
from ...kits.speech_socket import PlayoutPace, SpeechContext
from ...shell.speech import EncodedChunk, SynthesisOptions
from .alignment import EntryAligner
from .audio_config import InworldEncoding
from .errors import InworldContextClosed
from .models import InworldContextConfig, InworldText, InworldTimestampInfo, InworldWordAlignment

MAX_SILENCE_S: Final = 600.0  # after which a context, or a connection without one, is closed


class InworldContext(SpeechContext):
    """A context from its creation to its end; each of its transcripts is a generation."""

    id: str

    def __init__(
        self,
        context_id: str,
        config: InworldContextConfig,
        socket: WebSocket,
        grant: Grant,
        options: SynthesisOptions,
        encoding: InworldEncoding,
    ) -> None:
        super().__init__(context_id, socket, grant, options, max_silence_s=MAX_SILENCE_S, pace=PlayoutPace())
        self.encoding = encoding
        self._config = config
        self._flushes = 0
        self._is_flushed = False  # whether the client has flushed since its last text
        self._aligner = EntryAligner()
        # In seconds of the context's audio
        self._generation_start_s = 0.0
        self._generation_stop_s = 0.0
        self._client_start_s = 0.0  # of the generation, as clients take it
        self._last_word_stop_s = 0.0

    def receive_text(self, message: InworldText) -> None:
        """Take text; raises InworldContextClosed, TranscriptQueueFull, RateLimited, BadText."""
        if self.input_ended:
            if message.text:
                raise InworldContextClosed(f"context {self.id!r} has been closed and takes no more text")
            return
        self.push(message.text)
        if message.flush_context is not None:
            self.flush_generation()
        elif message.text:  # else it keeps the context open
            self._is_flushed = False
            self.complete_at(self.now + self._config.buffer_delay_s)

    def flush_generation(self) -> None:
        """Complete the generation, also one without text; without effect once the context is closed."""
        if not self.input_ended:
            self._is_flushed = True
            self._flushes += 1
            self.complete(self._flushes)

    @property
    def is_interrupted_by_close(self) -> bool:
        """Whether a close drops the context: it is closed already, or in the middle of its text.

        Clients flush when their text ends, just before they close the context.
        """
        return self.input_ended or not self._is_flushed

    def times_of(self, chunk: EncodedChunk, text: str) -> InworldTimestampInfo | None:
        """Return the times of the words that begin in a piece, None if there are none or none are wanted."""
        self._generation_stop_s = self._generation_start_s + chunk.samples[1] / SAMPLE_RATE
        entries = self._aligner.align(chunk.written_words, text, is_last=chunk.final)
        if not (entries and self._config.has_word_times):
            return None
        offset_s = self._generation_start_s - self._client_start_s
        alignment = InworldWordAlignment.of(entries, offset_s)
        self._last_word_stop_s = self._client_start_s + alignment.wordEndTimeSeconds[-1]
        return InworldTimestampInfo(wordAlignment=alignment)

    def end_generation(self) -> None:
        """Begin the times of the next generation; its end has been reported to the client."""
        self._aligner = EntryAligner()
        self._generation_start_s = self._generation_stop_s
        self._client_start_s = self._last_word_stop_s
