"""One utterance of a native-stream connection, from its first text to its end."""

import asyncio

from .....adapters.transcript_queue import Transcript
from .....tts_engine.errors import VivavoceError
from ....access.access_control import Grant
from ....web.request_log import RequestRecord
from ...kits.visemes import MouthMovement, MouthTimeline
from ...shell.speech import EncodedChunk, EncodedStream
from .connection import InputFlush
from .models import SessionConfig


class QueuedUtterance(Transcript[SessionConfig | None]):
    """An utterance that waits for its turn or is being spoken.

    An utterance without text has no configuration; only its end is reported.
    """

    def __init__(self, index: int, configuration: SessionConfig | None) -> None:
        super().__init__(configuration)
        self.index = index
        self.cancelled = False
        self.failure: Exception | None = None  # reported by the speaking task
        self.has_audio = False  # whether audio.start has been sent
        self.total_bytes = 0  # of audio sent
        self.abandoned: asyncio.Future[None] = asyncio.get_running_loop().create_future()  # done on cancel
        self.grant: Grant  # set, like record, when the utterance's turn has come
        self.record: RequestRecord
        self._stream: EncodedStream | None = None
        self._mouth = MouthTimeline()

    @property
    def unread_characters(self) -> int:
        """Letters so far that the voice cannot read."""
        return 0 if self._stream is None else self._stream.unread_characters

    def receive(self, piece: str | InputFlush) -> None:
        """Take text or a flush; an error becomes ``failure``."""
        try:
            if isinstance(piece, InputFlush):
                self.flush()
            else:
                self.push(piece)
        except VivavoceError as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Speak no more, because of an error."""
        self.failure = error
        self.drop()

    def cancel(self) -> None:
        """Drop everything that has not been sent."""
        self.cancelled = True
        if not self.abandoned.done():
            self.abandoned.set_result(None)
        self.drop()

    def mouth_movements(self, chunk: EncodedChunk) -> list[MouthMovement]:
        """The movements of a chunk, if the configuration asks for them; call it once for each."""
        if self.options is None or not self.options.phoneme_times:
            return []
        return [*self._mouth.push(chunk.words), *(self._mouth.finish() if chunk.final else ())]

    def speak_on(self, stream: EncodedStream) -> None:
        """Push the text into a stream, charged piece by piece; raises RateLimited, BadText."""
        self._stream = stream
        self.open(stream, self._charge)

    def _charge(self, characters: int) -> None:
        self.grant.charge_characters(characters)
        self.record.count_text(characters)
