"""Descriptions of sessions (SDP): the audio that a peer offers or answers, and ours.

One stream of audio is used; every other line of an offer is refused with port 0. Encodings are names and
numbers here; the gateway knows which it has.

Source: RFC 8866 (SDP), RFC 3264 (offer and answer), RFC 4568 (keys of SRTP), RFC 3551, table 4.
"""

import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from .headers import MAX_PORT, SipSyntaxError

MAX_DESCRIPTION_BYTES: Final = 16_384
_MAX_MEDIA: Final = 16
_MAX_FORMATS: Final = 64
_PLAIN: Final = frozenset(("RTP/AVP", "RTP/AVPF"))
_SECURE: Final = frozenset(("RTP/SAVP", "RTP/SAVPF"))
_MEDIA_LINE: Final = re.compile(r"([a-z]+) (\d{1,5})(?:/\d{1,3})? (\S+)((?: \S+)*)")
_RTPMAP: Final = re.compile(r"(\d{1,3}) ([\w.-]+)/(\d{1,6})(?:/(\d))?")
_CRYPTO: Final = re.compile(r"(\d{1,9}) (\w+) inline:([A-Za-z0-9+/=]{20,80})(?:\|\S*)?(?: .*)?")
_ADDRESS: Final = re.compile(r"IN IP[46] ([0-9A-Za-z.:-]{1,100})(?:/\d+)*")
_DIRECTIONS: Final = ("sendrecv", "sendonly", "recvonly", "inactive")
_LOWER_CASE: Final = frozenset(("opus",))  # as IANA spells them
KEYS: Final = "telephone-event"


class MediaDirection(Enum):
    """What the side that describes itself does."""

    BOTH = "sendrecv"
    SENDS = "sendonly"
    RECEIVES = "recvonly"
    NOTHING = "inactive"

    @property
    def opposite(self) -> "MediaDirection":
        """What the other side then does."""
        match self:
            case MediaDirection.SENDS:
                return MediaDirection.RECEIVES
            case MediaDirection.RECEIVES:
                return MediaDirection.SENDS
            case _:
                return self

    @property
    def listens(self) -> bool:
        """Whether this side hears the other one; if not, the other one is on hold."""
        return self in (MediaDirection.BOTH, MediaDirection.RECEIVES)


@dataclass(frozen=True, slots=True)
class MediaFormat:
    """An encoding, as a description names it."""

    name: str  # lower case, as in IANA's list
    payload_type: int
    clock_rate: int  # Hz
    channels: int = 1
    parameters: str = ""  # of a=fmtp

    @property
    def encoding(self) -> str:
        """Name and rate, as a=rtpmap has them."""
        return f"{self.name}/{self.clock_rate}" + (f"/{self.channels}" if self.channels > 1 else "")


_STATIC: Final[Mapping[int, MediaFormat]] = {
    each.payload_type: each
    for each in (MediaFormat("pcmu", 0, 8000), MediaFormat("pcma", 8, 8000), MediaFormat("g722", 9, 8000))
}


@dataclass(frozen=True, slots=True)
class MediaKey:
    """The key of one side's SRTP."""

    tag: int
    suite: str
    key: bytes = field(repr=False)  # master key and salt


@dataclass(frozen=True, slots=True)
class AudioDescription:
    """The stream of audio of one side."""

    address: tuple[str, int]  # where it receives; port 0: it refuses the stream
    formats: tuple[MediaFormat, ...]  # the best one first, without keys of the phone
    key_type: int | None = None  # payload type of RFC 4733; None: not offered
    direction: MediaDirection = MediaDirection.BOTH
    keys: tuple[MediaKey, ...] = ()  # of SRTP; none: the stream is not encrypted
    packet_ms: int = 20


@dataclass(frozen=True, slots=True)
class SessionDescription:
    """The description of one side: its audio, and how its lines are to be mirrored."""

    audio: AudioDescription | None
    lines: tuple[tuple[str, str, str], ...] = ()  # kind, transport and formats of each stream
    audio_line: int = 0


@dataclass(slots=True)
class _Stream:
    """One m= line and what follows it."""

    kind: str
    port: int
    transport: str
    formats: list[str]
    host: str
    attributes: list[tuple[str, str]] = field(default_factory=list)

    def all(self, name: str) -> list[str]:
        return [value for each, value in self.attributes if each == name]

    @property
    def is_usable(self) -> bool:
        secure = self.transport in _SECURE and bool(self.all("crypto"))
        return self.kind == "audio" and self.port > 0 and (secure or self.transport in _PLAIN)


def parse_session(body: bytes) -> SessionDescription:
    """Read a description; raises SipSyntaxError."""
    if len(body) > MAX_DESCRIPTION_BYTES:
        raise SipSyntaxError(f"got a description of {len(body)} bytes")
    lines = body.decode("utf-8", "replace").replace("\r\n", "\n").rstrip("\n").split("\n")
    if lines[0] != "v=0":
        raise SipSyntaxError(f"got a description that begins with {lines[0][:20]!r}")
    streams, common = _read_lines(lines)
    if len(streams) > _MAX_MEDIA:
        raise SipSyntaxError(f"got {len(streams)} streams")
    used = next((number for number, each in enumerate(streams) if each.is_usable), None)
    if used is None:  # a refusal has port 0
        used = next((number for number, each in enumerate(streams) if each.kind == "audio"), None)
    mirrored = tuple((each.kind, each.transport, " ".join(each.formats)) for each in streams)
    if used is None:
        return SessionDescription(None, mirrored)
    return SessionDescription(_describe(streams[used], common), mirrored, used)


def _read_lines(lines: Sequence[str]) -> tuple[list[_Stream], list[tuple[str, str]]]:
    streams: list[_Stream] = []
    common: list[tuple[str, str]] = []
    host = ""
    for line in lines:
        kind, _, value = line.partition("=")
        if kind == "m":
            streams.append(_parse_stream(value, host))
        elif kind == "c":
            found = _ADDRESS.fullmatch(value.strip())
            if found is None:
                raise SipSyntaxError(f"got c={value[:60]!r}")
            if streams:
                streams[-1].host = found[1]
            else:
                host = found[1]
        elif kind == "a":
            name, _, content = value.partition(":")
            (streams[-1].attributes if streams else common).append((name.strip(), content.strip()))
    return streams, common


def _parse_stream(value: str, host: str) -> _Stream:
    found = _MEDIA_LINE.fullmatch(value.strip())
    if found is None or int(found[2]) > MAX_PORT:
        raise SipSyntaxError(f"got m={value[:60]!r}")
    return _Stream(found[1], int(found[2]), found[3], found[4].split()[:_MAX_FORMATS], host)


def _describe(stream: _Stream, common: list[tuple[str, str]]) -> AudioDescription:
    if not stream.host and stream.port:
        raise SipSyntaxError("got no address of the audio")
    maps = _parse_maps(stream)
    numbers = [int(each) for each in stream.formats if each.isdecimal() and len(each) <= 3]
    known = [maps[number] for number in numbers if number in maps]
    keys = [each.payload_type for each in known if each.name == KEYS and each.clock_rate == 8000]
    keys += [each.payload_type for each in known if each.name == KEYS]
    directions = [name for name, _ in (*common, *stream.attributes) if name in _DIRECTIONS]
    direction = MediaDirection(directions[-1] if directions else "sendrecv")
    if stream.host in ("0.0.0.0", "::"):  # RFC 2543's hold
        direction = MediaDirection.SENDS if direction.listens else direction
    return AudioDescription(
        (stream.host, stream.port),
        tuple(each for each in known if each.name not in (KEYS, "cn")),
        keys[0] if keys else None,
        direction,
        _parse_keys(stream) if stream.transport in _SECURE else (),
        _packet_ms(stream.all("ptime")),
    )


def _packet_ms(values: list[str]) -> int:
    return int(values[0]) if values and re.fullmatch(r"\d{1,3}", values[0]) else 20


def _parse_maps(stream: _Stream) -> dict[int, MediaFormat]:
    parameters: dict[int, str] = {}
    for value in stream.all("fmtp"):
        number, _, text = value.partition(" ")
        if number.isdecimal() and len(number) <= 3:
            parameters[int(number)] = text[:200]
    maps = dict(_STATIC)
    for value in stream.all("rtpmap"):
        if found := _RTPMAP.match(value):
            kind, name, rate, channels = int(found[1]), found[2].lower(), int(found[3]), int(found[4] or 1)
            maps[kind] = MediaFormat(name, kind, rate, channels, parameters.get(kind, ""))
    return maps


def _parse_keys(stream: _Stream) -> tuple[MediaKey, ...]:
    keys = []
    for value in stream.all("crypto"):
        if found := _CRYPTO.fullmatch(value):
            try:
                keys.append(MediaKey(int(found[1]), found[2], b64decode(found[3], validate=True)))
            except Base64Error:
                continue
    return tuple(keys)


@dataclass(frozen=True, slots=True)
class SessionOrigin:
    """Id and version of our descriptions of one call; the version grows with each change."""

    number: int
    version: int


def make_session(
    audio: AudioDescription, origin: SessionOrigin, offer: SessionDescription | None = None
) -> bytes:
    """Return a description of ours. offer: that it answers; None: it is an offer."""
    host = audio.address[0]
    family = "IP6" if ":" in host else "IP4"
    head = [
        "v=0",
        f"o=- {origin.number} {origin.version} IN {family} {host}",
        "s=-",
        f"c=IN {family} {host}",
        "t=0 0",
    ]
    transport = "RTP/SAVP" if audio.keys else "RTP/AVP"
    if offer is None:
        return _join([*head, *_audio_lines(audio, transport)])
    for number, (kind, offered, formats) in enumerate(offer.lines):
        if number == offer.audio_line:
            head += _audio_lines(audio, offered)
        else:
            head.append(f"m={kind} 0 {offered} {formats or '0'}")
    return _join(head)


def _join(lines: list[str]) -> bytes:
    return ("\r\n".join(lines) + "\r\n").encode()


def _audio_lines(audio: AudioDescription, transport: str) -> list[str]:
    types = [each.payload_type for each in audio.formats]
    types += [] if audio.key_type is None else [audio.key_type]
    lines = [f"m=audio {audio.address[1]} {transport} {' '.join(map(str, types))}"]
    for each in audio.formats:
        name = each.name if each.name in _LOWER_CASE else each.name.upper()
        lines.append(f"a=rtpmap:{each.payload_type} {name}{each.encoding.removeprefix(each.name)}")
        if each.parameters:
            lines.append(f"a=fmtp:{each.payload_type} {each.parameters}")
    if audio.key_type is not None:
        lines += [f"a=rtpmap:{audio.key_type} {KEYS}/8000", f"a=fmtp:{audio.key_type} 0-15"]
    for key in audio.keys:
        lines.append(f"a=crypto:{key.tag} {key.suite} inline:{b64encode(key.key).decode()}")
    return [*lines, f"a=ptime:{audio.packet_ms}", f"a={audio.direction.value}"]
