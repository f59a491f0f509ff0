"""Output of audio contexts into a Pipecat pipeline: audio frames, word times and the end of a context.

Source: pipecat-ai 1.14.0, services/tts_service.py, read and measured.
"""

# Pipecat is typed, but its functions do not declare what they return.
# mypy: disable-error-code="no-untyped-call"

from collections.abc import Awaitable, Callable

from pipecat.frames.frames import TTSAudioRawFrame, TTSStoppedFrame
from pipecat.services.tts_service import TTSService

from ...tts_engine.errors import VivavoceError
from .word_timing import ClauseSequencer, Playhead


class ContextOutput:
    """Sends the playbacks of a service to its pipeline; implements ``audio_context.PlaybackHost``.

    Args:
        service: The service whose audio contexts are filled.
        sequencer: Decides which words Pipecat accepts.
        max_lead_s: Audio to hand to the pipeline ahead of the listener, seconds.
        fail: Reports an error and ends a context.
    """

    def __init__(
        self,
        service: TTSService,
        sequencer: ClauseSequencer,
        max_lead_s: float,
        fail: Callable[[str, VivavoceError], Awaitable[None]],
    ) -> None:
        self.playhead = Playhead()
        self._service = service
        self._sequencer = sequencer
        self._max_lead_s = max_lead_s
        self._fail = fail
        self._aligned_context: str | None = None
        self._offset_ns = 0  # added to the times of that context's audio

    @property
    def sample_rate(self) -> int:
        """Rate of the audio frames, Hz."""
        return self._service.sample_rate

    @property
    def max_lead_s(self) -> float:
        """Audio to hand to the pipeline ahead of the listener, seconds."""
        return self._max_lead_s

    def lead_s(self) -> float:
        """Seconds of audio that the pipeline has and the listener has not heard."""
        return self.playhead.lead_s(self._service.get_clock().get_time())

    def accepted_characters(self, context_id: str) -> float:
        """Characters of a context's text whose words Pipecat accepts; ``math.inf`` for all."""
        return self._sequencer.accepted_characters(context_id)

    def schedule_audio(self, duration_s: float) -> int:
        """Account for the audio to be added next; return the time at which it is heard, ns of the clock."""
        return self.playhead.play(self._service.get_clock().get_time(), duration_s)

    def word_time_s(self, heard_ns: int) -> float:
        """Return a word's time as Pipecat counts it, from the time at which the word is heard."""
        return self.playhead.word_time_s(heard_ns)

    async def add_audio(self, context_id: str, pcm: bytes, heard_ns: int | None = None) -> None:
        """Append an audio frame, s16le mono; ``heard_ns`` becomes its ``pts``."""
        frame = TTSAudioRawFrame(pcm, self.sample_rate, 1, context_id=context_id)
        frame.pts = heard_ns
        await self._service.append_to_audio_context(context_id, frame)

    def align(self, frame: TTSAudioRawFrame) -> None:
        """Move a frame's ``pts`` to the scale of Pipecat's word times.

        The scale of a context begins when Pipecat takes its first audio frame from the queue.
        """
        if frame.pts is None:
            return
        if frame.context_id != self._aligned_context:
            self._aligned_context = frame.context_id
            self._offset_ns = max(0, self._service.get_clock().get_time() - frame.pts)
        frame.pts += self._offset_ns

    async def add_words(self, context_id: str, words: list[tuple[str, float]]) -> None:
        """Report words as spoken at these times."""
        await self._service.add_word_timestamps(words, context_id)

    async def close_clause(self, context_id: str) -> None:
        """Make Pipecat accept the words of all text that a context has so far."""
        for frame in await self._sequencer.close_clause(context_id):
            await self._service.append_to_audio_context(context_id, frame)

    async def finish(self, context_id: str) -> None:
        """End a context after its last audio."""
        if not self._service.audio_context_available(context_id):
            return
        await self._service.append_to_audio_context(context_id, TTSStoppedFrame(context_id=context_id))
        await self._service.remove_audio_context(context_id)

    async def fail(self, context_id: str, error: VivavoceError) -> None:
        """Report an error, and end a context without counting the rest of its text as spoken."""
        await self._fail(context_id, error)
