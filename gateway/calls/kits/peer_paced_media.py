"""Media of one call whose peer paces the playout: chan_websocket of Asterisk, media streams of carriers.

Speech is sent as soon as it is rendered, up to what the peer may hold; ``tick`` sends what did not fit. The
peer's reports of marks, and the time between them, tell what was heard. A discard sends the clear at once.
"""

from collections.abc import Callable

from ....adapters.echo_filter import EchoFilter
from ....adapters.media.call_media import RecordedAudio
from ....adapters.media.paced_media import PacedMedia, SpeechDetector
from ....adapters.media_streams.peer_playout import PeerClear, PeerCommand, PeerMedia, PeerPlayout
from ....adapters.playback.heard_words import DiscardResult
from ....tts_engine.chunk import AudioChunk


class PeerPacedMedia(PacedMedia[PeerCommand]):
    """Implements ``CallMedia`` for a connection of this thread to a peer that paces itself.

    Args:
        send: takes one command for the peer; must not block.
        now: monotonic seconds.
        drop_unsent: drops media and marks that were sent and have not left; called at each discard.
        detector: of the caller's speech; None: speech is not detected.
    """

    def __init__(
        self,
        playout: PeerPlayout,
        send: Callable[[PeerCommand], None],
        *,
        now: Callable[[], float],
        drop_unsent: Callable[[], None] = lambda: None,
        detector: SpeechDetector | None = None,
    ) -> None:
        super().__init__(
            playout, send, now=now, drop_unsent=drop_unsent, detector=detector, echo=EchoFilter()
        )
        self._peer_playout = playout

    def push(self, chunk: AudioChunk, utterance: int) -> None:
        """Queue a chunk, and send what the peer may hold."""
        super().push(chunk, utterance)
        self._send_due(self._now())

    def finish(self) -> None:
        """End the utterance, and send its last packet if the peer may hold it."""
        super().finish()
        self._send_due(self._now())

    def mark_played(self, name: str) -> None:
        """Take the peer's report that it has played the audio before a mark."""
        self._peer_playout.mark_played(name, self._now())

    def pause(self) -> None:
        """Send no speech until ``resume``: the peer's queue is full."""
        self._peer_playout.pause()

    def resume(self) -> None:
        """Send speech again."""
        self._peer_playout.resume()

    def receive_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Take s16le mono audio of the caller, and what the peer played meanwhile."""
        if self._echo is not None and self._caller_audio.detects_speech:
            samples = round(len(pcm) / 2 / sample_rate * self.sample_rate)
            self._echo.play(self._peer_playout.played(samples, self._now()), self.sample_rate)
        super().receive_audio(pcm, sample_rate)

    def _note_played(self, packet: PeerCommand) -> None:
        pass  # the peer plays it later

    def _recorded(self, packet: PeerCommand, now: float) -> RecordedAudio | None:
        if isinstance(packet, PeerMedia):
            return RecordedAudio(packet.pcm, self.sample_rate, now, from_caller=False)
        if isinstance(packet, PeerClear):
            return RecordedAudio(b"", self.sample_rate, now, from_caller=False, drops_later=True)
        return None

    def _cut(self, now: float) -> DiscardResult:
        result = super()._cut(now)
        self._send_due(now)  # the clear, before anything else is done
        return result
