"""Asterisk's AudioSocket protocol as bytes and events: both sides of one call, without I/O.

A TCP connection is one call. The peer that connects (Asterisk, or our test phone) sends the call's id first,
then audio and DTMF digits; the server sends audio. A message is a kind, a big-endian length and a payload:

    0       1               3
    | kind  | length        | payload ...
    0x00 hangup   0x01 call id (16)   0x03 digit (1)   0x10-0x18 audio (s16le mono)   0xff error (0-1)

``AudioSocketConnection`` has wsproto's verbs: ``receive_data``, ``events``, ``send``. It has no clock: while
``in_message`` is true, the caller runs a deadline. It does not pace and does not log.

Source: res_audiosocket.c, app_audiosocket.c and chan_audiosocket.c of Asterisk 23.4.1, read and measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from types import MappingProxyType
from typing import Final, NoReturn, assert_never
from uuid import UUID

from ...tts_engine.errors import VivavoceError

# Hz, by message kind.
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
# Asterisk ends a call whose payload arrives 5 ms after its header, so a message must fit one TCP segment.
MAX_SENT_BYTES: Final = 1_400
MAX_RECEIVED_AUDIO_S: Final = 1.0  # in one message; Asterisk forwards the packets of its phones, 10 to 60 ms
MAX_UNREAD_BYTES: Final = 1 << 20  # received bytes whose events were not taken

_KIND_OF_RATE: Final[Mapping[int, int]] = MappingProxyType(
    {sample_rate: kind for kind, sample_rate in SAMPLE_RATE_OF_KIND.items()}
)
_HEADER: Final = Struct("!BH")
HEADER_BYTES: Final = _HEADER.size
# Of clients that took the port for another one, by the three bytes that they begin with.
_OTHER_PROTOCOLS: Final[Mapping[bytes, str]] = MappingProxyType(
    dict.fromkeys((b"GET", b"HEA", b"POS", b"PUT", b"DEL", b"OPT", b"PAT", b"CON", b"PRI"), "HTTP")
    | dict.fromkeys((b"\x16\x03\x01", b"\x16\x03\x02", b"\x16\x03\x03"), "TLS")
)


class AudioSocketProtocolError(VivavoceError):
    """The peer violated the protocol."""


@dataclass(frozen=True, slots=True)
class CallId:
    """First message of a call: the UUID of the dial plan. Asterisk sends no other data about the caller."""

    uuid: UUID


@dataclass(frozen=True, slots=True)
class AudioSocketAudio:
    """Audio, s16le mono; raises ValueError for a rate without a message kind and for no or half a sample."""

    sample_rate: int
    payload: bytes

    def __post_init__(self) -> None:
        _check_audio(self.sample_rate, self.payload)


@dataclass(frozen=True, slots=True)
class Dtmf:
    """A key pressed on the caller's phone; raises ValueError for a character that is not a DTMF digit."""

    digit: str

    def __post_init__(self) -> None:
        if self.digit not in DIGITS:
            raise ValueError(f"got key {self.digit!r}; keys are 0-9, *, #, A-D and ! for a hook flash")


@dataclass(frozen=True, slots=True)
class Hangup:
    """End of the call. ``receive_eof`` yields one too, because Asterisk hangs up by closing."""


@dataclass(frozen=True, slots=True)
class AudioSocketError:
    """An error of Asterisk: 1 the caller hung up, 2 audio was not forwarded, 4 no memory, 0 no code."""

    code: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.code <= 255:
            raise ValueError(f"got error code {self.code}; it must fit one byte")


AudioSocketMessage = CallId | AudioSocketAudio | Dtmf | Hangup | AudioSocketError


@dataclass(frozen=True, slots=True)
class _MessageKind:
    event: type[AudioSocketMessage]
    lengths: range  # allowed lengths of the payload, bytes
    allowed: str  # the same for error messages


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

    CALLER = "caller"  # connects and sends the call's id: Asterisk, or our test phone
    SERVER = "server"  # accepts the connection


class AudioSocketState(Enum):
    """State of one side, by the messages that it has sent."""

    NEW = "before the call id"
    OPEN = "in the call"
    ENDED = "after the end of the call"


# By sender. A server must not send 0x01, 0x03 or 0xff: Asterisk hangs up on each of them.
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
    # State of one side, and the messages that it may send next.

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
        return f"a {self.role.value} must not send {_message_name(event)} {self.state.value}"


class AudioSocketConnection:
    """One call as seen by ``role``: converts the peer's bytes to events, and our events to bytes.

    After each ``receive_data`` or ``receive_eof``, take every event of ``events()``; the connection then
    holds at most one incomplete message.
    """

    def __init__(self, role: AudioSocketRole) -> None:
        self._own_side = _SideState(role)
        self._peer_side = _SideState(
            AudioSocketRole.SERVER if role is AudioSocketRole.CALLER else AudioSocketRole.CALLER
        )
        self._buffer = bytearray()
        self._offset = 0  # of the first byte not yet parsed
        self._eof = False
        self._failure = ""  # text of the first protocol error

    @property
    def in_message(self) -> bool:
        """Whether an incomplete message has been received; if this lasts, the peer has stalled."""
        return len(self._buffer) > self._offset

    def receive_data(self, data: bytes) -> None:
        """Take bytes from the peer, split anywhere; raises ValueError above 1 MiB without ``events()``."""
        if self._failure:
            return
        del self._buffer[: self._offset]
        self._offset = 0
        if len(self._buffer) + len(data) > MAX_UNREAD_BYTES:
            raise ValueError(
                f"more than {MAX_UNREAD_BYTES} bytes are unread; take events() after each receive_data()"
            )
        self._buffer += data

    def receive_audio(self, data: bytes) -> int | None:
        """Receive ``data`` if it is exactly one audio message; return the sample rate of ``data[3:]``.

        None: it is not, or the stream is not between two messages; pass it to ``receive_data``. This way
        costs a quarter of ``receive_data`` and ``events`` or less, and nearly all data of a call takes it.
        """
        length = len(data) - HEADER_BYTES
        if length < 2 or data[1] << 8 | data[2] != length or self._buffer or self._failure:
            return None
        if self._peer_side.state is not AudioSocketState.OPEN:
            return None
        sample_rate = SAMPLE_RATE_OF_KIND.get(data[0])
        return sample_rate if sample_rate is not None and length in _KINDS[data[0]].lengths else None

    def receive_eof(self) -> None:
        """Note that the peer has closed its side."""
        self._eof = True

    def events(self) -> Iterator[AudioSocketMessage]:
        """Yield the messages received so far.

        Raises AudioSocketProtocolError at the first message that violates the protocol, after the events
        before it, and again at every later call; later messages are dropped.
        """
        if self._failure:
            raise AudioSocketProtocolError(self._failure)
        buffer = self._buffer
        while len(buffer) - self._offset >= HEADER_BYTES:
            kind, length = _HEADER.unpack_from(buffer, self._offset)
            begin = self._offset + HEADER_BYTES
            self._check(kind, length)
            if len(buffer) < begin + length:
                break
            self._offset = begin + length  # before the yield: a caller may stop between two events
            event = self._parse(kind, bytes(memoryview(buffer)[begin : self._offset]))
            self._peer_side.record_sent(type(event))
            yield event
        if self._offset == len(buffer):
            buffer.clear()
            self._offset = 0
        if self._eof and self._peer_side.state is not AudioSocketState.ENDED:
            yield self._end()

    def send(self, event: AudioSocketMessage) -> bytes:
        """Return the bytes of one message, which must be written at once or not at all.

        Raises ValueError, without a change of state, for a message that this side must not send now or
        that would make Asterisk end the call.
        """
        if type(event) not in self._own_side.may_send:
            raise ValueError(self._own_side.transition_error(type(event)))
        message = encode(event)
        self._own_side.record_sent(type(event))
        return message

    def send_audio(self, sample_rate: int, pcm: bytes) -> bytes:
        """Return the bytes of one audio message, and raise, as ``send`` does; it costs less."""
        if AudioSocketAudio not in self._own_side.may_send:
            raise ValueError(self._own_side.transition_error(AudioSocketAudio))
        _check_audio(sample_rate, pcm)
        return _encode_audio(sample_rate, pcm)

    def _check(self, kind: int, length: int) -> None:
        message_kind = _KINDS.get(kind)
        if message_kind is None or message_kind.event not in self._peer_side.may_send:
            self._check_protocol(_HEADER.pack(kind, length))
        if message_kind is None:
            self._fail(f"got kind {kind:#04x} of {length} bytes; kinds are 0x00, 0x01, 0x03, 0x10-0x18, 0xff")
        if message_kind.event not in self._peer_side.may_send:
            self._fail(self._peer_side.transition_error(message_kind.event))
        if length not in message_kind.lengths:
            self._fail(
                f"got {_message_name(message_kind.event)} ({kind:#04x}) with {length} bytes; "
                f"allowed: {message_kind.allowed}"
            )

    def _check_protocol(self, start: bytes) -> None:
        if protocol := _OTHER_PROTOCOLS.get(start):
            self._fail(f"this is {protocol}, but this port speaks Asterisk's AudioSocket")

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

    def _end(self) -> Hangup:
        unparsed_bytes = len(self._buffer) - self._offset
        if unparsed_bytes:
            self._fail(f"the connection closed after {unparsed_bytes} bytes of an incomplete message")
        self._peer_side.record_sent(Hangup)
        return Hangup()

    def _fail(self, reason: str) -> NoReturn:
        self._failure = reason
        self._buffer.clear()
        raise AudioSocketProtocolError(reason)


def _message_name(event: type[AudioSocketMessage]) -> str:
    return event.__name__.removeprefix("AudioSocket")


def encode(event: AudioSocketMessage) -> bytes:
    """Return the bytes of one message, regardless of state; raises ValueError for more than 1,400 bytes."""
    match event:
        case AudioSocketAudio(sample_rate, payload):
            return _encode_audio(sample_rate, payload)
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


def _encode_audio(sample_rate: int, pcm: bytes) -> bytes:
    if len(pcm) > MAX_SENT_BYTES:
        raise ValueError(f"got {len(pcm)} bytes of audio; at most {MAX_SENT_BYTES} fit one TCP segment")
    return _HEADER.pack(_KIND_OF_RATE[sample_rate], len(pcm)) + pcm


def _check_audio(sample_rate: int, pcm: bytes) -> None:
    if sample_rate not in _KIND_OF_RATE:
        raise ValueError(f"got {sample_rate} Hz; AudioSocket has {', '.join(map(str, _KIND_OF_RATE))}")
    if len(pcm) % 2 or not pcm:
        raise ValueError(f"got {len(pcm)} bytes of audio; allowed are one or more 16-bit samples")
