"""The playout of a peer that paces itself: what to send it, and what its listener has heard by now.

The peer queues what it gets and plays it in real time; it holds at most ``max_ahead_s`` of ours, so that a
barge-in has little to drop. After every ``mark_every_ms`` of speech it is asked to report (a mark), which it
does when it has played up to there. Between two reports time goes on at one second a second, never past
what was sent. Some peers echo their marks when told to drop their queue (Twilio), others forget them
(Asterisk's chan_websocket): marks of a queue that was dropped are forgotten here, and a report of one says
nothing.

    sent        |=====m0=====m1=====m2=====m3==|
    played      |=========>                          m0 reported 60 ms ago: position = m0 + 60 ms
    heard       words whose middle lies before the position

No socket: ``outgoing`` gives what to send, in order. No clock: time comes in.
"""

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final

from ...tts_engine.chunk import AudioChunk
from ..audio.resample import Resampler, resampler_to
from .heard_words import DiscardResult, HeardWord, HeardWords

MARK_EVERY_MS: Final = 200
MAX_AHEAD_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PeerMedia:
    """Speech to send: s16le mono, a whole number of frames but for the end of an utterance."""

    pcm: bytes


@dataclass(frozen=True, slots=True)
class PeerMark:
    """Ask the peer to report when it has played everything sent before. At most 24 ASCII characters."""

    name: str


@dataclass(frozen=True, slots=True)
class PeerClear:
    """Tell the peer to drop what it has not played."""


PeerCommand = PeerMedia | PeerMark | PeerClear


@dataclass(frozen=True, slots=True)
class _PendingMark:
    name: str
    position: int
    marks: tuple[str, ...]  # the caller's own, that end here


class PeerPlayout:
    """One listener of a peer that paces itself. Not thread-safe.

    Args:
        sample_rate: of what is sent, Hz.
        frame_ms: what the peer plays at once; ``PeerMedia`` is whole frames, because some peers drop the rest.
        mark_every_ms: speech between two reports.
        max_ahead_s: speech that the peer may hold.
    """

    paced_by_peer = True

    def __init__(
        self,
        *,
        sample_rate: int = 8_000,
        packet_ms: int = 20,
        mark_every_ms: int = MARK_EVERY_MS,
        max_ahead_s: float = MAX_AHEAD_S,
        resampler: Resampler | None = None,
    ) -> None:
        self._sample_rate = sample_rate
        self._packet_bytes = 2 * sample_rate * packet_ms // 1000
        self._mark_every = sample_rate * mark_every_ms // 1000
        self._max_ahead = round(max_ahead_s * sample_rate)
        self._resampler = resampler_to(sample_rate) if resampler is None else resampler
        self._words = HeardWords(sample_rate)

        self._ready = bytearray()  # not yet sent
        self._control: deque[PeerClear] = deque()
        self._sent = 0  # samples of speech, dropped speech included
        self._marked = 0  # up to where a report was asked for
        self._caller_marks: deque[tuple[int, str]] = deque()  # the caller's, by position
        self._pending_marks: deque[_PendingMark] = deque()  # asked for and not yet given
        self._reached_marks: list[str] = []

        self._played = 0  # as last reported, or since when the peer plays
        self._played_at = -inf
        self._requested_marks = 0

    @property
    def sample_rate(self) -> int:
        """Of what is sent, Hz."""
        return self._sample_rate

    def push(self, chunk: AudioChunk) -> None:
        """Queue a chunk behind what is there, resampled at once."""
        self._words.push(chunk, position=self._played, end=self._end)
        self._ready += self._resampler.push(chunk.pcm)

    def mark(self, name: str) -> None:
        """Name the end of what was pushed so far; ``take_reached_marks`` tells when it has been played."""
        self._caller_marks.append((self._end, name))

    def finish(self) -> None:
        """End the utterance; its last frame is filled with silence."""
        if self._words.open is None:
            return
        self._ready += self._resampler.drain()
        end = self._end
        self._ready += bytes(-len(self._ready) % self._packet_bytes)
        self._words.finish(position=self._played, end=end)

    def commands_due(self, now: float) -> list[PeerCommand]:
        """What to send now, in this order; ask again when a report came or some speech has been played."""
        out: list[PeerCommand] = list(self._control)
        self._control.clear()
        position = self._position(now)
        if position >= self._sent:
            self._played, self._played_at = self._sent, now  # it begins to play what comes now
        while (size := self._sendable(position)) > 0:
            out.append(PeerMedia(bytes(self._ready[:size])))
            del self._ready[:size]
            self._sent += size // 2
            if self._sent - self._marked >= self._mark_every or not self._ready:
                out.append(self._request_mark())
        return out

    def mark_played(self, name: str, now: float) -> None:
        """The peer has played up to a mark; one of a queue that was dropped says nothing."""
        if all(report.name != name for report in self._pending_marks):
            return
        while True:
            report = self._pending_marks.popleft()
            self._reached_marks += report.marks
            if report.name == name:
                break
        self._played, self._played_at = max(self._played, report.position), now
        self._words.advance(self._played)

    def advance(self, now: float) -> None:
        """Count the words that must have been played by now."""
        self._words.advance(self._position(now))

    def discard(self, now: float) -> DiscardResult:
        """Tell the peer to drop its queue, drop ours, and say what was cut and what was heard."""
        position = self._position(now)
        self._words.advance(position)
        discarded = self._words.discard(position=position, cut=self._end - position, silent_at=now)
        self._drop_queue(now)
        return discarded

    def take_heard_words(self) -> tuple[HeardWord, ...]:
        """The words heard since this was last asked."""
        return self._words.take_heard_words()

    def take_reached_marks(self) -> tuple[str, ...]:
        """The marks played since this was last asked, in order."""
        reached, self._reached_marks = tuple(self._reached_marks), []
        return reached

    def lead_s(self, now: float) -> float:
        """Seconds of speech not yet played, by the peer's reports and the time since."""
        return (self._end - self._position(now)) / self._sample_rate

    def runs_dry_at(self, now: float) -> float:
        """When the listener has nothing left to hear."""
        return now + self.lead_s(now)

    @property
    def _end(self) -> int:
        return self._sent + len(self._ready) // 2

    def _position(self, now: float) -> int:
        elapsed = max(0.0, now - self._played_at)
        if elapsed * self._sample_rate >= self._sent - self._played:
            return self._sent
        return self._played + int(elapsed * self._sample_rate)

    def _sendable(self, position: int) -> int:
        room = 2 * max(0, self._max_ahead - (self._sent - position))
        until_mark = 2 * (self._mark_every - (self._sent - self._marked))
        size = min(len(self._ready), room, max(until_mark, self._packet_bytes))
        return size // self._packet_bytes * self._packet_bytes

    def _request_mark(self) -> PeerMark:
        self._marked = self._sent
        own = []
        while self._caller_marks and self._caller_marks[0][0] <= self._sent:
            own.append(self._caller_marks.popleft()[1])
        self._requested_marks += 1
        report = _PendingMark(f"m{self._requested_marks}", self._sent, tuple(own))
        self._pending_marks.append(report)
        return PeerMark(report.name)

    def _drop_queue(self, now: float) -> None:
        if self._sent > self._position(now):
            self._control.append(PeerClear())
        self._sent = self._played = self._marked = self._end
        self._played_at = now
        self._ready.clear()
        self._resampler.reset()
        self._caller_marks.clear()
        self._pending_marks.clear()
