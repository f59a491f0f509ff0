"""Common interface of the playouts, for code that speaks on a call.

- We pace: AudioSocket, WebRTC, RTP (``playout.Playout``). A discard drops our own queue.
- The peer paces and reports marks (``media_streams.peer_playout``). A discard asks the peer to drop its
  queue; Asterisk's chan_websocket drops pending marks with it, Twilio-like streams echo them.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from ...tts_engine.chunk import AudioChunk
from .background import BackgroundMixer
from .heard_words import DiscardResult, HeardMark, HeardWord
from .playout import PlayoutStats

Packet_co = TypeVar("Packet_co", covariant=True)


class Transport(Protocol[Packet_co]):
    """Takes speech; reports what was heard and how much is left to play. Times are monotonic seconds."""

    background: BackgroundMixer | None  # None: speech alone is heard

    @property
    def sample_rate(self) -> int:
        """Rate of the audio sent, Hz."""

    @property
    def stats(self) -> PlayoutStats:
        """The counters so far."""

    def push(self, chunk: AudioChunk, *, utterance: int | None = None) -> None:
        """Queue a chunk behind the queued speech, as the first one of the utterance of that number."""

    def due(self, now: float) -> Sequence[Packet_co]:
        """Return what is to be sent now: packets, or commands to the peer."""

    def finish(self) -> None:
        """End the utterance; the next chunk begins another one."""

    def discard(self, now: float) -> DiscardResult:
        """Barge-in: drop the speech not yet played; return what was dropped and what was heard."""

    def hold(self, now: float) -> None:
        """Stop: the listener hears nothing until ``release``, from where speech goes on at a word."""

    def release(self, now: float) -> None:
        """Go on with the speech."""

    def take_heard_words(self) -> tuple[HeardWord | HeardMark, ...]:
        """Return the words and marks of SSML heard since the last call, in order."""

    def lead_s(self, now: float) -> float:
        """Seconds of speech not yet played."""

    def is_idle(self, now: float) -> bool:
        """Return whether all speech has been played and the last utterance has ended."""

    def runs_dry_at(self, now: float) -> float:
        """Return the time at which the queued speech will have been played, at least ``now``."""
