"""One context of an ElevenLabs socket: its text, its deadline and the times of its characters."""

from fastapi import WebSocket

from ....access.access_control import Grant
from ...kits.speech_socket import PlayoutPace, SpeechContext
from ...shell.speech import EncodedChunk, SynthesisOptions
from .alignment import CharacterAligner
from .errors import ElevenLabsContextClosed
from .http_api import align_chunk
from .models import ElevenLabsSocketQuery, ElevenLabsTextMessage, SocketAlignment


class ElevenLabsContext(SpeechContext):
    """A context from its first message to its last; all its text is one utterance.

    Args:
        context_id: None on a socket without contexts.
        query: of the connection: whether each message is a phrase, which is spoken without waiting for more,
            whether times count from the beginning of the context, and how long it may be silent.
        pace: None for a text that is no part of a conversation.
    """

    def __init__(
        self,
        context_id: str | None,
        socket: WebSocket,
        grant: Grant,
        options: SynthesisOptions,
        query: ElevenLabsSocketQuery,
        pace: PlayoutPace | None,
    ) -> None:
        super().__init__(
            context_id, socket, grant, options, max_silence_s=query.inactivity_timeout, pace=pace
        )
        self.is_closed = False  # whether the client has closed it
        self._is_flushed = False  # whether the client has flushed since its last text
        self._ends_in_word = False  # whether the text so far has no blank at its end
        self._has_phrases = query.auto_mode
        self._has_absolute_times = query.sync_alignment
        self._aligner = CharacterAligner()
        self._aligned_ms = 0  # end of the alignment before

    def is_interrupted_by(self, message: ElevenLabsTextMessage) -> bool:
        """Whether a message drops the context: it closes it again, or in the middle of its text.

        Clients flush when their text ends, just before they close the context. In auto mode they flush each
        phrase, so that only a flush by itself says that the text has ended.
        """
        if not message.close_context:
            return False
        return self.is_closed or not (message.text or message.flush or self._is_flushed)

    def receive(self, message: ElevenLabsTextMessage) -> None:
        """Take a message; raises ElevenLabsContextClosed, TranscriptQueueFull, RateLimited, BadText."""
        if self.input_ended:
            if message.close_context or not message.text:
                return
            raise ElevenLabsContextClosed(f"the text of context {self.id!r} has ended")
        self.mark_received()
        text = message.text or ""
        if text.strip():
            self._is_flushed = bool(message.flush) and not self._has_phrases
        elif message.flush:
            self._is_flushed = True
        if self._has_phrases and self._ends_in_word and text:
            text = " " + text  # a phrase begins with another word
        self._ends_in_word = not text[-1].isspace() if text else self._ends_in_word
        self.push(text)
        if message.flush or (self._has_phrases and text.strip()):
            self.flush()
        if message.close_context:
            self.is_closed = True
            self.end_input()

    def align(self, chunk: EncodedChunk, text: str) -> SocketAlignment | None:
        """Return the times of the characters of a chunk, None if it has none."""
        characters = align_chunk(self._aligner, chunk, text)
        if not characters:
            return None
        offset_ms, self._aligned_ms = self._aligned_ms, round(1_000 * characters[-1].stop_s)
        return SocketAlignment.of(characters, 0 if self._has_absolute_times else offset_ms)
