"""Asterisk's AudioSocket as bytes and events: both sides of one call, without I/O.

A TCP connection is one call. Whoever dials (Asterisk, or our phone) sends the call's id first, then audio and
keys; the server sends audio. A message is a kind, a big-endian length and a payload:

    0       1               3
    | kind  | length        | payload ...
    0x00 hang up   0x01 call id (16)   0x03 key (1)   0x10-0x18 audio (s16le mono)   0xff error (0-1)

``Connection`` has wsproto's verbs: ``receive_data``, ``events``, ``send``. Not here: sockets, clocks (ask
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

from ..tts_engine.errors import VivavoceError

SAMPLE_RATES: Final[Mapping[int, int]] = MappingProxyType(
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
MAX_RECEIVED_S: Final = 1.0  # of audio in one message; Asterisk sends what its phone does, 10-60 ms
MAX_UNREAD_BYTES: Final = 1 << 20  # received, with the events not taken

_KIND_OF_RATE: Final[Mapping[int, int]] = MappingProxyType(
    {sample_rate: kind for kind, sample_rate in SAMPLE_RATES.items()}
)
_HEADER: Final = Struct("!BH")
_G711_BYTES: Final = 160  # 20 ms at one byte a sample; as s16le it would be 10 ms
_VOTES: Final = 5  # messages until the G.711 trap is called


class ProtocolError(VivavoceError):
    """The peer broke the protocol; the message says what was got and what is allowed."""


@dataclass(frozen=True, slots=True)
class CallId:
    """The first message of a call: who it is. Asterisk passes the UUID of the dial plan and nothing else."""

    uuid: UUID


@dataclass(frozen=True, slots=True)
class Audio:
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
class Error:
    """Asterisk failed: 1 its caller hung up, 2 audio was not forwarded, 4 no memory; 0 without a code."""

    code: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.code <= 255:
            raise ValueError(f"got error code {self.code}; it must fit one byte")


@dataclass(frozen=True, slots=True)
class Companded:
    """What the peer labels as 16-bit audio is raw G.711: noise to the ear. Told once a call, never sent."""

    @property
    def advice(self) -> str:
        """What to change, and where."""
        return (
            "Asterisk sends raw G.711 labelled as 16-bit audio (160-byte messages of kind 0x10): "
            "name the format in the dial plan, Dial(AudioSocket/host:port/uuid/c(slin))"
        )


Message = CallId | Audio | Dtmf | Hangup | Error
Event = Message | Companded


@dataclass(frozen=True, slots=True)
class _Kind:
    event: type[Message]
    lengths: range  # of the payload, bytes
    allowed: str


def _audio_kind(sample_rate: int) -> _Kind:
    longest = min(int(sample_rate * MAX_RECEIVED_S) * 2, 65_534)
    return _Kind(Audio, range(2, longest + 1, 2), f"2 to {longest}, an even number")


_KINDS: Final[Mapping[int, _Kind]] = MappingProxyType(
    {
        0x00: _Kind(Hangup, range(0, 1), "0"),
        0x01: _Kind(CallId, range(16, 17), "16"),
        0x03: _Kind(Dtmf, range(1, 2), "1"),
        0xFF: _Kind(Error, range(0, 2), "0 or 1"),
    }
    | {kind: _audio_kind(sample_rate) for kind, sample_rate in SAMPLE_RATES.items()}
)


class Role(Enum):
    """A side of the connection."""

    CALLER = "caller"  # dials and says the call's id: Asterisk, or our phone
    SERVER = "server"  # is dialled: us


class State(Enum):
    """What one side has said so far."""

    NEW = "before the call id"
    OPEN = "in the call"
    ENDED = "after the end of the call"


# By who sends. A server has no 0x01, 0x03 or 0xff: Asterisk hangs up on each of them.
TRANSITIONS: Final[Mapping[Role, Mapping[State, Mapping[type[Message], State]]]] = MappingProxyType(
    {
        Role.CALLER: {
            State.NEW: {CallId: State.OPEN, Hangup: State.ENDED},
            State.OPEN: {Audio: State.OPEN, Dtmf: State.OPEN, Error: State.OPEN, Hangup: State.ENDED},
            State.ENDED: {},
        },
        Role.SERVER: {
            State.OPEN: {Audio: State.OPEN, Hangup: State.ENDED},
            State.ENDED: {},
        },
    }
)


class _Side:
    # What one side has said and may say.

    def __init__(self, role: Role) -> None:
        self.role = role
        self.state = State.NEW if role is Role.CALLER else State.OPEN
        self.may_send = TRANSITIONS[role][self.state]

    def has_sent(self, event: type[Message]) -> None:
        state = self.may_send[event]
        if state is not self.state:
            self.state = state
            self.may_send = TRANSITIONS[self.role][state]

    def refusal(self, event: type[Message]) -> str:
        return f"a {self.role.value} must not send {event.__name__} {self.state.value}"


class Connection:
    """One call, seen from ``role``: the peer's bytes become events, our events become bytes.

    After each ``receive_data`` or ``receive_eof`` take every event of ``events()``; then at most one message,
    not yet complete, is held.
    """

    def __init__(self, role: Role) -> None:
        self._own = _Side(role)
        self._peer = _Side(Role.SERVER if role is Role.CALLER else Role.CALLER)
        self._buffer = bytearray()
        self._offset = 0  # what is before it has become events
        self._eof = False
        self._failure = ""
        self._watch = _G711Watch() if role is Role.SERVER else None

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

    def events(self) -> Iterator[Event]:
        """Yield what the bytes received so far say.

        Raises ProtocolError at the first message that breaks the protocol, after all events before it, and
        again at every later call; what comes behind it is dropped.
        """
        if self._failure:
            raise ProtocolError(self._failure)
        buffer = self._buffer
        while len(buffer) - self._offset >= _HEADER.size:
            kind, length = _HEADER.unpack_from(buffer, self._offset)
            begin = self._offset + _HEADER.size
            self._check(kind, length)
            if len(buffer) < begin + length:
                break
            self._offset = begin + length
            event = self._parse(kind, bytes(memoryview(buffer)[begin : self._offset]))
            self._peer.has_sent(type(event))
            yield event
            if self._watch is not None and isinstance(event, Audio):
                yield from self._suspect(self._watch, event)
        if self._eof and self._peer.state is not State.ENDED:
            yield self._end()

    def send(self, event: Message) -> bytes:
        """Return the bytes of ``event``, header and payload in one: write them at once, or not at all.

        Raises ValueError for what would kill the call or is not ours to say now; nothing has changed then.
        """
        if type(event) not in self._own.may_send:
            raise ValueError(self._own.refusal(type(event)))
        message = encode(event)
        self._own.has_sent(type(event))
        return message

    def _check(self, kind: int, length: int) -> None:
        known = _KINDS.get(kind)
        if known is None:
            self._fail(f"got kind {kind:#04x} of {length} bytes; kinds are 0x00, 0x01, 0x03, 0x10-0x18, 0xff")
        if known.event not in self._peer.may_send:
            self._fail(self._peer.refusal(known.event))
        if length not in known.lengths:
            self._fail(
                f"got {known.event.__name__} ({kind:#04x}) with {length} bytes; allowed: {known.allowed}"
            )

    def _parse(self, kind: int, payload: bytes) -> Message:
        sample_rate = SAMPLE_RATES.get(kind)
        if sample_rate is not None:
            return Audio(sample_rate, payload)
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
                return Error(int.from_bytes(payload))

    def _suspect(self, watch: "_G711Watch", audio: Audio) -> Iterator[Companded]:
        verdict = watch.verdict(audio)
        if verdict is None:
            return
        self._watch = None
        if verdict is Encoding.COMPANDED:
            yield Companded()

    def _end(self) -> Hangup:
        held = len(self._buffer) - self._offset
        if held:
            self._fail(f"the connection closed inside a message, after {held} bytes of it")
        self._peer.has_sent(Hangup)
        return Hangup()

    def _fail(self, sentence: str) -> NoReturn:
        self._failure = sentence
        self._buffer.clear()
        raise ProtocolError(sentence)


def encode(event: Message) -> bytes:
    """Return the bytes of one message, whatever the state of a call; ValueError for what would kill it."""
    match event:
        case Audio(sample_rate, payload):
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
        case Error(code):
            return _HEADER.pack(0xFF, 1) + bytes((code,))
        case _:
            assert_never(event)


class Encoding(Enum):
    """What the bytes of a message look like."""

    LINEAR = "16-bit samples"
    COMPANDED = "one byte a sample, G.711"


def guess_encoding(payload: bytes) -> Encoding | None:
    """Tell G.711 from 16-bit audio by a message's bytes; None for near-silence, which is either.

    In 16-bit audio the high bytes of neighbours are alike and the low bytes are noise; in G.711 every byte is
    a sample, so that odd and even places look the same.
    """
    if payload == payload[:1] * len(payload):
        return None if payload[0] == 0 else Encoding.COMPANDED  # silence is 0xff, 0x7f, 0xd5 or 0x55
    if np.abs(np.frombuffer(payload, "<i2").astype(np.int32)).max() < 256:
        return None
    places = np.frombuffer(payload, np.int8).astype(np.int32).reshape(-1, 2)
    low, high = np.abs(np.diff(places, axis=0)).mean(axis=0)
    return Encoding.LINEAR if high < 0.6 * low else Encoding.COMPANDED


class _G711Watch:
    # Dial(AudioSocket/...) without c() on a G.711 call. Genuine 16-bit audio of a 10 ms phone is as long.

    def __init__(self) -> None:
        self._score = 0

    def verdict(self, audio: Audio) -> Encoding | None:
        """What the call is, once that is clear; do not ask again after an answer."""
        if audio.sample_rate != 8_000 or len(audio.payload) != _G711_BYTES:
            return Encoding.LINEAR
        match guess_encoding(audio.payload):
            case Encoding.COMPANDED:
                self._score += 1
            case Encoding.LINEAR:
                self._score -= 1
        if abs(self._score) < _VOTES:
            return None
        return Encoding.COMPANDED if self._score > 0 else Encoding.LINEAR
