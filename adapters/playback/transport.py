"""Common interface of the playouts, for code that speaks on a call.

- We pace: AudioSocket, WebRTC, RTP (``playout.Playout``). A discard drops our own queue.
- The peer paces and reports marks (``peer_playout.PeerPlayout``). A discard asks the peer to drop its queue;
  Asterisk's chan_websocket drops pending marks with it, Twilio-like streams echo them.
"""

from typing import Protocol

from ...tts_engine.chunk import AudioChunk
from .heard_words import DiscardResult, HeardWord


class Transport(Protocol):
    """Takes speech; reports what was heard and how much is left to play. Times are monotonic seconds."""

    @property
    def paced_by_peer(self) -> bool:
        """Whether the peer keeps a queue and plays it at its own pace."""

    @property
    def sample_rate(self) -> int:
        """Rate of the audio sent, Hz."""

    def push(self, chunk: AudioChunk) -> None:
        """Queue a chunk behind the queued speech."""

    def mark(self, name: str) -> None:
        """Name the end of the pushed speech; ``take_reached_marks`` returns the name once it is played."""

    def finish(self) -> None:
        """End the utterance; the next chunk begins another one."""

    def discard(self, now: float) -> DiscardResult:
        """Barge-in: drop the speech and marks not yet played; return what was dropped and what was heard."""

    def take_heard_words(self) -> tuple[HeardWord, ...]:
        """Return the words heard since the last call."""

    def take_reached_marks(self) -> tuple[str, ...]:
        """Return the marks played since the last call, in order; discarded marks are never returned."""

    def lead_s(self, now: float) -> float:
        """Seconds of speech not yet played."""

    def runs_dry_at(self, now: float) -> float:
        """Return the time at which the queued speech will have been played, at least ``now``."""
