"""Interface between a call and its media, which may be in another process.

    control (agents, APIs, engine)   --push, finish, discard-->   media (socket, playout, speech detection)
                                     <--words heard, cut, keys--

``paced_media.PacedMedia`` implements it in the caller's thread, ``servers.remote_media.RemoteMedia`` over a
link to a media server. Answers may therefore come during the call of a method or later, always in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ...tts_engine.chunk import AudioChunk
from ..playback.background import Awaited
from ..playback.heard_words import DiscardResult, HeardMark, HeardWord
from ..playback.playout import PlayoutStats


@dataclass(frozen=True, slots=True)
class CallerAudioOptions:
    """What is done with the caller's audio."""

    detects_speech: bool = False
    speech_discards: bool = False  # the caller's speech discards what is playing; needs ``detects_speech``
    is_forwarded: bool = False  # to ``MediaListener.on_caller_audio``


@dataclass(frozen=True, slots=True)
class MediaReport:
    """State of the media of one call, sent at least once a second and at the end of the call."""

    stats: PlayoutStats = field(default_factory=PlayoutStats)
    dropped: int = 0  # packets that the peer did not take in time
    pushes: int = 0  # chunks received so far
    runs_dry_at: float = 0.0  # monotonic seconds at which the queued speech will have been played
    at: float = 0.0  # monotonic seconds of the report

    def followed_by(self, later: "MediaReport") -> "MediaReport":
        """Return ``later`` with the packets of this report, which another media server sent, counted too."""
        return replace(later, stats=self.stats + later.stats, dropped=self.dropped + later.dropped)


@dataclass(frozen=True, slots=True)
class RecordedAudio:
    """Audio of one side of a call, for its recording."""

    pcm: bytes  # s16le mono
    sample_rate: int  # Hz
    at: float  # monotonic seconds at which it was sent or received
    from_caller: bool
    drops_later: bool = False  # the peer drops what it was sent and has not played by then


class MediaListener(Protocol):
    """Receives what happens on a call. The methods run on the loop of the call and must not block."""

    def on_words_heard(self, words: Sequence[HeardWord | HeardMark]) -> None:
        """Words whose middle has been sent to the caller, and marks whose place has, in order."""

    def on_played(self, pushes: int) -> None:
        """All speech of the first ``pushes`` chunks has been sent, and its utterances have ended."""

    def on_discarded(self, result: DiscardResult, *, requested: bool) -> None:
        """Speech was discarded: by ``CallMedia.discard`` (``requested``), or because the caller spoke."""

    def on_caller_speech(self, speaking: bool) -> None:
        """The caller began or stopped to speak."""

    def on_caller_audio(self, pcm: bytes, sample_rate: int) -> None:
        """Audio of the caller: s16le mono."""

    def on_recorded(self, audio: RecordedAudio) -> None:
        """Audio of either side, while the call is recorded."""

    def on_key(self, digit: str) -> None:
        """The caller pressed a key."""

    def on_report(self, report: MediaReport) -> None:
        """The state of the media."""


class CallMedia(Protocol):
    """Plays the speech of one call, and reports to its listener. Times are monotonic seconds."""

    @property
    def sample_rate(self) -> int:
        """Rate of the audio sent, Hz."""

    @property
    def report(self) -> MediaReport:
        """The last known state."""

    def set_listener(self, listener: MediaListener) -> None:
        """Report to ``listener`` from now on."""

    def push(self, chunk: AudioChunk, utterance: int) -> None:
        """Queue a chunk of the utterance of that number; the first one begins the utterance."""

    def finish(self) -> None:
        """End the utterance; silence after its speech is no underrun."""

    def discard(self) -> None:
        """Drop the speech that is not yet played; ``on_discarded`` follows."""

    def set_caller_audio(self, options: CallerAudioOptions) -> None:
        """Set what is done with the caller's audio."""

    def set_held(self, held: bool) -> None:
        """Stop the speech, because nobody hears it, or go on with it at a word's beginning."""

    def set_awaited(self, awaited: Awaited) -> None:
        """Set the cause of the next silence, for the sounds that fill it."""

    def set_recording(self, recorded: bool) -> None:
        """Report all audio of both sides (``on_recorded``), or stop that."""

    def lead_s(self, now: float) -> float:
        """Return the seconds of speech not yet played."""

    def runs_dry_at(self, now: float) -> float:
        """Return the time at which the queued speech will have been played, at least ``now``."""
