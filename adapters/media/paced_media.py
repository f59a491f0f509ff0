"""Media of one call in the thread of its socket: paces the speech, detects the caller's.

``tick`` sends what is due and reports what was heard. The connection belongs to the owner: ``send`` takes the
packets, and the owner passes on the audio and the keys that it receives. ``peer_paced_media`` derives the
media of a peer that paces itself.
"""

from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from ...tts_engine.chunk import AudioChunk
from ..echo_filter import ECHO_RATE, EchoFilter
from ..playback.background import Awaited
from ..playback.heard_words import DiscardResult
from ..playback.transport import Transport
from .call_media import CallerAudioOptions, MediaListener, MediaReport, RecordedAudio

Packet = TypeVar("Packet")

TICKS_PER_REPORT: Final = 50  # once a second; reading the counters costs more than sending a packet


class ActivityChange(Protocol):
    """A beginning or an end of speech."""

    @property
    def speaking(self) -> bool:
        """Whether speech began."""


class SpeechDetector(Protocol):
    """Detects speech in the caller's audio (``adapters.voice_activity``)."""

    def push(self, pcm: bytes, sample_rate: int) -> Sequence[ActivityChange]:
        """Take s16le mono audio; return where speech began or ended in it."""


class PacedMedia(Generic[Packet]):
    """Implements ``CallMedia`` for a connection of this thread.

    Args:
        playout: decides which packets are due.
        send: takes one packet (s16le, or a command to the peer); must not block.
        now: monotonic seconds.
        drop_unsent: drops packets that were sent and have not left; called at each discard.
        dropped: counts the packets that the peer did not take in time.
        detector: of the caller's speech; None: speech is not detected.
        echo: of our voice in the caller's audio, for the detector; None: the peer removes it, as browsers do.
        report_ticks: ticks from one report to the next.
    """

    def __init__(
        self,
        playout: Transport[Packet],
        send: Callable[[Packet], None],
        *,
        now: Callable[[], float],
        drop_unsent: Callable[[], None] = lambda: None,
        dropped: Callable[[], int] = lambda: 0,
        detector: SpeechDetector | None = None,
        echo: EchoFilter | None = None,
        report_ticks: int = TICKS_PER_REPORT,
    ) -> None:
        self._report_ticks = report_ticks
        self.playout = playout
        self._send = send
        self._now = now
        self._drop_unsent = drop_unsent
        self._dropped = dropped
        self._detector = detector
        self._echo = echo
        self._listener: MediaListener
        self._caller_audio = CallerAudioOptions()
        self._is_recorded = False
        self._pushes = 0
        self._played_pushes = 0  # reported by ``on_played``
        self._ticks = 0

    @property
    def sample_rate(self) -> int:
        """Rate of the packets, Hz."""
        return self.playout.sample_rate

    @property
    def report(self) -> MediaReport:
        """The state now."""
        now = self._now()
        runs_dry_at = self.playout.runs_dry_at(now)
        return MediaReport(self.playout.stats, self._dropped(), self._pushes, runs_dry_at, now)

    def set_listener(self, listener: MediaListener) -> None:
        """Report to ``listener`` from now on."""
        self._listener = listener

    def close(self) -> None:
        """Forget the listener; call nothing after it.

        The listener has this object too. As a cycle both would stay until the garbage collector comes to old
        objects, which it then frees for hundreds of ended calls at once, while all others wait.
        """
        del self._listener

    # Speech

    def push(self, chunk: AudioChunk, utterance: int) -> None:
        """Queue a chunk; raises ValueError if more than 120 s of speech would be queued."""
        self._pushes += 1
        self.playout.push(chunk, utterance=utterance)

    def skip(self) -> None:
        """Count a chunk that is not played, because the caller interrupted before it arrived."""
        self._pushes += 1

    def finish(self) -> None:
        """End the utterance."""
        self.playout.finish()

    def discard(self) -> None:
        """Drop the speech that is not yet played."""
        self._discard(requested=True)

    def lead_s(self, now: float) -> float:
        """Return the seconds of speech not yet played."""
        return self.playout.lead_s(now)

    def runs_dry_at(self, now: float) -> float:
        """Return the time at which the queued speech will have been played, at least ``now``."""
        return self.playout.runs_dry_at(now)

    def tick(self, now: float) -> None:
        """Send the packets due at ``now`` (monotonic s), and report."""
        self._send_due(now)
        self._report_words()
        if self._played_pushes < self._pushes and self.playout.is_idle(now):
            self._played_pushes = self._pushes
            self._listener.on_played(self._pushes)
        self._ticks += 1
        if self._ticks % self._report_ticks == 0:
            self._listener.on_report(self.report)

    # The caller

    def set_caller_audio(self, options: CallerAudioOptions) -> None:
        """Set what is done with the caller's audio."""
        self._caller_audio = options

    def set_held(self, held: bool) -> None:
        """Stop the speech, because nobody hears it, or go on with it at a word's beginning."""
        now = self._now()
        if held:
            self.playout.hold(now)
        else:
            self.playout.release(now)
        self._send_due(now)
        self._report_words()

    def set_awaited(self, awaited: Awaited) -> None:
        """Set the cause of the next silence, for the sounds that fill it."""
        if self.playout.background is not None:
            self.playout.background.set_awaited(awaited)

    def set_recording(self, recorded: bool) -> None:
        """Report all audio of both sides, or stop that."""
        self._is_recorded = recorded

    def receive_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Take s16le mono audio of the caller."""
        options = self._caller_audio
        if options.detects_speech and self._detector is not None:
            for change in self._detector.push(*self._without_echo(pcm, sample_rate)):
                if self.playout.background is not None:
                    self.playout.background.set_caller_speaks(change.speaking)
                self._listener.on_caller_speech(change.speaking)
                if change.speaking and options.speech_discards:
                    self._discard(requested=False)
        if options.is_forwarded:
            self._listener.on_caller_audio(pcm, sample_rate)
        if self._is_recorded:
            self._listener.on_recorded(RecordedAudio(pcm, sample_rate, self._now(), from_caller=True))

    def press(self, digit: str) -> None:
        """Take a key that the caller pressed: one of ``0-9 * # A-D``."""
        self._listener.on_key(digit)

    def _discard(self, *, requested: bool) -> None:
        self._drop_unsent()
        result = self._cut(self._now())
        self._report_words()
        self._listener.on_discarded(result, requested=requested)

    def _cut(self, now: float) -> DiscardResult:
        return self.playout.discard(now)

    def _send_due(self, now: float) -> None:
        for packet in self.playout.due(now):
            self._send(packet)
            self._note_played(packet)
            if self._is_recorded and (audio := self._recorded(packet, now)) is not None:
                self._listener.on_recorded(audio)

    def _note_played(self, packet: Packet) -> None:
        if self._echo is not None and self._caller_audio.detects_speech:
            assert isinstance(packet, bytes)
            self._echo.play(packet, self.sample_rate)

    def _without_echo(self, pcm: bytes, sample_rate: int) -> tuple[bytes, int]:
        if self._echo is None:
            return pcm, sample_rate
        return self._echo.remove(pcm, sample_rate), ECHO_RATE

    def _recorded(self, packet: Packet, now: float) -> RecordedAudio | None:
        """Return what the recording of the call gets of a packet."""
        assert isinstance(packet, bytes)
        return RecordedAudio(packet, self.sample_rate, now, from_caller=False)

    def _report_words(self) -> None:
        if words := self.playout.take_heard_words():
            self._listener.on_words_heard(words)
