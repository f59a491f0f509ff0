"""Digest authentication of both sides: the answer to a challenge, and the check of an answer.

Nonces of ours are signed and expire: no state is kept for strangers. A nonce counter that does not grow is
refused, so that an answer seen on the wire opens nothing. A right answer to a nonce that has expired, or that
an earlier process gave, is challenged anew with ``stale``: it is no wrong password.

Source: RFC 7616 (digest; 3.3: stale), RFC 8760 (SHA-256 in SIP), RFC 3261, 22.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .headers import quote, unquote
from .message import SipRequest

_HASHES: Final[Mapping[str, Callable[[bytes], Any]]] = {"SHA-256": hashlib.sha256, "MD5": hashlib.md5}
_PARAMETER: Final = re.compile(r'\s*([A-Za-z][\w-]*)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,"]+)\s*(?:,|$)')
_UNQUOTED: Final = frozenset(("algorithm", "nc", "qop", "stale"))
_KNOWS_ONE: Final = re.compile(r"baresip v[0-2]\.")  # fails at any challenge that is not MD5
_NONCE_S: Final = 300
_MAX_COUNTED: Final = 10_000  # nonces whose counters are kept


@dataclass(frozen=True, slots=True)
class Credentials:
    """User and password of one account."""

    user: str
    password: str = field(repr=False)


def parse_digest(value: str) -> dict[str, str] | None:
    """Return the parameters of a challenge or an answer; None: it is no digest, or cannot be read."""
    scheme, _, text = value.strip().partition(" ")
    if scheme.lower() != "digest":
        return None
    parameters: dict[str, str] = {}
    at = 0
    text = text.strip()
    while at < len(text):
        found = _PARAMETER.match(text, at)
        if found is None:
            return None
        parameters[found[1].lower()] = unquote(found[2])
        at = found.end()
    return parameters


def _format_digest(parameters: Mapping[str, str]) -> str:
    values = (f"{name}={value if name in _UNQUOTED else quote(value)}" for name, value in parameters.items())
    return "Digest " + ", ".join(values)


def _response_of(given: Mapping[str, str], credentials: Credentials, method: str, body: bytes) -> str | None:
    """Return the proof that an answer with these parameters needs; None: an algorithm that is not known."""
    algorithm = given.get("algorithm", "MD5")
    make = _HASHES.get(algorithm.upper().removesuffix("-SESS"))
    if make is None:
        return None

    def digest(text: str) -> str:
        return str(make(text.encode("utf-8", "surrogateescape")).hexdigest())

    secret = digest(f"{credentials.user}:{given['realm']}:{credentials.password}")
    if algorithm.upper().endswith("-SESS"):
        secret = digest(f"{secret}:{given['nonce']}:{given.get('cnonce', '')}")
    what = f"{method}:{given['uri']}"
    if given.get("qop") == "auth-int":
        what += f":{make(body).hexdigest()}"
    if "qop" not in given:
        return digest(f"{secret}:{given['nonce']}:{digest(what)}")
    proof = (given["nonce"], given.get("nc", ""), given.get("cnonce", ""), given["qop"], digest(what))
    return digest(f"{secret}:{':'.join(proof)}")


def answer_challenge(
    challenges: Iterable[str],
    credentials: Credentials,
    method: str,
    uri: str,
    *,
    body: bytes = b"",
) -> str | None:
    """Return the answer to the best of some challenges; None: there is none that can be answered.

    A nonce is answered once.
    """
    known = [parameters for each in challenges if (parameters := parse_digest(each)) is not None]
    ranks = list(_HASHES)
    usable = [
        each
        for each in known
        if {"realm", "nonce"} <= each.keys() and _hash_name(each.get("algorithm", "MD5")) in ranks
    ]
    if not usable:
        return None
    best = min(usable, key=lambda each: ranks.index(_hash_name(each.get("algorithm", "MD5"))))
    given = {"username": credentials.user, "realm": best["realm"], "nonce": best["nonce"], "uri": uri}
    given |= {name: best[name] for name in ("algorithm", "opaque") if name in best}
    offered = [each.strip().lower() for each in best.get("qop", "").split(",")]
    if any(offered):
        if not {"auth", "auth-int"} & set(offered):
            return None
        qop = "auth" if "auth" in offered else "auth-int"
        given |= {"qop": qop, "nc": "00000001", "cnonce": secrets.token_hex(8)}
    proof = _response_of(given, credentials, method, body)
    return None if proof is None else _format_digest(given | {"response": proof})


def _hash_name(algorithm: str) -> str:
    return algorithm.upper().removesuffix("-SESS")


def _equal(first: str, second: str) -> bool:
    """Compare in a time that does not tell how much is equal."""
    return hmac.compare_digest(first.encode("utf-8", "replace"), second.encode("utf-8", "replace"))


class DigestChallenger:
    """Challenges requests, and checks their answers.

    Args:
        password_of: returns the password of a user; None: there is no such user.
    """

    def __init__(self, realm: str, password_of: Callable[[str], str | None]) -> None:
        self._realm = realm
        self._password_of = password_of
        self._secret = secrets.token_bytes(32)
        self._counters: dict[str, int] = {}  # by nonce, oldest first

    def challenges(self, request: SipRequest, now: float) -> list[str]:
        """Return the values of WWW-Authenticate, MD5 first: many phones look at the first one only."""
        knows_one = _KNOWS_ONE.match(request.headers.get("user-agent"))
        nonce = self._make_nonce(int(now))
        common = {"realm": self._realm, "nonce": nonce, "qop": "auth"}
        stale = ", stale=true" if self.is_stale(request, now) else ""
        return [
            "Digest "
            + ", ".join([f'{name}="{value}"' for name, value in common.items()])
            + f"{stale}, algorithm={algorithm}"
            for algorithm in (("MD5",) if knows_one else reversed(list(_HASHES)))
        ]

    def verify(self, request: SipRequest, now: float) -> str | None:
        """Return the user who sent a request; None if its answer is missing, wrong, old or used before."""
        for given in self._proofs(request):
            nonce, count = given["nonce"], int(given["nc"], 16)
            if self._is_fresh(nonce, now) and count > self._counters.get(nonce, 0):
                self._counters[nonce] = count
                if len(self._counters) > _MAX_COUNTED:
                    del self._counters[next(iter(self._counters))]
                return given["username"]
        return None

    def is_stale(self, request: SipRequest, now: float) -> bool:
        """Return whether a request proves the password with a nonce that is not valid any more."""
        return any(not self._is_fresh(given["nonce"], now) for given in self._proofs(request))

    def _proofs(self, request: SipRequest) -> Iterator[dict[str, str]]:
        """Yield the answers that prove a password, whatever their nonce."""
        for value in request.headers.all("authorization"):
            given = parse_digest(value)
            if given is not None and self._proves(given, request):
                yield given

    def _proves(self, given: dict[str, str], request: SipRequest) -> bool:
        if not {"username", "realm", "nonce", "uri", "response", "qop", "nc"} <= given.keys():
            return False
        if given["realm"] != self._realm or given["uri"] != request.uri:
            return False
        password = self._password_of(given["username"])
        # A user who does not exist costs the same time.
        credentials = Credentials(given["username"], password if password is not None else "")
        proof = _response_of(given, credentials, request.method, request.body)
        is_right = proof is not None and _equal(proof, given["response"])
        return is_right and password is not None and bool(re.fullmatch("[0-9a-fA-F]{8}", given["nc"]))

    def _make_nonce(self, second: int) -> str:
        salt = secrets.token_hex(4)
        return f"{second:x}-{salt}-{self._sign(f'{second:x}-{salt}')}"

    def _sign(self, text: str) -> str:
        return hmac.new(self._secret, text.encode("utf-8", "replace"), "sha256").hexdigest()[:24]

    def _is_fresh(self, nonce: str, now: float) -> bool:
        text, _, signature = nonce.rpartition("-")
        if not _equal(self._sign(text), signature):
            return False
        return 0 <= now - int(text.partition("-")[0], 16) <= _NONCE_S + 1
