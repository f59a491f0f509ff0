"""Authentication: the headers of a request become a ``Grant`` or a refusal.

Keys are accepted in every header that clients of the served APIs use:

    Authorization: Bearer KEY      OpenAI, DashScope, vivavoce's own APIs
    Authorization: Basic ...       browsers, which ask for user and password; the password is the key
    Authorization: Basic KEY       Inworld, whose keys have the form of a user and a password
    X-API-Key, xi-api-key          Cartesia, ElevenLabs
    api-key                        OpenAI's clients of Azure
    Cookie: vivavoce=TICKET        the browser page, after its key was accepted

Without a keys file, every client may do everything; the settings then allow loopback addresses only, unless
``without_keys`` is set.
"""

import base64
import functools
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...tts_engine.errors import BadRequest
from ...tts_engine.reading.pronunciation.lexicon import Lexicon
from ...tts_engine.reading.pronunciation.lexicon_files import LexiconFile
from .errors import KeyRefused, ScopeMissing
from .keys import ApiKey, KeyLimits, KeysFile, Scope
from .origins import Origins
from .rate_limits import KeyRateLimiter
from .trace_context import new_trace_id, trace_id_of

PAGE_COOKIE_NAME = "vivavoce"
PAGE_TICKET_LIFETIME_S = 12 * 3600  # a working day
ANONYMOUS_KEY_ID = "-"  # of every request where no keys are required
_TICKET_SHARED_S = 600  # requests of a key within this time get the same ticket, so that a poll uses up few
_MAX_TICKETS = 10_000
_KEY_HEADERS = ("x-api-key", "xi-api-key", "api-key")


@dataclass(frozen=True, slots=True)
class Grant:
    """The scopes, limits and trace of an authenticated request or connection.

    A connection may last for hours, so each charge first checks that the key has not been revoked.
    """

    key_id: str  # for logs, metrics and the ownership of voices; ANONYMOUS_KEY_ID without keys
    scopes: frozenset[Scope]
    # Shared by all grants of a key.
    rate_limiter: KeyRateLimiter = field(
        default_factory=lambda: KeyRateLimiter(KeyLimits()), compare=False, repr=False
    )
    # Raises KeyRefused once the key is revoked.
    check_not_revoked: Callable[[], object] = field(default=lambda: None, compare=False, repr=False)
    lexicon: LexiconFile | None = field(default=None, compare=False, repr=False)  # ahead of the server's
    trace_id: str = field(default_factory=new_trace_id, compare=False)  # names the streams in logs

    def allows(self, scope: Scope) -> bool:
        """Return whether the key has the scope, or ``admin``."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def require(self, scope: Scope) -> None:
        """Raise ScopeMissing unless the key has the scope, or ``admin``."""
        if not self.allows(scope):
            raise ScopeMissing(
                f"this key lacks the scope {scope.value!r}; it has {_format_scopes(self.scopes)}"
            )

    def charge_request(self) -> None:
        """Count one request; raise RateLimited or KeyRefused."""
        self.check_not_revoked()
        self.rate_limiter.charge_request()

    def charge_characters(self, characters: int) -> None:
        """Count characters to be spoken; raise RateLimited, RequestTooLarge or KeyRefused."""
        self.check_not_revoked()
        self.rate_limiter.charge_characters(characters)

    def lexicons(self) -> tuple[Lexicon, ...]:
        """Return the key's lexicon as it is now, if it has one."""
        return () if self.lexicon is None else (self.lexicon.current(),)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count an open stream while the block runs; raise RateLimited."""
        with self.rate_limiter.stream():
            yield


@dataclass(frozen=True, slots=True)
class _PageTicket:
    # The value of a page cookie stands for a key, which itself never goes into a cookie.
    key: str
    expires_at: float


class AccessControl:
    """Authenticates the requests of one server. Belongs to its event loop.

    Without ``keys`` every request from an allowed origin gets all scopes.
    """

    def __init__(
        self,
        keys: KeysFile | None,
        origins: Origins | None = None,
        clock: Callable[[], float] = time.monotonic,
        *,
        has_public_lists: bool = False,
    ) -> None:
        """Make an access control; has_public_lists: whether ``list_grant`` needs no key."""
        self.origins = origins or Origins()
        self.keys = keys
        self._clock = clock
        self._has_public_lists = has_public_lists
        self._rate_limiters: dict[str, KeyRateLimiter] = {}
        self._lexicons: dict[str, LexiconFile] = {}  # of keys, by path
        self._tickets: dict[str, _PageTicket] = {}
        self._latest_tickets: dict[str, str] = {}  # of keys
        self._anonymous_grant = Grant(ANONYMOUS_KEY_ID, frozenset(Scope))

    @classmethod
    def open_to_all(cls, origins: Origins | None = None) -> "AccessControl":
        """Return an access control that requires no keys."""
        return cls(None, origins)

    def grant(self, headers: Mapping[str, str]) -> Grant:
        """Return the grant for a request's headers (lower-case names); raise KeyRefused or OriginRefused.

        A browser sends cookies with the requests of any page, so the origin is checked unless a header has
        a key.
        """
        if self.keys is None:
            self.origins.check(headers)
            return replace(self._anonymous_grant, trace_id=trace_id_of(headers))
        key = _key_in_headers(headers)
        if key is None:
            self.origins.check(headers)
            key = self._key_of_ticket(headers)
        if key is None:
            raise KeyRefused()
        grant = self._grant_of(self.keys.check(key), functools.partial(self.keys.check, key))
        return replace(grant, trace_id=trace_id_of(headers))

    def recognizes(self, headers: Mapping[str, str]) -> bool:
        """Return whether ``grant`` accepts a request with these headers."""
        try:
            self.grant(headers)
        except BadRequest:
            return False
        return True

    def list_grant(self, headers: Mapping[str, str]) -> Grant | None:
        """Return the grant for a list of models or voices, None for what a client without a key may see.

        Raises like ``grant``.
        """
        if self.keys is None or not self._has_public_lists or self._has_key(headers):
            return self.grant(headers)
        self.origins.check(headers)
        return None

    def rate_limiters(self) -> Mapping[str, KeyRateLimiter]:
        """The limiters of the keys that were used, by key id."""
        return self._rate_limiters

    def read_lexicons(self) -> None:
        """Read the lexicons of all keys, so that their first requests have them; faults are logged."""
        lexicons = [self._lexicon_of(key) for key in self.keys or () if key.revoked_at is None]
        for lexicon in lexicons:
            if lexicon is not None:
                lexicon.current()
                lexicon.wait_read()

    def issue_page_ticket(self, headers: Mapping[str, str]) -> str | None:
        """Return a cookie value that stands for the key in the headers; None if they have none.

        It is valid for PAGE_TICKET_LIFETIME_S or a little longer. Raises KeyRefused for a wrong key.
        """
        key = _key_in_headers(headers)
        if key is None or self.keys is None:
            return None
        self.keys.check(key)
        valid_until = self._clock() + PAGE_TICKET_LIFETIME_S
        latest = self._latest_tickets.get(key, "")
        if latest in self._tickets and self._tickets[latest].expires_at >= valid_until:
            return latest
        self._drop_expired_tickets()
        ticket = self._latest_tickets[key] = secrets.token_urlsafe(32)
        self._tickets[ticket] = _PageTicket(key, valid_until + _TICKET_SHARED_S)
        return ticket

    def _grant_of(self, key: ApiKey, check_not_revoked: Callable[[], object]) -> Grant:
        rate_limiter = self._rate_limiters.get(key.id)
        if rate_limiter is None or rate_limiter.limits != key.limits:
            rate_limiter = self._rate_limiters[key.id] = KeyRateLimiter(key.limits, self._clock)
        lexicon = self._lexicon_of(key)
        return Grant(key.id, frozenset(key.scopes), rate_limiter, check_not_revoked, lexicon)

    def _lexicon_of(self, key: ApiKey) -> LexiconFile | None:
        if key.lexicon is not None and key.lexicon not in self._lexicons:
            # An unreadable file of one key must not end the server, nor its reading hold up other requests.
            self._lexicons[key.lexicon] = LexiconFile(Path(key.lexicon), Lexicon({}))
        return None if key.lexicon is None else self._lexicons[key.lexicon]

    def _has_key(self, headers: Mapping[str, str]) -> bool:
        return bool(_key_in_headers(headers)) or self._key_of_ticket(headers) is not None

    def _key_of_ticket(self, headers: Mapping[str, str]) -> str | None:
        ticket = self._tickets.get(_cookie(headers))
        if ticket is None or ticket.expires_at < self._clock():
            return None
        return ticket.key

    def _drop_expired_tickets(self) -> None:
        now = self._clock()
        while self._tickets:
            oldest, ticket = next(iter(self._tickets.items()))
            if ticket.expires_at >= now and len(self._tickets) < _MAX_TICKETS:
                return
            del self._tickets[oldest]


def _key_in_headers(headers: Mapping[str, str]) -> str | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    match scheme.lower():
        case "bearer" | "token":  # the latter is Deepgram's
            return value.strip()
        case "basic":
            return _basic_key(value.strip())
        case _:
            return next((headers[name] for name in _KEY_HEADERS if headers.get(name)), None)


def _basic_key(value: str) -> str:
    """Return the password, or the value itself where it is no base64, as no key is: keys contain "_"."""
    try:
        return base64.b64decode(value, validate=True).decode().partition(":")[2]
    except UnicodeDecodeError:
        return ""
    except ValueError:
        return value


def _cookie(headers: Mapping[str, str]) -> str:
    """Return the page's ticket, whatever the cookies of other servers of the host look like."""
    cookies = (cookie.strip().partition("=") for cookie in headers.get("cookie", "").split(";"))
    return next((value for name, _, value in cookies if name == PAGE_COOKIE_NAME), "")


def _format_scopes(scopes: frozenset[Scope]) -> str:
    return ", ".join(sorted(scopes)) or "none"
