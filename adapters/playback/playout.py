"""Paced playout to one listener: chunks of speech in, packets of ``ptime_ms`` out on an absolute schedule.

Packet n is due at ``start + n * ptime``, whether it holds speech or silence; a late call of ``due(now)``
skips packets but does not move the schedule. Times are arguments (monotonic seconds): there is no clock,
socket or task here. Peers that pace themselves use ``media_streams.peer_playout``. ``background`` has sounds
under speech.

    slot         n        n+1      n+2                       n+5
    due(now)     |--------|--------|####### stall ###########|--------|
    sent         n        n+1      .                n+2 n+3  .        n+6      at most two packets at once;
    skipped                                         n+4 n+5                    the others are counted

After more than 200 ms, nothing is sent at once: the listener has heard the gap, and additional packets would
only wait in its buffer. The schedule's own packets follow.
"""

from dataclasses import astuple, dataclass
from math import inf
from operator import add
from typing import Final

import numpy as np

from ...tts_engine.chunk import AudioChunk
from .background import BackgroundMixer
from .chunk_resampler import ChunkResampler
from .heard_words import DiscardResult, HeardMark, HeardWord, HeardWords

LATE_AFTER_S: Final = 0.020
UNDERRUN_AFTER_S: Final = 0.060  # of silence where speech is expected; less is heard as a pause
MAX_CATCH_UP_S: Final = 0.200  # of a stall after which two packets are sent at once
FADE_S: Final = 0.005
MAX_FADE_DELAY_S: Final = 0.018  # from discard() to a packet with the fade: silence begins within 20 ms
_HISTORY_S: Final = 1.0  # of sent speech that is kept: longer words are cut by a hold
MAX_LEAD_S: Final = 120.0  # bounds the queue: 2 min of 8 kHz speech are 1.9 MB


@dataclass(frozen=True, slots=True)
class PlayoutStats:
    """Counters of one playout since its start."""

    packets: int = 0  # sent, speech and silence
    speech_packets: int = 0  # sent with at least one sample of speech
    late_packets: int = 0  # sent more than 20 ms after they were due
    skipped_packets: int = 0  # slots without a packet, because a stall was too long to catch up
    underruns: int = 0  # times that more than 60 ms of silence were sent where speech was expected
    discards: int = 0  # barge-ins

    def __add__(self, other: "PlayoutStats") -> "PlayoutStats":
        return PlayoutStats(*map(add, astuple(self), astuple(other)))


class Playout:
    """Paces the speech of one listener and tracks the words heard. Not thread-safe.

    ``push`` chunks as they arrive, ``finish`` when their stream ends, send the packets that ``due(now)``
    returns, and call it again at ``next_due()``. The first ``push`` after ``finish`` or ``discard`` begins a
    new utterance, from which word times count. A word counts as heard when its middle has been sent.

    Args:
        start: time at which the first packet is due, monotonic seconds.
        sample_rate: rate of the packets, Hz.
        ptime_ms: length of a packet; raises ValueError unless it is a whole number of samples.
        background: mixes its sounds into the packets; None: there are none.
    """

    def __init__(
        self,
        *,
        start: float,
        sample_rate: int = 8_000,
        ptime_ms: int = 20,
        background: BackgroundMixer | None = None,
    ) -> None:
        if ptime_ms <= 0 or sample_rate * ptime_ms % 1000:
            raise ValueError(f"got packets of {ptime_ms} ms; at {sample_rate} Hz they must be whole samples")
        self.background = background
        self._start = start
        self._sample_rate = sample_rate
        self._ptime_s = ptime_ms / 1000
        self._packet_samples = sample_rate * ptime_ms // 1000
        self._history = round(_HISTORY_S * sample_rate)  # samples
        self._silence = bytes(2 * self._packet_samples)
        self._resampler = ChunkResampler(sample_rate)

        self._slot = 0  # number of the next packet
        self._due_at = start  # start + slot * ptime
        self._speech_until = -inf  # time at which the sent speech has been played

        self._ready = bytearray()  # s16le at the packets' rate
        self._ready_offset = 0  # bytes of it that have been sent
        self._fade = b""  # faded speech to send after discard()
        self._fade_by = start  # latest time to send it

        self._position = 0  # samples of speech sent or dropped: position of _ready_offset
        self._words = HeardWords(sample_rate)

        self._is_held = False  # by the listener, who hears nothing
        self._awaits_text = False  # the writer pauses: silence after the queue is no underrun
        self._silent_samples = 0  # sent since the last speech, while speech is expected
        self._speech_packets = self._late = self._skipped = self._underruns = self._discards = 0

    @property
    def stats(self) -> PlayoutStats:
        """The counters so far."""
        return PlayoutStats(
            packets=self._slot - self._skipped,
            speech_packets=self._speech_packets,
            late_packets=self._late,
            skipped_packets=self._skipped,
            underruns=self._underruns,
            discards=self._discards,
        )

    @property
    def skipped_packets(self) -> int:
        """The slots without a packet so far."""
        return self._skipped

    @property
    def sample_rate(self) -> int:
        """Rate of the packets, Hz."""
        return self._sample_rate

    def push(self, chunk: AudioChunk, *, utterance: int | None = None) -> None:
        """Resample a chunk and queue it; raises ValueError if more than 120 s of speech would be queued.

        utterance: number of the utterance that the chunk begins, above all numbers before; None: the next.
        """
        if self._waiting_samples / self._sample_rate + chunk.seconds > MAX_LEAD_S:
            raise ValueError(
                f"got more than {MAX_LEAD_S:g} s of speech ahead; push only while lead_s() is small"
            )
        if self._words.open is None:
            self._silent_samples = 0
        self._awaits_text = chunk.awaits_text
        self._words.push(chunk, position=self._position, end=self._end, number=utterance)
        self._append(self._resampler.push(chunk))

    def finish(self) -> None:
        """End the utterance; silence after its speech does not count as an underrun."""
        if self._words.open is None:
            return
        self._append(self._resampler.drain())
        self._words.finish(position=self._position, end=self._end)

    def hold(self, now: float) -> None:
        """Send silence until ``release``, from where speech goes on at a word's beginning."""
        if self._is_held:
            return
        self._is_held = True
        edge = min(self._words.word_edge(self._position), self._end)
        moved = max(2 * (edge - self._position), -self._ready_offset)
        self._ready_offset += moved
        self._position += moved // 2

    def release(self, now: float) -> None:
        """Go on with the speech."""
        self._is_held = False
        self._silent_samples = 0

    def due(self, now: float) -> list[bytes]:
        """Return the s16le packets due at ``now``: none, one, or two to catch up.

        Slots that are further behind are skipped: their speech is sent later, and the schedule is kept. After
        more than 200 ms all slots up to ``now`` are skipped.
        """
        if now < self._due_at:
            return []
        if now - self._due_at > MAX_CATCH_UP_S:
            self._skip_to(now)
            return []
        packets = [self._next_packet(now)]
        if now >= self._due_at:
            packets.append(self._next_packet(now))
            if now >= self._due_at:
                self._skip_to(now)
        return packets

    def discard(self, now: float) -> DiscardResult:
        """Barge-in: drop the speech not yet sent; return what was dropped and what was heard.

        Up to 5 ms of it fade out in the next packet if that is sent within 18 ms, which avoids a click.
        """
        self._fade_by = now + MAX_FADE_DELAY_S
        self._fade = self._faded_edge() if self._due_at <= self._fade_by else b""
        fade_s = len(self._fade) / 2 / self._sample_rate
        silent_at = self._due_at + fade_s if self._fade else max(now, self._speech_until)
        discarded = self._words.discard(
            position=self._position, cut=self._unplayed_samples(), silent_at=silent_at
        )
        self._drop_queue()
        self._discards += 1
        return discarded

    def take_heard_words(self) -> tuple[HeardWord | HeardMark, ...]:
        """Return the words and marks heard since the last call, in order, at most the newest 2,000."""
        return self._words.take_heard_words()

    def next_due(self) -> float:
        """Return the time at which the next packet is due, monotonic seconds."""
        return self._due_at

    def lead_s(self, now: float) -> float:
        """Seconds of speech not yet played: the queue and the rest of the last packet at ``now``."""
        return self._waiting_samples / self._sample_rate + max(0.0, self._speech_until - now)

    def is_idle(self, now: float) -> bool:
        """Return whether all speech has been played and the last utterance has ended."""
        return self._words.open is None and self.lead_s(now) <= 0

    def runs_dry_at(self, now: float) -> float:
        """Return the time at which the queued speech will have been played, at least ``now``."""
        if self._waiting_samples:
            return max(now, self._due_at) + self._waiting_samples / self._sample_rate
        return max(now, self._speech_until)

    def _append(self, pcm: bytes) -> None:
        if (surplus := self._ready_offset - 2 * self._history) > 0:
            del self._ready[:surplus]
            self._ready_offset -= surplus
        self._ready += pcm

    @property
    def _waiting_samples(self) -> int:
        return (len(self._ready) - self._ready_offset) // 2

    @property
    def _end(self) -> int:
        return self._position + self._waiting_samples

    def _next_packet(self, now: float) -> bytes:
        packet = self._next_speech(now)
        if self.background is None:
            return packet
        return self.background.mix(packet, is_held=self._is_held)

    def _next_speech(self, now: float) -> bytes:
        if now - self._due_at > LATE_AFTER_S:
            self._late += 1
        self._slot += 1
        # From the slot number, not from the last due time: rounding errors do not add up.
        self._due_at = self._start + self._slot * self._ptime_s
        edge = self._take_fade(now) if self._fade else b""
        if self._is_held:
            return edge + self._silence[len(edge) :]
        packet = (
            edge + self._ready[self._ready_offset : self._ready_offset + 2 * self._packet_samples - len(edge)]
        )
        if not packet:
            self._count_silence(self._packet_samples)
            return self._silence
        self._ready_offset += len(packet) - len(edge)
        self._position += (len(packet) - len(edge)) // 2
        self._words.advance(self._position)
        self._speech_packets += 1
        self._silent_samples = 0
        missing = self._packet_samples - len(packet) // 2
        self._speech_until = self._due_at - missing / self._sample_rate
        if not missing:
            return packet
        self._count_silence(missing)
        return packet + bytes(2 * missing)

    def _take_fade(self, now: float) -> bytes:
        edge, self._fade = self._fade, b""
        return edge if now <= self._fade_by else b""

    def _count_silence(self, samples: int) -> None:
        if self._is_held or self._awaits_text or (self._words.open is None and not self._waiting_samples):
            return
        limit = int(UNDERRUN_AFTER_S * self._sample_rate)
        # Count the underrun once, in the packet that crosses the limit.
        if self._silent_samples <= limit < self._silent_samples + samples:
            self._underruns += 1
        self._silent_samples += samples

    def _skip_to(self, now: float) -> None:
        slot = int((now - self._start) / self._ptime_s) + 1
        skipped = slot - self._slot
        self._slot = slot
        self._due_at = self._start + slot * self._ptime_s
        self._skipped += skipped
        self._count_silence(skipped * self._packet_samples)

    def _unplayed_samples(self) -> int:
        utterance = self._words.open
        if utterance is None:
            return self._waiting_samples
        return max(self._waiting_samples, utterance.end_of_speech(self._sample_rate) - self._position)

    def _faded_edge(self) -> bytes:
        # No fade out of silence: the last packet must have ended with speech.
        if self._speech_until < self._due_at or not self._waiting_samples:
            return b""
        samples = min(self._waiting_samples, int(FADE_S * self._sample_rate))
        edge = np.frombuffer(self._ready, "<i2", samples, self._ready_offset)
        return np.rint(edge * np.linspace(1, 0, samples)).astype("<i2").tobytes()

    def _drop_queue(self) -> None:
        self._position += self._waiting_samples
        self._ready.clear()
        self._ready_offset = 0
        self._resampler.reset()
        self._silent_samples = 0
