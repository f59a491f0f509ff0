"""What every way to a listener is to those who speak on it, whoever owns the playout.

Three owners. We pace: AudioSocket, WebRTC, RTP (``playout.Playout``; a discard drops our queue). The peer
paces and reports marks: Asterisk's chan_websocket drops pending marks with its queue, Twilio-like streams
echo them (``peer_playout.PeerPlayout`` for both; a discard tells the peer to drop its own).
"""

from typing import Protocol

from ...tts_engine.chunk import AudioChunk
from .heard_words import DiscardResult, HeardWord


class Transport(Protocol):
    """Speech in; what was heard, and how much is left to hear, out. Times are monotonic seconds."""

    @property
    def paced_by_peer(self) -> bool:
        """Whether the peer holds a queue and plays it at its own pace."""

    @property
    def sample_rate(self) -> int:
        """Of what is sent, Hz."""

    def push(self, chunk: AudioChunk) -> None:
        """Queue a chunk behind what is there."""

    def mark(self, name: str) -> None:
        """Name the end of what was pushed so far; ``take_reached_marks`` tells when it has been played."""

    def finish(self) -> None:
        """End the utterance: nothing more of it comes."""

    def discard(self, now: float) -> DiscardResult:
        """Barge-in: drop what is not yet played, marks included, and say what was cut and what was heard."""

    def take_heard_words(self) -> tuple[HeardWord, ...]:
        """The words heard since this was last asked."""

    def take_reached_marks(self) -> tuple[str, ...]:
        """The marks played since this was last asked, in order; a discarded mark is never told."""

    def lead_s(self, now: float) -> float:
        """Seconds of speech not yet played."""

    def runs_dry_at(self, now: float) -> float:
        """When the listener has nothing left to hear; ``now`` if that is so now."""
