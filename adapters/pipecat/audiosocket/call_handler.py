"""One AudioSocket call as the Pipecat transport uses it: the caller's input queued, the bot's speech played.

A media server (``adapters.media``) owns the connection and plays the speech on time, whatever Pipecat does.
``transport`` takes the caller's audio and keys from the inbox, and pushes speech ahead.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from loguru import logger

from ....tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance
from ...audiosocket.protocol import AudioSocketAudio, Dtmf
from ...media.call_media import CallerAudioOptions, MediaReport, RecordedAudio
from ...media.phone_media import PhoneCallMedia
from ...playback.background import Awaited
from ...playback.heard_words import DiscardResult, HeardMark, HeardWord
from ...playback.playout import PlayoutStats

_MAX_UNREAD_MESSAGES: Final = 150  # 3 s of audio; a pipeline that falls further behind loses the rest
_MAX_WAIT_S: Final = 0.05  # then the lead is read again: a report may have changed it
_MAX_UNREAD_KEYS: Final = 64  # above the limit for audio


class PipecatCallHandler:
    """One call. Implements ``MediaListener`` and ``PhoneCallOwner`` of ``adapters.media``.

    Args:
        call_id: The call's id.
        peer: Address of the caller.
        sample_rate: Rate of the audio sent, Hz.
        on_ended: Called once, when the call has ended.
    """

    def __init__(
        self,
        call_id: UUID,
        peer: str,
        sample_rate: int,
        on_ended: Callable[["PipecatCallHandler"], object],
    ) -> None:
        self._on_ended = on_ended
        self.call_id = call_id
        self.peer = peer
        self.ended = False
        self.inbox: deque[AudioSocketAudio | Dtmf] = deque()
        self.input_or_end = asyncio.Event()  # set when the inbox has an item, and at the end of the call
        self.dropped_messages = 0  # received with a full inbox
        self._sample_rate = sample_rate
        self._loop = asyncio.get_running_loop()
        self._opened_at = self._loop.time()
        self._is_receiving = False
        self._pushes = 0
        self._utterance = 0
        self._is_speaking = False  # in an utterance that is not finished
        self._played = asyncio.Event()  # all speech has been played, or the call has ended
        self._played.set()
        self._speech_dropped_or_end = asyncio.Event()
        self._media: PhoneCallMedia

    def attach(self, media: PhoneCallMedia) -> None:
        """Use the media of the call; called once, before anything else."""
        self._media = media
        media.set_listener(self)
        media.set_awaited(Awaited.PROGRAM)

    # Called by the transport

    def set_caller_speaks(self, speaks: bool) -> None:
        """Take that the caller began or stopped to speak: the thinking sound is for the silence after."""
        if not self.ended:
            self._media.set_awaited(Awaited.CALLER if speaks else Awaited.PROGRAM)

    @property
    def stats(self) -> PlayoutStats:
        """Counters of the packets sent up to the last report, which comes once a second and at the end."""
        return self._media.report.stats

    @property
    def dropped(self) -> int:
        """Packets that the caller's side did not take in time, up to the last report."""
        return self._media.report.dropped

    @property
    def is_receiving(self) -> bool:
        """Whether a pipeline takes the caller's audio."""
        return self._is_receiving

    @is_receiving.setter
    def is_receiving(self, receives: bool) -> None:
        self._is_receiving = receives
        if not self.ended:
            self._media.set_caller_audio(CallerAudioOptions(is_forwarded=receives))

    def lead_s(self) -> float:
        """Return the seconds of speech queued and not yet played; 0 after the end of the call."""
        return 0.0 if self.ended else self._media.lead_s(self._loop.time())

    def play(self, pcm: bytes) -> None:
        """Queue speech, s16le at the call's rate; does nothing after the end of the call."""
        if self.ended:
            return
        self._is_speaking = True
        self._pushes += 1
        self._played.clear()
        self._media.push(_chunk(pcm, self._sample_rate), self._utterance)

    def finish(self) -> None:
        """End the utterance, so that the silence after it is not counted as an underrun."""
        if self._is_speaking and not self.ended:
            self._is_speaking = False
            self._utterance += 1
            self._media.finish()

    def discard(self) -> None:
        """Drop the speech that has not been played."""
        if not self.ended:
            self._is_speaking = False
            self._utterance += 1
            self._media.discard()
        self._speech_dropped_or_end.set()

    async def wait_for_lead(self, lead_s: float) -> None:
        """Wait until at most ``lead_s`` of speech is queued, or until the call ends."""
        while not self.ended and (excess_s := self.lead_s() - lead_s) > 0:
            self._speech_dropped_or_end.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(excess_s, _MAX_WAIT_S)):
                    await self._speech_dropped_or_end.wait()

    async def wait_played(self) -> None:
        """End the utterance, and wait until all speech has been played or the call ends."""
        self.finish()
        await self._played.wait()

    def end(self, reason: str) -> None:
        """End the call; does nothing if it has ended."""
        if not self.ended:
            self._media.hang_up(reason)

    # Called by the media

    def on_words_heard(self, words: Sequence[HeardWord | HeardMark]) -> None:
        """Do nothing: words have no times here."""

    def on_played(self, pushes: int) -> None:
        """Wake who waits for the end of the speech."""
        if pushes == self._pushes:
            self._played.set()

    def on_discarded(self, result: DiscardResult, *, requested: bool) -> None:
        """Do nothing: Pipecat keeps account of what was heard."""

    def on_caller_speech(self, speaking: bool) -> None:
        """Do nothing: the pipeline detects speech."""

    def on_caller_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Queue audio of the caller; audio from before the pipeline started is dropped."""
        if self._is_receiving:
            self._enqueue(AudioSocketAudio(sample_rate, pcm), _MAX_UNREAD_MESSAGES)

    def on_recorded(self, audio: RecordedAudio) -> None:
        """Do nothing: pipelines record with Pipecat's own processors."""

    def on_key(self, digit: str) -> None:
        """Queue a key, also before the pipeline has started."""
        self._enqueue(Dtmf(digit), _MAX_UNREAD_MESSAGES + _MAX_UNREAD_KEYS)

    def on_report(self, report: MediaReport) -> None:
        """Do nothing: the report is read at the end."""

    def on_closed(self, reason: str) -> None:
        """Wake the transport's tasks and log the counters. The bot ends by itself."""
        self.ended = True
        for event in (self.input_or_end, self._played, self._speech_dropped_or_end):
            event.set()
        self._on_ended(self)
        stats = self.stats
        logger.info(
            f"Call {self.call_id} closed after {self._loop.time() - self._opened_at:.1f} s, {reason}: "
            f"{stats.packets} packets, {stats.late_packets} late, {stats.skipped_packets} skipped, "
            f"{self.dropped} dropped, {stats.underruns} underruns, "
            f"{self.dropped_messages} messages of the caller not taken"
        )

    def on_problem(self, text: str, *, is_internal: bool) -> None:
        """Log an error of the caller's program, or of the media server."""
        if is_internal:
            logger.error(f"Call {self.call_id} failed\n{text}")
        else:
            logger.warning(f"Call {self.call_id}: {text}")

    def fail(self, error: Exception) -> None:
        """Log an exception and end the call."""
        logger.opt(exception=error).error(f"Call {self.call_id} failed")
        self.end("internal error")

    def _enqueue(self, message: AudioSocketAudio | Dtmf, max_messages: int) -> None:
        if len(self.inbox) >= max_messages:
            self.dropped_messages += 1
            return
        self.inbox.append(message)
        self.input_or_end.set()


def _chunk(pcm: bytes, sample_rate: int) -> AudioChunk:
    # Media take the engine's chunks. Pipecat has text and words.
    samples = len(pcm) // 2 * SAMPLE_RATE // sample_rate
    nothing = Provenance(None, None, 0.0, 0.0)
    return AudioChunk(pcm, 0, (0, samples), (0, 0), (), nothing, False, sample_rate=sample_rate)
