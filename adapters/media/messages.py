"""Messages between a call's control and a media server. Times are monotonic seconds of one machine.

``call`` is the number that control gave the call. Control pushes speech ahead; the media server plays it and
reports. A call ends with CallClosed, after which its number is not used again.
"""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from ...tts_engine.chunk import AudioChunk
from ..playback.background import Awaited, BackgroundSounds
from ..playback.heard_words import DiscardResult, HeardMark, HeardWord
from .call_media import CallerAudioOptions, MediaReport, RecordedAudio
from .paced_media import TICKS_PER_REPORT
from .phone_wire import PhoneWire


@dataclass(frozen=True, slots=True)
class PhoneCallOptions:
    """How a phone call is served."""

    sample_rate: int  # Hz of the audio sent
    stalled_s: float  # as in ``AudioSocketTimeouts``
    report_ticks: int = TICKS_PER_REPORT  # packets from one CallReport to the next
    silent_s: float | None = None  # without any packet of the caller; None: unlimited
    max_assumed_s: float = inf  # time after a report for which control assumes that speech is played on time


class WireOpening(Protocol):
    """A wire that a media server opens; it is pickled, and the socket comes with it."""

    def open(
        self,
        options: PhoneCallOptions,
        sock: socket.socket,
        report: Callable[[str], None],
        now: Callable[[], float],
    ) -> PhoneWire:
        """Return the wire, which owns the socket; raises OSError.

        report: takes a sentence for the log about a fault of the peer that does not end the call.
        """

    def reopened(self) -> "WireOpening":
        """Return the opening for another media server, after the first one has died."""


# Control to media


@dataclass(frozen=True, slots=True)
class SetSounds:
    """Have the calls that are opened later play these sounds. Sent before any call is opened."""

    sounds: BackgroundSounds


@dataclass(frozen=True, slots=True)
class OpenPhoneCall:
    """Serve a call, whose socket's descriptor comes with the message."""

    call: int
    wire: WireOpening
    options: PhoneCallOptions
    socket: tuple[int, int]  # ``link.socket_identity`` of the call's; a descriptor of another one is refused


@dataclass(frozen=True, slots=True)
class PushSpeech:
    """Play a chunk after the speech that is queued."""

    call: int
    chunk: AudioChunk
    utterance: int
    known_discards: int  # by the media server that control knew of; with fewer than there were it is dropped


@dataclass(frozen=True, slots=True)
class FinishSpeech:
    """The utterance has no more speech."""

    call: int


@dataclass(frozen=True, slots=True)
class DiscardSpeech:
    """Drop the speech that is not yet played."""

    call: int


@dataclass(frozen=True, slots=True)
class SetCallerAudio:
    """Change what is done with the caller's audio."""

    call: int
    options: CallerAudioOptions


@dataclass(frozen=True, slots=True)
class SetRecording:
    """Report all audio of the call, or stop that."""

    call: int
    recorded: bool


@dataclass(frozen=True, slots=True)
class ChangeWire:
    """Go on with another opening on the same socket: the peer changed its address or encoding."""

    call: int
    wire: WireOpening


@dataclass(frozen=True, slots=True)
class SetHeld:
    """Stop the speech, because nobody hears it, or go on with it."""

    call: int
    held: bool


@dataclass(frozen=True, slots=True)
class SetAwaited:
    """Fill the next silence with the sound for its cause."""

    call: int
    awaited: Awaited


@dataclass(frozen=True, slots=True)
class SendKeys:
    """Press keys of the far end: ``0-9 * # A-D``."""

    call: int
    digits: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """End the call."""

    call: int
    reason: str


CallMessage = (
    PushSpeech
    | FinishSpeech
    | DiscardSpeech
    | SetCallerAudio
    | SetRecording
    | SetHeld
    | SetAwaited
    | ChangeWire
    | SendKeys
    | HangUp
)
ControlMessage = SetSounds | OpenPhoneCall | CallMessage

# Media to control

READY_PERIOD_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class MediaReady:
    """The media server takes calls. Sent once it does, and then every READY_PERIOD_S while it has calls."""


@dataclass(frozen=True, slots=True)
class WordsHeard:
    """Words and marks were heard."""

    call: int
    words: tuple[HeardWord | HeardMark, ...]


@dataclass(frozen=True, slots=True)
class SpeechPlayed:
    """All speech of the first ``pushes`` chunks has been played."""

    call: int
    pushes: int


@dataclass(frozen=True, slots=True)
class SpeechCut:
    """Speech was discarded, as control asked (``requested``) or because the caller spoke."""

    call: int
    result: DiscardResult
    requested: bool


@dataclass(frozen=True, slots=True)
class CallerSpeech:
    """The caller began or stopped to speak."""

    call: int
    speaking: bool


@dataclass(frozen=True, slots=True)
class ReceivedAudio:
    """Audio of the caller, s16le mono."""

    call: int
    pcm: bytes
    sample_rate: int  # Hz


@dataclass(frozen=True, slots=True)
class AudioRecorded:
    """Audio of a call that is recorded."""

    call: int
    audio: RecordedAudio


@dataclass(frozen=True, slots=True)
class ReceivedKey:
    """The caller pressed a key."""

    call: int
    digit: str


@dataclass(frozen=True, slots=True)
class CallReport:
    """State of the call's media, every ``PhoneCallOptions.report_ticks``."""

    call: int
    report: MediaReport


@dataclass(frozen=True, slots=True)
class CallProblem:
    """Something for the log: an error of the caller's program, or of this one (with its traceback)."""

    call: int
    text: str
    is_internal: bool


@dataclass(frozen=True, slots=True)
class CallClosed:
    """The call is over."""

    call: int
    reason: str
    report: MediaReport


MediaMessage = (
    MediaReady
    | WordsHeard
    | SpeechPlayed
    | SpeechCut
    | CallerSpeech
    | ReceivedAudio
    | AudioRecorded
    | ReceivedKey
    | CallReport
    | CallProblem
    | CallClosed
)
