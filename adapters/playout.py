"""The pacer of one listener: chunks of speech in, packets of ``ptime_ms`` out on an absolute schedule.

Packet n is due at ``start + n * ptime``, speech or silence; who calls ``due(now)`` late changes nothing but
which slots are skipped. Time is a number that comes in (monotonic seconds): no clock, no socket, no task is
in here. Not for peers that pace themselves, and not a mixer.

    slot         n        n+1      n+2                       n+5
    due(now)     |--------|--------|####### stall ###########|--------|
    sent         n        n+1      .                n+2 n+3  .        n+6      two at once at most;
    skipped                                         n+4 n+5                    the others are counted
"""

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import Final

import numpy as np

from ..tts_engine.chunk import SAMPLE_RATE, AudioChunk, Word
from .resample import Resampler, resampler_to

LATE_S: Final = 0.020
UNDERRUN_S: Final = 0.060  # of nothing while speech is expected; less is heard as a pause
FADE_S: Final = 0.005
FADE_WITHIN_S: Final = 0.020  # after discard(); a later packet is silence
MAX_LEAD_S: Final = 120.0  # who pushes more than this is not pacing
MAX_UNREPORTED: Final = 2_000  # words that heard() keeps for who does not ask


@dataclass(frozen=True, slots=True)
class HeardWord:
    """A word whose middle has been sent, and the utterance (counted from 0 in this playout) it is of."""

    utterance: int
    word: Word


@dataclass(frozen=True, slots=True)
class Discarded:
    """What a barge-in cut, and what the listener knows of the utterance that was being heard.

    ``utterance``: its number, counted from 0; -1 when nothing was pushed since the start or the last discard.
    ``cut_ms``: speech dropped, all queued utterances together; the fading edge counts as dropped.
    ``words``: all words of ``utterance`` whose middle was sent, those that ``heard()`` told included.
    ``text_stop``: characters of its text up to the end of the last word heard; all of it if all was heard.
    ``silent_at``: monotonic seconds from which nothing of the old speech is played any more.
    """

    utterance: int
    cut_ms: float
    words: tuple[Word, ...]
    text_stop: int
    silent_at: float


@dataclass(frozen=True, slots=True)
class PlayoutStats:
    """Counters of one playout since its start.

    ``packets``: sent, speech and silence. ``speech_packets``: those with any speech in them.
    ``late_packets``: sent more than 20 ms after they were due. ``skipped_packets``: slots in which nothing
    was sent, because a stall was too long to catch up. ``underruns``: times that more than 60 ms of nothing
    was sent where speech was expected. ``discards``: barge-ins.
    """

    packets: int = 0
    speech_packets: int = 0
    late_packets: int = 0
    skipped_packets: int = 0
    underruns: int = 0
    discards: int = 0


@dataclass(slots=True)
class _Utterance:
    # Positions are samples of speech at the packets' rate since the playout began.
    number: int
    begin: int
    end: float = inf  # until finish() knows it
    samples_in: int = 0  # at 24 kHz
    text_stop: int = 0
    heard: list[Word] = field(default_factory=list)

    def text_heard(self, position: int) -> int:
        if position >= self.end:
            return self.text_stop
        return self.heard[-1].text_stop if self.heard else 0


class Playout:
    """Paces the speech of one listener and knows which words have been heard.

    ``push`` chunks as they come, ``finish`` when their stream ends, send what ``due(now)`` returns and come
    again at ``next_due()``. A new stream begins a new utterance: word times count from the first ``push``
    after ``finish`` or ``discard``. **A word counts as heard when its middle has been sent.** Not
    thread-safe.

    Args:
        start: monotonic seconds at which the first packet is due.
        sample_rate: of the packets, Hz.
        ptime_ms: length of a packet.
        resampler: 24 kHz to ``sample_rate``; by default the one that delays least.
    """

    def __init__(
        self,
        *,
        start: float,
        sample_rate: int = 8_000,
        ptime_ms: int = 20,
        resampler: Resampler | None = None,
    ) -> None:
        if ptime_ms <= 0 or sample_rate * ptime_ms % 1000:
            raise ValueError(f"got packets of {ptime_ms} ms; at {sample_rate} Hz they must be whole samples")
        self._start = start
        self._sample_rate = sample_rate
        self._ptime_s = ptime_ms / 1000
        self._packet_samples = sample_rate * ptime_ms // 1000
        self._silence = bytes(2 * self._packet_samples)
        self._resampler = resampler_to(sample_rate) if resampler is None else resampler

        self._slot = 0  # of the next packet
        self._due_at = start  # start + slot * ptime
        self._speech_until = -inf  # when the speech sent so far has been played

        self._ready = bytearray()  # at the packets' rate; everything before _taken has been sent
        self._taken = 0
        self._fade = b""  # the edge that discard() left
        self._fade_by = start

        self._position = 0  # samples of speech sent or dropped: the place of _taken
        self._open: _Utterance | None = None  # being pushed
        self._queue: deque[_Utterance] = deque()  # from the one being heard to the one being pushed
        self._marks: deque[tuple[float, _Utterance, Word]] = deque()  # middles of words not yet heard
        self._unreported: deque[HeardWord] = deque(maxlen=MAX_UNREPORTED)
        self._begun = 0  # utterances

        self._nothing = 0  # samples of nothing since speech was last sent where it is expected
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
    def sample_rate(self) -> int:
        """Of the packets, Hz."""
        return self._sample_rate

    def push(self, chunk: AudioChunk) -> None:
        """Queue a chunk behind what is there, resampled at once.

        Raises ValueError where more than 120 s would wait: who pushes that much does not pace.
        """
        if self._waiting / self._sample_rate + chunk.seconds > MAX_LEAD_S:
            raise ValueError(f"got speech for more than {MAX_LEAD_S:g} s ahead; push while lead_s() is small")
        utterance = self._open or self._begin()
        self._append(self._resampler.push(chunk.pcm))
        utterance.samples_in += len(chunk.pcm) // 2
        utterance.text_stop = max(utterance.text_stop, chunk.text[1])
        for word in chunk.words:
            middle = round((word.start_s + word.stop_s) / 2 * self._sample_rate)
            self._marks.append((utterance.begin + middle, utterance, word))

    def finish(self) -> None:
        """End the utterance: nothing more of it comes, and silence after it is no underrun."""
        if self._open is None:
            return
        self._append(self._resampler.drain())
        self._open.end = self._position + self._waiting
        self._marks = deque((min(middle, said.end), said, word) for middle, said, word in self._marks)
        self._hear()  # a word that no audio was left for
        self._open = None

    def due(self, now: float) -> list[bytes]:
        """Return the s16le packets whose time has come: none, one, or two to catch up.

        What is more than two packets behind is skipped: the speech waits, the schedule goes on.
        """
        if now < self._due_at:
            return []
        packets = [self._next_packet(now)]
        if now >= self._due_at:
            packets.append(self._next_packet(now))
            if now >= self._due_at:
                self._skip_to(now)
        return packets

    def discard(self, now: float) -> Discarded:
        """Drop everything not yet sent (barge-in) and say what was cut and what was heard.

        Up to 5 ms of the edge fade out in the next packet, if that leaves within 20 ms; nothing else is sent.
        """
        heard = self._being_heard()
        self._fade = self._faded_edge()
        self._fade_by = now + FADE_WITHIN_S
        fade_s = len(self._fade) / 2 / self._sample_rate
        discarded = Discarded(
            utterance=heard.number if heard else -1,
            cut_ms=1000 * self._unplayed() / self._sample_rate,
            words=tuple(heard.heard) if heard else (),
            text_stop=heard.text_heard(self._position) if heard else 0,
            silent_at=self._due_at + fade_s if self._fade else max(now, self._speech_until),
        )
        self._forget()
        self._discards += 1
        return discarded

    def heard(self) -> tuple[HeardWord, ...]:
        """The words heard since this was last asked, each once; of 2,000 not asked for, the newest."""
        words = tuple(self._unreported)
        self._unreported.clear()
        return words

    def next_due(self) -> float:
        """Monotonic seconds at which the next packet is due."""
        return self._due_at

    def lead_s(self, now: float) -> float:
        """Seconds of speech not yet played: what waits, and what is left of the last packet at ``now``."""
        return self._waiting / self._sample_rate + max(0.0, self._speech_until - now)

    def runs_dry_at(self, now: float) -> float:
        """Monotonic seconds at which the listener has nothing left to hear; ``now`` if that is so now."""
        if self._waiting:
            return max(now, self._due_at) + self._waiting / self._sample_rate
        return max(now, self._speech_until)

    def _begin(self) -> _Utterance:
        self._being_heard()
        utterance = _Utterance(number=self._begun, begin=self._position + self._waiting)
        self._begun += 1
        self._open = utterance
        self._queue.append(utterance)
        self._nothing = 0
        return utterance

    def _append(self, pcm: bytes) -> None:
        del self._ready[: self._taken]
        self._taken = 0
        self._ready += pcm

    @property
    def _waiting(self) -> int:
        return (len(self._ready) - self._taken) // 2

    def _next_packet(self, now: float) -> bytes:
        if now - self._due_at > LATE_S:
            self._late += 1
        self._slot += 1
        self._due_at = self._start + self._slot * self._ptime_s
        edge = self._edge(now) if self._fade else b""
        packet = edge + self._ready[self._taken : self._taken + 2 * self._packet_samples - len(edge)]
        if not packet:
            self._starve(self._packet_samples)
            return self._silence
        self._taken += len(packet) - len(edge)
        self._position += (len(packet) - len(edge)) // 2
        if self._marks and self._marks[0][0] <= self._position:
            self._hear()
        self._speech_packets += 1
        self._nothing = 0
        missing = self._packet_samples - len(packet) // 2
        self._speech_until = self._due_at - missing / self._sample_rate
        if not missing:
            return packet
        self._starve(missing)
        return packet + bytes(2 * missing)

    def _edge(self, now: float) -> bytes:
        edge, self._fade = self._fade, b""
        return edge if now <= self._fade_by else b""

    def _hear(self) -> None:
        while self._marks and self._marks[0][0] <= self._position:
            _, utterance, word = self._marks.popleft()
            utterance.heard.append(word)
            self._unreported.append(HeardWord(utterance.number, word))

    def _starve(self, samples: int) -> None:
        if self._open is None and not self._waiting:
            return
        limit = int(UNDERRUN_S * self._sample_rate)
        if self._nothing <= limit < self._nothing + samples:
            self._underruns += 1
        self._nothing += samples

    def _skip_to(self, now: float) -> None:
        slot = int((now - self._start) / self._ptime_s) + 1
        skipped = slot - self._slot
        self._slot = slot
        self._due_at = self._start + slot * self._ptime_s
        self._skipped += skipped
        self._starve(skipped * self._packet_samples)

    def _being_heard(self) -> _Utterance | None:
        while len(self._queue) > 1 and self._queue[1].begin < self._position:
            self._queue.popleft()
        return self._queue[0] if self._queue else None

    def _unplayed(self) -> int:
        if self._open is None:
            return self._waiting
        # The resampler withholds some of it.
        end = self._open.begin - (-self._open.samples_in * self._sample_rate // SAMPLE_RATE)
        return max(self._waiting, end - self._position)

    def _faded_edge(self) -> bytes:
        if self._speech_until < self._due_at or not self._waiting:
            return b""
        samples = min(self._waiting, int(FADE_S * self._sample_rate))
        edge = np.frombuffer(self._ready, "<i2", samples, self._taken)
        return np.rint(edge * np.linspace(1, 0, samples)).astype("<i2").tobytes()

    def _forget(self) -> None:
        self._position += self._waiting
        self._ready.clear()
        self._taken = 0
        self._resampler.reset()
        self._open = None
        self._queue.clear()
        self._marks.clear()
        self._nothing = 0
