"""One AudioSocket call as the Pipecat transport uses it: the caller's input queued, the bot's speech paced.

``adapters.audiosocket.call`` owns the socket and calls the handler. ``transport`` takes the caller's audio
and keys from the inbox, and queues speech that ``tick`` sends in packets of 20 ms, silence included.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from loguru import logger

from ....tts_engine.chunk import SAMPLE_RATE, AudioChunk, Provenance
from ...audio.resample import PassthroughResampler
from ...audiosocket.call import AudioSocketCall
from ...audiosocket.protocol import AudioSocketAudio, Dtmf
from ...playback.playout import Playout, PlayoutStats

_MAX_UNREAD_MESSAGES: Final = 150  # 3 s of audio; a pipeline that falls further behind loses the rest
_MAX_UNREAD_KEYS: Final = 64  # above the limit for audio


class PipecatCallHandler:
    """Handler of one call; implements ``audiosocket.call.CallHandler``.

    Args:
        call: The connection.
        start: Time at which the first packet is due, monotonic seconds.
        sample_rate: Rate of the audio sent, Hz.
        answer: Runs the bot. The call ends when this returns or raises.
    """

    def __init__(
        self,
        call: AudioSocketCall,
        start: float,
        sample_rate: int,
        answer: Callable[["PipecatCallHandler"], Awaitable[None]],
    ) -> None:
        self.call = call
        self.is_receiving = False  # whether a pipeline takes the caller's audio
        self.inbox: deque[AudioSocketAudio | Dtmf] = deque()
        self.input_or_end = asyncio.Event()  # set when the inbox has an item, and at the end of the call
        self.packet_sent_or_end = asyncio.Event()  # set after each packet; the waiting task clears it
        self.dropped_messages = 0  # received with a full inbox
        self._start = start
        self._sample_rate = sample_rate
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._playout = Playout(start=start, sample_rate=sample_rate, resampler=PassthroughResampler())

    # Called by the transport

    @property
    def ended(self) -> bool:
        """Whether the call has ended."""
        return self.call.ended

    @property
    def stats(self) -> PlayoutStats:
        """Counters of the packets sent so far."""
        return self._playout.stats

    def lead_s(self) -> float:
        """Return the seconds of speech queued and not yet sent; 0 after the end of the call."""
        return 0.0 if self.ended else self._playout.lead_s(self._loop.time())

    def play(self, pcm: bytes) -> None:
        """Queue speech, s16le at the call's rate; does nothing after the end of the call."""
        if not self.ended:
            self._playout.push(_chunk(pcm, self._sample_rate))

    def finish(self) -> None:
        """End the utterance, so that the silence after it is not counted as an underrun."""
        self._playout.finish()

    def discard(self) -> None:
        """Drop the speech that has not been sent."""
        self._playout.discard(self._loop.time())
        self.packet_sent_or_end.set()

    def end(self, reason: str) -> None:
        """End the call; does nothing if it has ended."""
        self.call.end(reason)

    # Called by the call

    def on_audio(self, audio: AudioSocketAudio) -> None:
        """Queue audio of the caller; audio from before the pipeline started is dropped."""
        if self.is_receiving:
            self._enqueue(audio, _MAX_UNREAD_MESSAGES)

    def on_dtmf(self, digit: str) -> None:
        """Queue a key, also before the pipeline has started."""
        self._enqueue(Dtmf(digit), _MAX_UNREAD_MESSAGES + _MAX_UNREAD_KEYS)

    def tick(self, now: float) -> int:
        """Send the packets due at ``now`` (monotonic s) and return their number."""
        packets = self._playout.due(now)
        for packet in packets:
            self.call.send(AudioSocketAudio(self._sample_rate, packet))
        self.packet_sent_or_end.set()
        return len(packets)

    async def run(self) -> None:
        """Run the bot."""
        await self._answer(self)
        self.call.end("the bot is done")

    def on_ended(self, reason: str) -> None:
        """Wake the transport's tasks and log the counters. The bot ends by itself."""
        self.input_or_end.set()
        self.packet_sent_or_end.set()
        stats = self.stats
        logger.info(
            f"Call {self.call.name} closed after {self._loop.time() - self._start:.1f} s, {reason}: "
            f"{stats.packets} packets, {stats.late_packets} late, {stats.skipped_packets} skipped, "
            f"{self.call.dropped} dropped, {stats.underruns} underruns, "
            f"{self.dropped_messages} messages of the caller not taken"
        )

    def _enqueue(self, message: AudioSocketAudio | Dtmf, max_messages: int) -> None:
        if len(self.inbox) >= max_messages:
            self.dropped_messages += 1
            return
        self.inbox.append(message)
        self.input_or_end.set()


def _chunk(pcm: bytes, sample_rate: int) -> AudioChunk:
    # Playout takes the engine's chunks, whose positions count samples at 24 kHz. Pipecat has text and words.
    samples = len(pcm) // 2 * SAMPLE_RATE // sample_rate
    return AudioChunk(pcm, 0, (0, samples), (0, 0), (), Provenance(None, None, 0.0, 0.0), False)
