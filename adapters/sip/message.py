"""Requests and responses of SIP as bytes, and as they are read.

``parse_message`` takes one datagram, ``SipStream`` the bytes of a connection. What is wrong with a message is
a SipProtocolError; if the message is a request that can be answered, the error has it and a status.

Source: RFC 3261, 7 (messages), 18.3 (framing); RFC 4475 (what must be accepted and refused).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from .headers import MAX_CSEQ, NameAddress, SipSyntaxError, SipUri, Via, split_list, uri_scheme

MAX_MESSAGE_BYTES: Final = 65_535
_MAX_HEADERS: Final = 200
_REQUEST_LINE: Final = re.compile(r"([A-Za-z0-9\-.!%*_+`'~]+) (\S+) (SIP/\d+\.\d+)", re.IGNORECASE)
_STATUS_LINE: Final = re.compile(r"SIP/2\.0 ([1-6]\d\d) ?(.*)", re.IGNORECASE)
_HEADER: Final = re.compile(r"([A-Za-z0-9\-.!%*_+`'~]+)[ \t]*:(.*)", re.DOTALL)
_CSEQ: Final = re.compile(r"(\d{1,20})\s+([A-Za-z0-9\-.!%*_+`'~]+)")
_LENGTH_LINE: Final = re.compile(rb"\r\n(?:l|content-length)[ \t]*:[ \t]*(\d{1,6})[ \t]*\r\n", re.IGNORECASE)
_COMPACT: Final = {
    "a": "accept-contact",
    "b": "referred-by",
    "c": "content-type",
    "e": "content-encoding",
    "f": "from",
    "i": "call-id",
    "k": "supported",
    "l": "content-length",
    "m": "contact",
    "o": "event",
    "r": "refer-to",
    "s": "subject",
    "t": "to",
    "u": "allow-events",
    "v": "via",
    "x": "session-expires",
}
_ONCE: Final = ("from", "to", "call-id", "cseq", "max-forwards", "content-length", "content-type")
_SPELLED: Final = {"call-id": "Call-ID", "cseq": "CSeq", "www-authenticate": "WWW-Authenticate"}
REASONS: Final = {
    100: "Trying",
    180: "Ringing",
    183: "Session Progress",
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    415: "Unsupported Media Type",
    416: "Unsupported URI Scheme",
    420: "Bad Extension",
    422: "Session Interval Too Small",
    423: "Interval Too Brief",
    480: "Temporarily Unavailable",
    481: "Call/Transaction Does Not Exist",
    482: "Loop Detected",
    483: "Too Many Hops",
    486: "Busy Here",
    487: "Request Terminated",
    488: "Not Acceptable Here",
    489: "Bad Event",
    491: "Request Pending",
    500: "Server Internal Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "Version Not Supported",
    603: "Decline",
}


class SipProtocolError(Exception):
    """A message that is no valid SIP.

    Args:
        request: that may be answered with ``status``; None: nothing can be.
    """

    def __init__(self, text: str, *, status: int = 400, request: "SipRequest | None" = None) -> None:
        super().__init__(text)
        self.status = status
        self.request = request


@dataclass(frozen=True, slots=True)
class SipHeaders:
    """Headers in their order, names in lower case and never in compact form."""

    pairs: tuple[tuple[str, str], ...] = ()

    def get(self, name: str, default: str = "") -> str:
        """Return the first value of a header."""
        return next((value for each, value in self.pairs if each == name), default)

    def __contains__(self, name: str) -> bool:
        return any(each == name for each, _ in self.pairs)

    def all(self, name: str) -> list[str]:
        """Return every line of a header, undivided."""
        return [value for each, value in self.pairs if each == name]

    def values(self, name: str) -> list[str]:
        """Return every value of a header whose lines may have several, divided by commas."""
        return [value for line in self.all(name) for value in split_list(line) if value]

    def tokens(self, name: str) -> frozenset[str]:
        """Return the values of a list of tokens, in lower case."""
        return frozenset(value.lower() for value in self.values(name))

    def replace(self, name: str, *values: str) -> "SipHeaders":
        """Return these headers with other values of one, behind the rest."""
        rest = tuple(pair for pair in self.pairs if pair[0] != name)
        return SipHeaders((*rest, *((name, value) for value in values)))


@dataclass(frozen=True, slots=True)
class SipRequest:
    """A request."""

    method: str
    uri: str
    headers: SipHeaders
    body: bytes = b""

    def __bytes__(self) -> bytes:
        return _encode(f"{self.method} {self.uri} SIP/2.0", self.headers, self.body)

    @property
    def via(self) -> Via:
        """The topmost Via."""
        return Via.parse(next(iter(self.headers.values("via")), ""))

    @property
    def from_(self) -> NameAddress:
        """The caller."""
        return NameAddress.parse(self.headers.get("from"))

    @property
    def to(self) -> NameAddress:
        """The called one."""
        return NameAddress.parse(self.headers.get("to"))

    @property
    def call_id(self) -> str:
        """Id of the dialog, with the tags."""
        return self.headers.get("call-id")

    @property
    def cseq(self) -> int:
        """Number of the request in its dialog."""
        return _parse_cseq(self.headers.get("cseq"))[0]

    def response(
        self,
        status: int,
        *headers: tuple[str, str],
        reason: str = "",
        to_tag: str = "",
        body: bytes = b"",
        content_type: str = "",
    ) -> "SipResponse":
        """Return a response. to_tag: added to To, unless it has a tag."""
        kept = [pair for pair in self.headers.pairs if pair[0] in ("via", "from", "call-id", "cseq")]
        to = self.headers.get("to")
        if to_tag and not _has_tag(to):
            to += f";tag={to_tag}"
        if status < 300 and self.method in ("INVITE", "SUBSCRIBE", "REFER"):
            kept += [pair for pair in self.headers.pairs if pair[0] == "record-route"]
        more = [*headers, ("content-type", content_type)] if content_type else list(headers)
        return SipResponse(status, reason, SipHeaders((*kept, ("to", to), *more)), body)


@dataclass(frozen=True, slots=True)
class SipResponse:
    """A response."""

    status: int
    reason: str
    headers: SipHeaders
    body: bytes = b""

    def __bytes__(self) -> bytes:
        reason = self.reason or REASONS.get(self.status, "")
        return _encode(f"SIP/2.0 {self.status} {reason}", self.headers, self.body)

    @property
    def branch(self) -> str:
        """Of the topmost Via."""
        return Via.parse(next(iter(self.headers.values("via")), "")).branch

    @property
    def cseq(self) -> tuple[int, str]:
        """Number and method of the request."""
        return _parse_cseq(self.headers.get("cseq"))

    @property
    def to(self) -> NameAddress:
        """The one that answers."""
        return NameAddress.parse(self.headers.get("to"))


SipMessage = SipRequest | SipResponse


def _has_tag(value: str) -> bool:
    try:
        return bool(NameAddress.parse(value).tag)
    except SipSyntaxError:
        return True  # cannot be added to


def _encode(start: str, headers: SipHeaders, body: bytes) -> bytes:
    pairs = (pair for pair in headers.pairs if pair[0] != "content-length")
    lines = [start, *(f"{_spell(name)}: {value}" for name, value in pairs)]
    lines.append(f"Content-Length: {len(body)}\r\n\r\n")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + body


def _spell(name: str) -> str:
    return _SPELLED.get(name) or "-".join(part.capitalize() for part in name.split("-"))


def _parse_cseq(text: str) -> tuple[int, str]:
    found = _CSEQ.fullmatch(text.strip())
    if found is None or int(found[1]) > MAX_CSEQ:
        raise SipSyntaxError(f"got CSeq {text[:60]!r}")
    return int(found[1]), found[2]


def parse_message(data: bytes) -> SipMessage:
    """Parse a datagram, or a message cut from a stream; raises SipProtocolError."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise SipProtocolError(f"got {len(data)} bytes, at most {MAX_MESSAGE_BYTES} are allowed")
    head, body = _split_head(data.lstrip(b"\r\n"))
    start, *lines = head
    headers, problem = _parse_headers(lines)
    if (status_line := _STATUS_LINE.fullmatch(start)) is not None:
        if problem:
            raise SipProtocolError(problem)
        try:
            return _check_response(
                SipResponse(int(status_line[1]), status_line[2], headers, _cut_body(headers, body))
            )
        except SipSyntaxError as error:
            raise SipProtocolError(str(error)) from None
    line = _REQUEST_LINE.fullmatch(start)
    if line is None:
        raise SipProtocolError(f"got start line {start[:80]!r}", request=_answerable(headers))
    request = SipRequest(line[1], line[2], headers)
    try:
        if problem:
            raise SipSyntaxError(problem)
        return _check_request(SipRequest(line[1], line[2], headers, _cut_body(headers, body)), line[3])
    except SipSyntaxError as error:
        raise SipProtocolError(str(error), request=_answerable(headers, request)) from None
    except SipProtocolError as error:
        raise SipProtocolError(
            str(error), status=error.status, request=_answerable(headers, request)
        ) from None


def _split_head(data: bytes) -> tuple[list[str], bytes]:
    for end in (b"\r\n\r\n", b"\n\n"):
        head, found, body = data.partition(end)
        if found:
            break
    else:
        body = b""
    text = head.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    return re.sub(r"\n[ \t]+", " ", text).split("\n"), body  # unfolded


def _parse_headers(lines: Iterable[str]) -> tuple[SipHeaders, str]:
    """Return the headers that can be read, and what is wrong with the rest."""
    pairs: list[tuple[str, str]] = []
    problem = ""
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None or "\r" in line or "\x00" in found[1]:
            problem = problem or (f"got header {line[:60]!r}" if line else "")
            continue
        name = found[1].lower()
        pairs.append((_COMPACT.get(name, name), found[2].strip(" \t")))
        if len(pairs) > _MAX_HEADERS:
            return SipHeaders(tuple(pairs)), f"got more than {_MAX_HEADERS} headers"
    return SipHeaders(tuple(pairs)), problem


def _answerable(headers: SipHeaders, request: SipRequest | None = None) -> SipRequest | None:
    """Return the request if it can be answered: it has Via, which may be wrong; ACK never is."""
    request = request or SipRequest("", "", headers)
    is_ack = request.method == "ACK" or headers.get("cseq").endswith("ACK")
    return None if is_ack or "via" not in headers else request


def _cut_body(headers: SipHeaders, body: bytes) -> bytes:
    length = headers.get("content-length", str(len(body)))
    if not re.fullmatch(r"\d{1,9}", length) or int(length) > len(body):
        raise SipSyntaxError(f"got Content-Length {length[:20]!r} with {len(body)} bytes of body")
    return body[: int(length)]  # RFC 3261, 18.3: the rest of a datagram is none of it


def _check_response(response: SipResponse) -> SipResponse:
    """Return a response that is valid; raises SipSyntaxError."""
    for name in ("from", "to"):
        NameAddress.parse(response.headers.get(name))
    if len(response.headers.values("via")) != 1:
        raise SipSyntaxError("the response has passed another element, or none")
    _ = response.branch, response.cseq
    _require_single(response.headers)
    return response


def _check_request(request: SipRequest, version: str) -> SipRequest:
    """Return a request that is valid; raises SipSyntaxError and SipProtocolError."""
    headers = request.headers
    if version.upper() != "SIP/2.0":
        raise SipProtocolError(f"got version {version}", status=505)
    for name in ("via", "from", "to", "call-id", "cseq"):
        if not headers.get(name):
            raise SipSyntaxError(f"got no {_spell(name)}")
    _require_single(headers)
    for via in headers.values("via"):
        if re.match(r"SIP\s*/", via, re.IGNORECASE) is None:
            raise SipSyntaxError(f"got Via {via[:60]!r}")
    _ = request.via, request.from_, request.to, request.cseq
    if _parse_cseq(headers.get("cseq"))[1] != request.method:
        raise SipSyntaxError(f"got CSeq {headers.get('cseq')!r} in {request.method}")
    if not re.fullmatch(r"\d{1,10}", headers.get("max-forwards", "70")):
        raise SipSyntaxError(f"got Max-Forwards {headers.get('max-forwards')!r}")
    if uri_scheme(request.uri) not in ("sip", "sips"):
        raise SipProtocolError(f"got URI {request.uri[:80]!r}", status=416)
    if SipUri.parse(request.uri).headers:
        raise SipSyntaxError("got headers in the Request-URI")
    for contact in headers.values("contact"):
        if contact != "*":
            NameAddress.parse(contact)
    return request


def _require_single(headers: SipHeaders) -> None:
    for name in _ONCE:
        if len(headers.all(name)) > 1:
            raise SipSyntaxError(f"got {_spell(name)} twice")


@dataclass(slots=True)
class SipStream:
    """The bytes of a TCP connection, cut into messages."""

    _received: bytearray = field(default_factory=bytearray)

    def receive(self, data: bytes) -> Iterator[bytes]:
        """Yield the complete messages, b"" for a keep-alive that wants an answer; raises SipProtocolError.

        After an error, nothing of the connection can be read any more.
        """
        self._received += data
        while self._received:
            if self._received.startswith(b"\r\n\r\n"):  # RFC 5626, 3.5.1
                del self._received[:4]
                yield b""
            elif self._received.startswith(b"\r\n"):
                if len(self._received) < 4 and self._received.endswith(b"\n"):
                    return  # the rest of a keep-alive may follow
                del self._received[:2]
            elif (message := self._take()) is not None:
                yield message
            else:
                return

    def _take(self) -> bytes | None:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > MAX_MESSAGE_BYTES:
                raise SipProtocolError("got a message without end")
            return None
        found = _LENGTH_LINE.search(self._received, 0, end + 2)
        if found is None:
            raise SipProtocolError("got a message without Content-Length on a connection")
        size = end + 4 + int(found[1])
        if size > MAX_MESSAGE_BYTES:
            raise SipProtocolError(f"got a message of {size} bytes")
        if len(self._received) < size:
            return None
        message = bytes(self._received[:size])
        del self._received[:size]
        return message
