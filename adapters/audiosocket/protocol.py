"""Asterisk's AudioSocket as bytes and events: both sides of one call, without I/O.

A TCP connection is one call. Whoever dials (Asterisk, or our phone) sends the call's id first, then audio and
keys; the server sends audio. A message is a kind, a big-endian length and a payload:

    0       1               3
    | kind  | length        | payload ...
    0x00 hang up   0x01 call id (16)   0x03 key (1)   0x10-0x18 audio (s16le mono)   0xff error (0-1)

``AudioSocketConnection`` has wsproto's verbs: ``receive_data``, ``events``, ``send``. Not here: sockets, clocks (ask
``in_message`` when a deadline should run), pacing, logging.

Source: res_audiosocket.c, app_audiosocket.c and chan_audiosocket.c of Asterisk 23.4.1, read and measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from types import MappingProxyType
from typing import Final, NoReturn, assert_never
from uuid import UUID

import numpy as np

from ...tts_engine.errors import VivavoceError

SAMPLE_RATE_OF_KIND: Final[Mapping[int, int]] = MappingProxyType(
    {
        0x10: 8_000,
        0x11: 12_000,
        0x12: 16_000,
        0x13: 24_000,
        0x14: 32_000,
        0x15: 44_100,
        0x16: 48_000,
        0x17: 96_000,
        0x18: 192_000,
    }
)
DIGITS: Final = frozenset("0123456789ABCDabcd*#!")  # "!" is a hook flash
# Asterisk kills a call whose payload comes 5 ms after its header, so a message must fit one TCP segment.
MAX_SENT_BYTES: Final = 1_400
MAX_RECEIVED_AUDIO_S: Final = 1.0  # of audio in one message; Asterisk sends what its phone does, 10-60 ms
MAX_UNREAD_BYTES: Final = 1 << 20  # received, with the events not taken

_KIND_OF_RATE: Final[Mapping[int, int]] = MappingProxyType(
    {sample_rate: kind for kind, sample_rate in SAMPLE_RATE_OF_KIND.items()}
)
_HEADER: Final = Struct("!BH")
_G711_MESSAGE_BYTES: Final = 160  # 20 ms at one byte a sample; as s16le it would be 10 ms
_G711_DECISION_SCORE: Final = 5  # messages until the G.711 trap is called


class AudioSocketProtocolError(VivavoceError):
    """The peer broke the protocol; the message says what was got and what is allowed."""


@dataclass(frozen=True, slots=True)
class CallId:
    """The first message of a call: who it is. Asterisk passes the UUID of the dial plan and nothing else."""

    uuid: UUID


@dataclass(frozen=True, slots=True)
class AudioSocketAudio:
    """Speech, s16le mono at ``sample_rate`` Hz. ValueError for another rate, no sample or part of one."""

    sample_rate: int
    payload: bytes

    def __post_init__(self) -> None:
        if self.sample_rate not in _KIND_OF_RATE:
            raise ValueError(
                f"got {self.sample_rate} Hz; AudioSocket has {', '.join(map(str, _KIND_OF_RATE))}"
            )
        if len(self.payload) % 2 or not self.payload:
            raise ValueError(
                f"got {len(self.payload)} bytes of audio; it must be whole 16-bit samples, and some"
            )


@dataclass(frozen=True, slots=True)
class Dtmf:
    """A key of the caller's phone. ValueError for what is no key."""

    digit: str

    def __post_init__(self) -> None:
        if self.digit not in DIGITS:
            raise ValueError(f"got key {self.digit!r}; keys are 0-9, *, #, A-D and ! for a hook flash")


@dataclass(frozen=True, slots=True)
class Hangup:
    """The end of the call; ``receive_eof`` becomes one too, for Asterisk hangs up by closing."""


@dataclass(frozen=True, slots=True)
class AudioSocketError:
    """Asterisk failed: 1 its caller hung up, 2 audio was not forwarded, 4 no memory; 0 without a code."""

    code: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.code <= 255:
            raise ValueError(f"got error code {self.code}; it must fit one byte")


@dataclass(frozen=True, slots=True)
class MislabelledG711:
    """What the peer labels as 16-bit audio is raw G.711: noise to the ear. Told once a call, never sent."""

    @property
    def advice(self) -> str:
        """What to change, and where."""
        return (
            "Asterisk sends raw G.711 labelled as 16-bit audio (160-byte messages of kind 0x10): "
            "name the format in the dial plan, Dial(AudioSocket/host:port/uuid/c(slin))"
        )


AudioSocketMessage = CallId | AudioSocketAudio | Dtmf | Hangup | AudioSocketError
AudioSocketEvent = AudioSocketMessage | MislabelledG711


@dataclass(frozen=True, slots=True)
class _MessageKind:
    event: type[AudioSocketMessage]
    lengths: range  # of the payload, bytes
    allowed: str


def _audio_kind(sample_rate: int) -> _MessageKind:
    max_bytes = min(int(sample_rate * MAX_RECEIVED_AUDIO_S) * 2, 65_534)
    return _MessageKind(AudioSocketAudio, range(2, max_bytes + 1, 2), f"2 to {max_bytes}, an even number")


_KINDS: Final[Mapping[int, _MessageKind]] = MappingProxyType(
    {
        0x00: _MessageKind(Hangup, range(0, 1), "0"),
        0x01: _MessageKind(CallId, range(16, 17), "16"),
        0x03: _MessageKind(Dtmf, range(1, 2), "1"),
        0xFF: _MessageKind(AudioSocketError, range(0, 2), "0 or 1"),
    }
    | {kind: _audio_kind(sample_rate) for kind, sample_rate in SAMPLE_RATE_OF_KIND.items()}
)


class AudioSocketRole(Enum):
    """A side of the connection."""

    CALLER = "caller"  # dials and says the call's id: Asterisk, or our phone
    SERVER = "server"  # is dialled: us


class AudioSocketState(Enum):
    """What one side has said so far."""

    NEW = "before the call id"
    OPEN = "in the call"
    ENDED = "after the end of the call"


# By who sends. A server has no 0x01, 0x03 or 0xff: Asterisk hangs up on each of them.
TRANSITIONS: Final[
    Mapping[AudioSocketRole, Mapping[AudioSocketState, Mapping[type[AudioSocketMessage], AudioSocketState]]]
] = MappingProxyType(
    {
        AudioSocketRole.CALLER: {
            AudioSocketState.NEW: {CallId: AudioSocketState.OPEN, Hangup: AudioSocketState.ENDED},
            AudioSocketState.OPEN: {
                AudioSocketAudio: AudioSocketState.OPEN,
                Dtmf: AudioSocketState.OPEN,
                AudioSocketError: AudioSocketState.OPEN,
                Hangup: AudioSocketState.ENDED,
            },
            AudioSocketState.ENDED: {},
        },
        AudioSocketRole.SERVER: {
            AudioSocketState.OPEN: {AudioSocketAudio: AudioSocketState.OPEN, Hangup: AudioSocketState.ENDED},
            AudioSocketState.ENDED: {},
        },
    }
)


class _SideState:
    # What one side has said and may say.

    def __init__(self, role: AudioSocketRole) -> None:
        self.role = role
        self.state = AudioSocketState.NEW if role is AudioSocketRole.CALLER else AudioSocketState.OPEN
        self.may_send = TRANSITIONS[role][self.state]

    def record_sent(self, event: type[AudioSocketMessage]) -> None:
        state = self.may_send[event]
        if state is not self.state:
            self.state = state
            self.may_send = TRANSITIONS[self.role][state]

    def transition_error(self, event: type[AudioSocketMessage]) -> str:
        return f"a {self.role.value} must not send {event.__name__} {self.state.value}"


class AudioSocketConnection:
    """One call, seen from ``role``: the peer's bytes become events, our events become bytes.

    After each ``receive_data`` or ``receive_eof`` take every event of ``events()``; then at most one message,
    not yet complete, is held.
    """

    def __init__(self, role: AudioSocketRole) -> None:
        self._own_side = _SideState(role)
        self._peer_side = _SideState(
            AudioSocketRole.SERVER if role is AudioSocketRole.CALLER else AudioSocketRole.CALLER
        )
        self._buffer = bytearray()
        self._offset = 0  # what is before it has become events
        self._eof = False
        self._failure = ""
        self._g711_detector = _G711Detector() if role is AudioSocketRole.SERVER else None

    @property
    def in_message(self) -> bool:
        """Whether a message has begun and not ended: if it lasts, the peer has stalled."""
        return len(self._buffer) > self._offset

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the peer, in any split; ValueError after 1 MiB of which no events were taken."""
        if self._failure:
            return
        del self._buffer[: self._offset]
        self._offset = 0
        if len(self._buffer) + len(data) > MAX_UNREAD_BYTES:
            raise ValueError(
                f"over {MAX_UNREAD_BYTES} bytes are unread; take events() after each receive_data()"
            )
        self._buffer += data

    def receive_eof(self) -> None:
        """The peer has closed its side: nothing more comes."""
        self._eof = True

    def events(self) -> Iterator[AudioSocketEvent]:
        """Yield what the bytes received so far say.

        Raises ProtocolError at the first message that breaks the protocol, after all events before it, and
        again at every later call; what comes behind it is dropped.
        """
        if self._failure:
            raise AudioSocketProtocolError(self._failure)
        buffer = self._buffer
        while len(buffer) - self._offset >= _HEADER.size:
            kind, length = _HEADER.unpack_from(buffer, self._offset)
            begin = self._offset + _HEADER.size
            self._check(kind, length)
            if len(buffer) < begin + length:
                break
            self._offset = begin + length
            event = self._parse(kind, bytes(memoryview(buffer)[begin : self._offset]))
            self._peer_side.record_sent(type(event))
            yield event
            if self._g711_detector is not None and isinstance(event, AudioSocketAudio):
                yield from self._check_for_g711(self._g711_detector, event)
        if self._eof and self._peer_side.state is not AudioSocketState.ENDED:
            yield self._end()

    def send(self, event: AudioSocketMessage) -> bytes:
        """Return the bytes of ``event``, header and payload in one: write them at once, or not at all.

        Raises ValueError for what would kill the call or is not ours to say now; nothing has changed then.
        """
        if type(event) not in self._own_side.may_send:
            raise ValueError(self._own_side.transition_error(type(event)))
        message = encode(event)
        self._own_side.record_sent(type(event))
        return message

    def _check(self, kind: int, length: int) -> None:
        message_kind = _KINDS.get(kind)
        if message_kind is None:
            self._fail(f"got kind {kind:#04x} of {length} bytes; kinds are 0x00, 0x01, 0x03, 0x10-0x18, 0xff")
        if message_kind.event not in self._peer_side.may_send:
            self._fail(self._peer_side.transition_error(message_kind.event))
        if length not in message_kind.lengths:
            self._fail(
                f"got {message_kind.event.__name__} ({kind:#04x}) with {length} bytes; allowed: {message_kind.allowed}"
            )

    def _parse(self, kind: int, payload: bytes) -> AudioSocketMessage:
        sample_rate = SAMPLE_RATE_OF_KIND.get(kind)
        if sample_rate is not None:
            return AudioSocketAudio(sample_rate, payload)
        match kind:
            case 0x00:
                return Hangup()
            case 0x01:
                return CallId(UUID(bytes=payload))
            case 0x03 if payload.decode("latin-1") in DIGITS:
                return Dtmf(payload.decode("latin-1"))
            case 0x03:
                self._fail(f"got key {payload!r}; keys are 0-9, *, #, A-D and ! for a hook flash")
            case _:
                return AudioSocketError(int.from_bytes(payload))

    def _check_for_g711(
        self, detector: "_G711Detector", audio: AudioSocketAudio
    ) -> Iterator[MislabelledG711]:
        verdict = detector.verdict(audio)
        if verdict is None:
            return
        self._g711_detector = None
        if verdict is PayloadEncoding.COMPANDED:
            yield MislabelledG711()

    def _end(self) -> Hangup:
        unparsed_bytes = len(self._buffer) - self._offset
        if unparsed_bytes:
            self._fail(f"the connection closed inside a message, after {unparsed_bytes} bytes of it")
        self._peer_side.record_sent(Hangup)
        return Hangup()

    def _fail(self, reason: str) -> NoReturn:
        self._failure = reason
        self._buffer.clear()
        raise AudioSocketProtocolError(reason)


def encode(event: AudioSocketMessage) -> bytes:
    """Return the bytes of one message, whatever the state of a call; ValueError for what would kill it."""
    match event:
        case AudioSocketAudio(sample_rate, payload):
            if len(payload) > MAX_SENT_BYTES:
                raise ValueError(
                    f"got {len(payload)} bytes of audio; at most {MAX_SENT_BYTES} reach Asterisk in one piece"
                )
            return _HEADER.pack(_KIND_OF_RATE[sample_rate], len(payload)) + payload
        case CallId(uuid):
            return _HEADER.pack(0x01, 16) + uuid.bytes
        case Dtmf(digit):
            return _HEADER.pack(0x03, 1) + digit.encode("ascii")
        case Hangup():
            return _HEADER.pack(0x00, 0)
        case AudioSocketError(code):
            return _HEADER.pack(0xFF, 1) + bytes((code,))
        case _:
            assert_never(event)


class PayloadEncoding(Enum):
    """What the bytes of a message look like."""

    LINEAR = "16-bit samples"
    COMPANDED = "one byte a sample, G.711"


def guess_encoding(payload: bytes) -> PayloadEncoding | None:
    """Tell G.711 from 16-bit audio by a message's bytes; None for near-silence, which is either.

    In 16-bit audio the high bytes of neighbours are alike and the low bytes are noise; in G.711 every byte is
    a sample, so that odd and even places look the same.
    """
    if payload == payload[:1] * len(payload):
        return None if payload[0] == 0 else PayloadEncoding.COMPANDED  # silence is 0xff, 0x7f, 0xd5 or 0x55
    if np.abs(np.frombuffer(payload, "<i2").astype(np.int32)).max() < 256:
        return None
    places = np.frombuffer(payload, np.int8).astype(np.int32).reshape(-1, 2)
    low, high = np.abs(np.diff(places, axis=0)).mean(axis=0)
    return PayloadEncoding.LINEAR if high < 0.6 * low else PayloadEncoding.COMPANDED


class _G711Detector:
    # Dial(AudioSocket/...) without c() on a G.711 call. Genuine 16-bit audio of a 10 ms phone is as long.

    def __init__(self) -> None:
        self._score = 0

    def verdict(self, audio: AudioSocketAudio) -> PayloadEncoding | None:
        """What the call is, once that is clear; do not ask again after an answer."""
        if audio.sample_rate != 8_000 or len(audio.payload) != _G711_MESSAGE_BYTES:
            return PayloadEncoding.LINEAR
        match guess_encoding(audio.payload):
            case PayloadEncoding.COMPANDED:
                self._score += 1
            case PayloadEncoding.LINEAR:
                self._score -= 1
        if abs(self._score) < _G711_DECISION_SCORE:
            return None
        return PayloadEncoding.COMPANDED if self._score > 0 else PayloadEncoding.LINEAR
