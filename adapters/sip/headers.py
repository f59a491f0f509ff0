"""Values of SIP headers: URIs, addresses, Via, and their parameters.

Parsing is strict about what decides where a message goes, and keeps the rest as it is written. A value that
cannot be read raises SipSyntaxError; nothing is guessed.

Source: RFC 3261, 19.1 (URIs), 20 (headers), 25.1 (grammar).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

MAX_PORT: Final = 65_535
MAX_CSEQ: Final = 2**31 - 1
DEFAULT_PORTS: Final = {"udp": 5060, "tcp": 5060, "tls": 5061}

_TOKEN: Final = r"[A-Za-z0-9\-.!%*_+`'~]+"
_HOST: Final = r"\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9.])?"
_SIP_URI: Final = re.compile(
    r"(?P<scheme>sips?):(?:(?P<user>[^@\s<>\"\x00-\x1f]*)@)?"
    rf"(?P<host>{_HOST})(?::(?P<port>\d{{1,5}}))?(?P<parameters>(?:;[^;?\s<>\"]*)*)(?:\?(?P<headers>[^\s<>\"]*))?",
    re.IGNORECASE,
)
_ANY_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):[^\s<>\"]+")
_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_ADDRESS: Final = re.compile(
    rf"\s*(?P<display>{_QUOTED}|[^\"<>]*)\s*<(?P<uri>[^<>]*)>\s*(?P<parameters>;.*)?\s*", re.DOTALL
)
_PARAMETER: Final = re.compile(
    rf"\s*;\s*(?P<name>{_TOKEN})(?:\s*=\s*(?P<value>{_QUOTED}|\[[0-9A-Fa-f:.]+\]|[^\s;,\"]+))?\s*", re.DOTALL
)
_VIA: Final = re.compile(
    rf"SIP\s*/\s*2\.0\s*/\s*(?P<transport>{_TOKEN})\s+(?P<host>{_HOST})(?:\s*:\s*(?P<port>\d{{1,5}}))?"
    r"\s*(?P<parameters>;.*)?\s*",
    re.IGNORECASE | re.DOTALL,
)
_WORD: Final = re.compile(_TOKEN)
_ESCAPED: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_NO_PARAMETERS: Final[Mapping[str, str]] = MappingProxyType({})


class SipSyntaxError(ValueError):
    """A value that the grammar of SIP does not allow."""


def parse_parameters(text: str) -> dict[str, str]:
    """Return ``;name=value`` parameters by lower-case name; "" for those without a value.

    Raises SipSyntaxError.
    """
    parameters: dict[str, str] = {}
    at = 0
    while at < len(text):
        found = _PARAMETER.match(text, at)
        if found is None:
            raise SipSyntaxError(f"got parameters {text[at : at + 60]!r}")
        parameters.setdefault(found["name"].lower(), unquote(found["value"] or ""))
        at = found.end()
    return parameters


def unquote(text: str) -> str:
    """Return the content of a quoted string, other text as it is."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
    return text


def quote(text: str) -> str:
    """Return a quoted string."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def split_list(text: str) -> list[str]:
    """Split a value at its commas, but not within quotes and angle brackets."""
    if "," not in text:
        return [text.strip()]
    parts, depth, is_quoted, start, at = [], 0, False, 0, 0
    while at < len(text):
        letter = text[at]
        if is_quoted:
            at += letter == "\\"
            is_quoted = letter != '"'
        elif letter == '"':
            is_quoted = True
        elif letter in "<>":
            depth = int(letter == "<")
        elif letter == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
        at += 1
    return [*parts, text[start:].strip()]


def _parse_port(text: str | None) -> int | None:
    port = None if text is None else int(text)
    if port is not None and not 0 < port <= MAX_PORT:
        raise SipSyntaxError(f"got port {text}")
    return port


def _format_parameters(parameters: Mapping[str, str]) -> str:
    return "".join(f";{name}={value}" if value else f";{name}" for name, value in parameters.items())


@dataclass(frozen=True, slots=True)
class SipUri:
    """A ``sip`` or ``sips`` URI."""

    host: str  # IPv6 in brackets
    user: str = ""  # as it is written, with a password behind a colon
    port: int | None = None
    scheme: str = "sip"
    parameters: Mapping[str, str] = field(default_factory=lambda: _NO_PARAMETERS)
    headers: str = ""  # behind the question mark

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a URI; raises SipSyntaxError, also for another scheme."""
        found = _SIP_URI.fullmatch(text.strip())
        if found is None:
            raise SipSyntaxError(f"got URI {text[:80]!r}")
        return cls(
            found["host"],
            found["user"] or "",
            _parse_port(found["port"]),
            found["scheme"].lower(),
            parse_parameters(found["parameters"]) if found["parameters"] else _NO_PARAMETERS,
            found["headers"] or "",
        )

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        port = "" if self.port is None else f":{self.port}"
        headers = f"?{self.headers}" if self.headers else ""
        return f"{self.scheme}:{user}{self.host}{port}{_format_parameters(self.parameters)}{headers}"

    @property
    def number(self) -> str:
        """The user without escapes, parameters and a password."""
        return unescape(self.user.partition(";")[0].partition(":")[0])

    @property
    def transport(self) -> str:
        """``udp``, ``tcp`` or ``tls``, as far as the URI says; else ``udp``."""
        if self.scheme == "sips":
            return "tls"
        wanted = self.parameters.get("transport", "udp").lower()
        return wanted if wanted in DEFAULT_PORTS else "udp"


def unescape(text: str) -> str:
    """Replace ``%41`` by the character, but for control characters, which stay escaped."""

    def replace(found: "re.Match[str]") -> str:
        character = chr(int(found[1], 16))
        return character if character.isprintable() else found[0]

    return _ESCAPED.sub(replace, text)


def uri_scheme(text: str) -> str:
    """Return the lower-case scheme of any URI; raises SipSyntaxError if it is none."""
    found = _ANY_URI.fullmatch(text)
    if found is None:
        raise SipSyntaxError(f"got URI {text[:80]!r}")
    return found[1].lower()


def _display_name(text: str) -> str:
    if not text.startswith('"') and not all(map(_WORD.fullmatch, text.split())):
        raise SipSyntaxError(f"got name {text[:60]!r}, which needs quotes")
    return unquote(text)


@dataclass(frozen=True, slots=True)
class NameAddress:
    """The value of From, To, Contact, Route or Refer-To."""

    uri: str  # of any scheme
    display_name: str = ""
    parameters: Mapping[str, str] = field(default_factory=lambda: _NO_PARAMETERS)  # of the header

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address; raises SipSyntaxError."""
        if "<" in text:
            found = _ADDRESS.fullmatch(text)
            if found is None:
                raise SipSyntaxError(f"got address {text[:80]!r}")
            uri, display = found["uri"].strip(), _display_name(found["display"].strip())
            if uri != found["uri"]:
                raise SipSyntaxError(f"got spaces in address {text[:80]!r}")
            parameters = found["parameters"] or ""
        else:  # all parameters are the header's
            uri, semicolon, rest = text.strip().partition(";")
            uri, display, parameters = uri.strip(), "", semicolon + rest
            if "?" in uri or "," in uri:
                raise SipSyntaxError(f"got address {text[:80]!r} without angle brackets")
        uri_scheme(uri)
        return cls(uri, display, parse_parameters(parameters))

    def __str__(self) -> str:
        display = f"{quote(self.display_name)} " if self.display_name else ""
        return f"{display}<{self.uri}>{_format_parameters(self.parameters)}"

    @property
    def sip_uri(self) -> SipUri:
        """The URI; raises SipSyntaxError if its scheme is another one."""
        return SipUri.parse(self.uri)

    @property
    def tag(self) -> str:
        """The tag; "": none."""
        return self.parameters.get("tag", "")


@dataclass(frozen=True, slots=True)
class Via:
    """One hop of a request."""

    transport: str  # lower case
    host: str
    port: int | None
    parameters: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a value; raises SipSyntaxError."""
        found = _VIA.fullmatch(text.strip())
        if found is None:
            raise SipSyntaxError(f"got Via {text[:80]!r}")
        parameters = parse_parameters(found["parameters"] or "")
        return cls(found["transport"].lower(), found["host"], _parse_port(found["port"]), parameters)

    def __str__(self) -> str:
        port = "" if self.port is None else f":{self.port}"
        return f"SIP/2.0/{self.transport.upper()} {self.host}{port}{_format_parameters(self.parameters)}"

    @property
    def branch(self) -> str:
        """Id of the transaction; "": none."""
        return self.parameters.get("branch", "")
