"""Playout of a peer that paces itself: the commands to send, and the listener's position.

The peer queues the audio that it receives and plays it in real time. It holds at most ``max_ahead_s`` of our
audio, so that little is left to drop at a barge-in. After every ``MARK_EVERY_MS`` of speech it is asked to
report (a mark) when it has played the audio before the mark. Between two reports the position is assumed to
advance in real time, never past the audio sent. At a barge-in the peer is asked to drop its queue; some peers
then echo the dropped marks (Twilio) and others forget them (Asterisk's chan_websocket). Reports of dropped
marks are therefore ignored. Of a peer without reports the position is known from time alone.

    sent        |=====m0=====m1=====m2=====m3==|
    played      |=========>                          m0 was reported 60 ms ago: position = m0 + 60 ms
    heard       words whose middle lies before the position

A peer may also ask for a pause, because its queue is full (Asterisk's MEDIA_XOFF). One that sends its caller
nothing while it has no audio (Asterisk's chan_websocket) gets silence between utterances, because carriers
hang up on a call without packets; the peer drops what is left of it when speech comes.

No socket: ``due`` returns the commands to send, in order. No clock: times are arguments.
"""

from collections import deque
from dataclasses import dataclass
from math import inf
from typing import Final

from ...tts_engine.chunk import AudioChunk
from ..playback.background import BackgroundMixer
from ..playback.chunk_resampler import ChunkResampler
from ..playback.heard_words import DiscardResult, HeardMark, HeardWord, HeardWords
from ..playback.playout import MAX_LEAD_S, UNDERRUN_AFTER_S, PlayoutStats

MARK_EVERY_MS: Final = 200
MAX_AHEAD_S: Final = 1.0
_MAX_ECHO_SHIFT_S: Final = 0.06  # of the estimated position, which jumps when a report comes
_SILENCE_S: Final = 0.2  # sent at once, in place of speech
_HISTORY_S: Final = 1.0  # of played speech that is kept: longer words are cut by a hold
_ENOUGH_HELD_S: Final = 0.35  # of speech at a peer: what would leave a rest too short to send can wait
MAX_REPORT_DELAY_S: Final = 1.0  # of the report of a mark, after the time at which it should have been played


@dataclass(frozen=True, slots=True)
class PeerMedia:
    """Speech to send: s16le mono, whole packets."""

    pcm: bytes


@dataclass(frozen=True, slots=True)
class PeerMark:
    """Request for a report once all audio sent before is played; ``name`` has at most 24 ASCII characters."""

    name: str


@dataclass(frozen=True, slots=True)
class PeerClear:
    """Request to drop all audio that is not yet played."""


PeerCommand = PeerMedia | PeerMark | PeerClear


@dataclass(frozen=True, slots=True)
class _PendingMark:
    name: str
    position: int


class PeerPlayout:
    """One listener of a peer that paces itself. Not thread-safe.

    Args:
        sample_rate: rate of the audio sent, Hz.
        packet_ms: unit of ``PeerMedia``; some peers drop the part of a message that is not a whole packet.
        min_media_ms: the least that ``PeerMedia`` may have, whole packets; at least a packet.
        max_ahead_s: speech that the peer may hold.
        reports_marks: whether the peer reports what it has played; else it is not asked to.
        fills_pauses: whether silence is sent while there is no speech.
        background: mixes its sounds into the speech, and into silence that is then always sent; None: there
            are none.
    """

    def __init__(
        self,
        *,
        sample_rate: int = 8_000,
        packet_ms: int = 20,
        min_media_ms: int = 0,
        max_ahead_s: float = MAX_AHEAD_S,
        reports_marks: bool = True,
        fills_pauses: bool = False,
        background: BackgroundMixer | None = None,
    ) -> None:
        self.background = background
        self._sample_rate = sample_rate
        self._packet_bytes = 2 * sample_rate * packet_ms // 1000
        self._min_bytes = max(self._packet_bytes, 2 * sample_rate * min_media_ms // 1000)
        self._max_ahead = round(max_ahead_s * sample_rate)
        self._enough_held = round(_ENOUGH_HELD_S * sample_rate)
        self._mark_every = min(sample_rate * MARK_EVERY_MS // 1000, self._max_ahead)
        self._reports_marks = reports_marks
        self._fills_pauses = fills_pauses or background is not None
        self._silence = bytes(round(2 * _SILENCE_S * sample_rate))
        self._resampler = ChunkResampler(sample_rate)
        self._words = HeardWords(sample_rate)

        self._ready = bytearray()  # not yet sent
        self._history = bytearray()  # sent, the newest at the end
        self._max_history = 2 * (self._max_ahead + round(_HISTORY_S * sample_rate))  # bytes
        self._echoed = 0  # position up to which ``played`` has told
        self._is_held = False  # by the listener, who hears nothing
        self._control: deque[PeerClear] = deque()  # to send before any speech
        self._sent = 0  # samples of speech, dropped speech included, and of silence between
        self._filled = 0  # of them, silence after the last speech
        self._marked = 0  # position of the last mark sent
        self._pending_marks: deque[_PendingMark] = deque()  # sent and not yet reported

        # Position at the last report, or at the start of playing, and its time.
        self._played = 0
        self._played_at = -inf
        self._dry_at = -inf  # estimated time at which the peer has played all that it was sent
        self._requested_marks = 0
        self._paused = False

        self._awaits_text = False  # the writer pauses: silence after the queue is no underrun
        self._dry_since: float | None = None  # from when speech was expected and none was left to play
        self._sent_packets = self._underruns = self._discards = 0

    @property
    def stats(self) -> PlayoutStats:
        """The counters so far; the peer paces, so no packet is late."""
        return PlayoutStats(
            packets=self._sent_packets,
            speech_packets=self._sent_packets,
            underruns=self._underruns,
            discards=self._discards,
        )

    @property
    def sample_rate(self) -> int:
        """Rate of the audio sent, Hz."""
        return self._sample_rate

    def push(self, chunk: AudioChunk, *, utterance: int | None = None) -> None:
        """Resample a chunk and queue it; raises ValueError if more than 120 s of speech would be queued.

        utterance: number of the utterance that the chunk begins, above all numbers before; None: the next.
        """
        if len(self._ready) / 2 / self._sample_rate + chunk.seconds > MAX_LEAD_S:
            raise ValueError(
                f"got more than {MAX_LEAD_S:g} s of speech ahead; push only while lead_s() is small"
            )
        if self._words.open is None:
            self._dry_since = None
        self._awaits_text = chunk.awaits_text
        self._words.push(chunk, position=self._played, end=self._end, number=utterance)
        self._ready += self._resampler.push(chunk)

    def finish(self) -> None:
        """End the utterance; its last message is filled up with silence."""
        if self._words.open is None:
            return
        self._ready += self._resampler.drain()
        self._words.finish(position=self._played, end=self._end)
        self._pad()

    def due(self, now: float) -> list[PeerCommand]:
        """Return the commands to send now, in order; call again after a report or while speech is played."""
        out: list[PeerCommand] = list(self._control)
        self._control.clear()
        position = self._position(now)
        self._words.advance(position)
        if position >= self._sent - self._filled:
            self._count_dry(now)
        if position >= self._sent:
            self._played, self._played_at = self._sent, now  # the queue ran empty: new audio plays from now
        if self._filled and self._sendable(position):
            position = self._drop_silence(position, now, out)
        while (size := self._sendable(position)) > 0:
            self._send_audio(bytes(self._ready[:size]), out)
            del self._history[: -self._max_history]
            del self._ready[:size]
            self._sent += size // 2
            self._sent_packets += size // self._packet_bytes
            self._dry_at = now + (self._sent - position) / self._sample_rate
            self._dry_since = None
            if self._sent - self._marked >= self._mark_every or len(self._ready) < self._min_bytes:
                out += self._request_mark()
        if self._fills_pauses and self._sent - position < len(self._silence) // 4:
            self._fill(out)
        return out

    def hold(self, now: float) -> None:
        """Drop the peer's queue, and send nothing until ``release``; then a word's beginning comes first."""
        if self._is_held:
            return
        position = self._position(now)
        self._words.advance(position)
        kept = self._history + self._ready
        edge = max(self._words.word_edge(position), self._end - len(kept) // 2)
        size = 2 * max(0, self._end - edge)
        size = min(len(kept), size + -size % self._packet_bytes)
        end = self._end
        self._drop_queue(now)
        self._ready = kept[len(kept) - size :]
        self._sent = self._played = self._marked = end - size // 2
        if self._words.open is None:
            self._pad()
        self._is_held = True

    def release(self, now: float) -> None:
        """Go on with the speech."""
        self._is_held = False
        self._played_at, self._dry_since = now, None

    def pause(self) -> None:
        """Send no speech until ``resume``: the peer's queue is full."""
        self._paused = True

    def resume(self) -> None:
        """Send speech again."""
        self._paused = False

    def mark_played(self, name: str, now: float) -> None:
        """Take a report of the peer; a mark of a dropped queue is ignored."""
        if all(report.name != name for report in self._pending_marks):
            return
        while True:  # a report also confirms the marks before it
            report = self._pending_marks.popleft()
            if report.name == name:
                break
        self._played, self._played_at = max(self._played, report.position), now
        self._dry_at = self._played_at + (self._sent - self._played) / self._sample_rate
        self._words.advance(self._played)

    def advance(self, now: float) -> None:
        """Mark the words as heard that must have been played by ``now``."""
        self._words.advance(self._position(now))

    def discard(self, now: float) -> DiscardResult:
        """Barge-in: drop our queue and the peer's; return what was dropped and what was heard."""
        position = self._position(now)
        self._words.advance(position)
        cut = round(self.lead_s(now) * self._sample_rate)
        discarded = self._words.discard(position=position, cut=cut, silent_at=now)
        self._drop_queue(now)
        self._discards += 1
        return discarded

    def played(self, samples: int, now: float) -> bytes:
        """Return the ``samples`` that the listener has heard after those of the last call, with silence.

        They go on in step with what the listener sends, and follow the estimated position if it is elsewhere.
        """
        position = self._position(now)
        if abs(position - samples - self._echoed) > _MAX_ECHO_SHIFT_S * self._sample_rate:
            self._echoed = max(0, position - samples)
        begin = len(self._history) // 2 - (self._sent - self._echoed)
        stop = min(begin + samples, len(self._history) // 2 - (self._sent - position))
        heard = bytes(self._history[2 * max(0, begin) : 2 * max(0, stop)])
        self._echoed = min(self._echoed + samples, position)
        return heard + bytes(2 * samples - len(heard))

    def take_heard_words(self) -> tuple[HeardWord | HeardMark, ...]:
        """Return the words and marks heard since the last call, in order."""
        return self._words.take_heard_words()

    def lead_s(self, now: float) -> float:
        """Seconds of speech not yet played, estimated from the last report and the time since."""
        end = self._end if self._ready else self._sent - self._filled
        return max(0, end - self._position(now)) / self._sample_rate

    def runs_dry_at(self, now: float) -> float:
        """Return the time at which the queued speech will have been played."""
        return now + self.lead_s(now)

    def is_idle(self, now: float) -> bool:
        """Return whether all speech has been played and the last utterance has ended.

        The peer's reports decide. One that is overdue by more than a second is taken for lost.
        """
        if self._words.open is not None or self.lead_s(now) > 0:
            return False
        return self._has_played_all(now)

    def _has_played_all(self, now: float) -> bool:
        return not self._pending_marks or now - self._dry_at > MAX_REPORT_DELAY_S

    def _fill(self, out: list[PeerCommand]) -> None:
        """Send silence, if there is no speech to send."""
        if self._paused or self._is_held or len(self._ready) >= self._min_bytes:
            return
        self._send_audio(self._silence, out)
        self._sent += len(self._silence) // 2
        self._filled += len(self._silence) // 2
        self._marked = self._sent

    def _send_audio(self, pcm: bytes, out: list[PeerCommand]) -> None:
        if self.background is not None:
            pcm = self.background.mix(pcm)
        out.append(PeerMedia(pcm))
        self._history += pcm

    def _rewind_background(self, position: int) -> None:
        if self.background is not None:
            self.background.rewind(self._sent - position)

    def _drop_silence(self, position: int, now: float, out: list[PeerCommand]) -> int:
        """Have the peer drop the silence that it still holds, and return the listener's position.

        Not before it has reported all speech, or its report is overdue: some may still be queued.
        """
        self._filled = 0
        if position >= self._sent or not self._has_played_all(now):
            return position
        out.append(PeerClear())
        self._rewind_background(position)
        self._played, self._played_at = self._sent, now
        return self._sent

    @property
    def _end(self) -> int:
        return self._sent + len(self._ready) // 2

    def _position(self, now: float) -> int:
        elapsed = max(0.0, now - self._played_at)
        if elapsed * self._sample_rate >= self._sent - self._played:
            return self._sent
        return self._played + int(elapsed * self._sample_rate)

    def _sendable(self, position: int) -> int:
        if self._paused or self._is_held:
            return 0
        room = 2 * max(0, self._max_ahead - (self._sent - position))
        until_mark = 2 * (self._mark_every - (self._sent - self._marked))
        size = min(len(self._ready), max(until_mark, self._min_bytes))
        if len(self._ready) - size < self._min_bytes:  # the rest is too short for a message of its own
            if self._words.open is None:
                size = len(self._ready)
            elif self._packet_bytes < self._min_bytes and position < self._sent - self._enough_held:
                return 0  # the end of the utterance may still join it
        size -= size % self._packet_bytes
        if not self._min_bytes <= size <= room:
            return 0  # later, in one piece: each message costs as much as a long one
        return size

    def _pad(self) -> None:
        """Fill up the end of an utterance with silence, to whole packets and a message at least."""
        if self._ready:
            size = max(len(self._ready), self._min_bytes)
            self._ready += bytes(size + -size % self._packet_bytes - len(self._ready))

    def _request_mark(self) -> list[PeerMark]:
        self._marked = self._sent
        if not self._reports_marks:
            return []
        self._requested_marks += 1
        report = _PendingMark(f"m{self._requested_marks}", self._sent)
        self._pending_marks.append(report)
        return [PeerMark(report.name)]

    def _count_dry(self, now: float) -> None:
        utterance = self._words.open
        if self._is_held or utterance is None or self._awaits_text or self._sent <= utterance.begin:
            return  # silence between utterances, before the first audio of one, or while its text is written
        if self._dry_since is None:
            self._dry_since = now
        elif now - self._dry_since > UNDERRUN_AFTER_S:
            self._underruns += 1
            self._dry_since = inf  # counted

    def _drop_queue(self, now: float) -> None:
        # A peer that has not reported its last mark may be behind the estimated position.
        if self._sent > self._position(now) or self._pending_marks:
            self._control.append(PeerClear())
            self._paused = False  # its queue is empty now
            self._rewind_background(self._position(now))
        self._sent = self._played = self._marked = self._end
        self._filled = 0
        self._played_at = now
        self._ready.clear()
        self._history.clear()
        self._resampler.reset()
        self._pending_marks.clear()
