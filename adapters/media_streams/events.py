"""Events of a media stream: what any of the wires reports about its call."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...tts_engine.errors import VivavoceError
from .peer_playout import MAX_AHEAD_S
from .stream_format import StreamFormat


class MediaStreamProtocolError(VivavoceError):
    """The peer of a media stream violated its protocol."""


@dataclass(frozen=True, slots=True)
class StreamStarted:
    """The call and the format of its audio, in both directions. Texts are "" where the wire has none."""

    call_id: str
    format: StreamFormat
    packet_ms: int = 20  # unit in which speech is sent
    min_media_ms: int = 0  # the least speech that a message may have
    max_ahead_s: float = MAX_AHEAD_S  # speech that the peer may hold
    reports_marks: bool = True  # else what was heard is known from time alone
    fills_pauses: bool = False  # whether the peer needs silence between utterances, as it sends none itself
    number: str = ""  # of the caller
    name: str = ""  # of the caller
    called: str = ""  # the number that was called
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StreamAudio:
    """Audio of the caller, s16le mono, whole samples."""

    pcm: bytes
    sample_rate: int  # Hz


@dataclass(frozen=True, slots=True)
class StreamMark:
    """The peer has played the audio before a mark, or has dropped the mark."""

    name: str


@dataclass(frozen=True, slots=True)
class StreamKey:
    """A key of the caller's phone: one of ``0-9 * # A-D``."""

    digit: str


@dataclass(frozen=True, slots=True)
class StreamPaused:
    """The peer's queue is full."""


@dataclass(frozen=True, slots=True)
class StreamResumed:
    """The peer takes speech again."""


@dataclass(frozen=True, slots=True)
class StreamWarning:
    """An error that the peer reports about our messages; the call goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class StreamStopped:
    """The caller hung up, or the peer ended the stream."""


StreamEvent = (
    StreamStarted
    | StreamAudio
    | StreamMark
    | StreamKey
    | StreamPaused
    | StreamResumed
    | StreamWarning
    | StreamStopped
)
