"""Authentication: the headers of a request become a ``Grant`` or a refusal.

Keys are accepted in every header that clients of the served APIs use:

    Authorization: Bearer KEY      OpenAI, DashScope, vivavoce's own APIs
    Authorization: Basic ...       browsers, which ask for user and password; the password is the key
    Authorization: Basic KEY       Inworld, whose keys have the form of a user and a password
    X-API-Key, xi-api-key          Cartesia, ElevenLabs
    api-key                        OpenAI's clients of Azure
    Cookie: vivavoce=TICKET        the browser page, after its key was accepted

Without a keys file, every client may do everything; the settings then allow loopback addresses only, unless
``access.without_key`` says otherwise.

A request's trace id names its streams in the logs of all processes that speak them. Source: W3C Trace
Context, Recommendation of 23 November 2021, section 3.2.
"""

import asyncio
import base64
import logging
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...tts_engine.errors import BadRequest
from ...tts_engine.reading.pronunciation.lexicon import Lexicon
from ...tts_engine.reading.pronunciation.lexicon_files import LexiconFile
from .destinations import matches_destination
from .errors import DestinationRefused, GrantEnded, KeyRefused, ScopeMissing
from .grant_ends import GrantEnds, current_connection
from .keys import ApiKey, KeyLimits, KeysFile, Scope, included_scopes
from .origins import Origins
from .rate_limits import KeyRateLimiter

_TRACEPARENT = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace_id>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    r"(?P<further>-.*)?"
)


def trace_id_of(headers: Mapping[str, str]) -> str:
    """The trace id of the header ``traceparent``, or a new one without it: 32 hexadecimal digits."""
    found = _TRACEPARENT.fullmatch(headers.get("traceparent", "").strip())
    if found is None or (found["version"] == "00" and found["further"]):
        return new_trace_id()
    return found["trace_id"]


def new_trace_id() -> str:
    """A random trace id."""
    return secrets.token_hex(16)


logger = logging.getLogger(__name__)

PAGE_COOKIE_NAME = "vivavoce"
PAGE_TICKET_LIFETIME_S = 12 * 3600  # a working day
ANONYMOUS_KEY_ID = "-"  # of every request where no keys are required
_TICKET_SHARED_S = 600  # requests of a key within this time get the same ticket, so that a poll uses up few
_MAX_TICKETS = 10_000
_KEY_HEADERS = ("x-api-key", "xi-api-key", "api-key", "x-vapi-secret")


@dataclass(frozen=True, slots=True)
class Grant:
    """The scopes, limits and trace of an authenticated request or connection.

    A connection may last for hours, so each charge first checks that the key is still valid.
    """

    key_id: str  # for logs, metrics and the ownership of voices and calls; ANONYMOUS_KEY_ID without keys
    scopes: frozenset[Scope]  # with those that they include
    # Shared by all grants of a key.
    rate_limiter: KeyRateLimiter = field(
        default_factory=lambda: KeyRateLimiter(KeyLimits()), compare=False, repr=False
    )
    record: ApiKey | None = field(default=None, compare=False, repr=False)  # None: nothing ends the grant
    ends: GrantEnds | None = field(default=None, compare=False, repr=False)  # None: as above
    lexicon: LexiconFile | None = field(default=None, compare=False, repr=False)  # ahead of the server's
    trace_id: str = field(default_factory=new_trace_id, compare=False)  # names the streams in logs

    @property
    def key_name(self) -> str:
        """The operator's name of the key, for logs; that of a request without a key is its id."""
        return self.key_id if self.record is None else self.record.name

    @property
    def keeps_speech(self) -> bool:
        """Whether speech of its requests may be kept for others that say the same."""
        return self.record is None or self.record.keeps_speech

    @property
    def completes_wav(self) -> bool:
        """Whether its WAVs are complete files where requests leave it open."""
        return self.record is not None and self.record.complete_wav

    def allows(self, scope: Scope) -> bool:
        """Return whether the key has the scope."""
        return scope in self.scopes

    def require(self, scope: Scope) -> None:
        """Raise ScopeMissing unless the key has the scope."""
        if not self.allows(scope):
            raise ScopeMissing(
                f"this key lacks the scope {scope.value!r}; it has {_format_scopes(self.scopes)}"
            )

    def require_destination(self, target: str) -> None:
        """Raise DestinationRefused unless the key may call there, or transfer a caller there."""
        patterns = () if self.record is None else self.record.destinations
        if patterns and not any(matches_destination(pattern, target) for pattern in patterns):
            raise DestinationRefused(
                f"this key may not call {target!r}; its destinations are {', '.join(patterns)}"
            )

    def answers_for(self, agent: str) -> bool:
        """Return whether calls of an agent of that name belong to the key."""
        return self.record is not None and agent in self.record.agents

    @property
    def is_current(self) -> bool:
        """Whether the key is valid and permits what it did when the grant was issued."""
        return self.record is None or self.ends is None or self.ends.is_current(self.record)

    def require_current(self) -> None:
        """Raise GrantEnded if the key has been revoked, has expired or was changed."""
        if not self.is_current:
            raise GrantEnded

    def on_end(self, end: Callable[[], object]) -> Callable[[], None]:
        """Call ``end`` soon after the grant has ended, unless the result is called before."""
        if self.record is None or self.ends is None:
            return lambda: None
        return self.ends.add(self.record, end)

    def charge_request(self) -> None:
        """Count one request; raise RateLimited or GrantEnded."""
        self.require_current()
        self.rate_limiter.charge_request()

    def charge_characters(self, characters: int) -> None:
        """Count characters to be spoken; raise RateLimited, RequestTooLarge or GrantEnded."""
        self.require_current()
        self.rate_limiter.charge_characters(characters)

    def lexicons(self) -> tuple[Lexicon, ...]:
        """Return the key's lexicon as it is now, if it has one."""
        return () if self.lexicon is None else (self.lexicon.current(),)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Count an open stream while the block runs; raise RateLimited."""
        with self.rate_limiter.stream():
            yield

    def open_call(self, end: Callable[[], object]) -> Callable[[], None]:
        """Count a call that the key opens, and call ``end`` when the grant has ended; raise RateLimited.

        Returns what is to be called when the call is over; twice is no error.
        """
        closed = ExitStack()
        self.rate_limiter.add_call()
        closed.callback(self.rate_limiter.calls.remove)
        closed.callback(self.on_end(end))
        return closed.close


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
        self._ends = None if keys is None else GrantEnds(keys.is_current)
        self._reported_keys: set[str] = set()  # ids of those whose old scope was logged

    @classmethod
    def open_to_all(cls, origins: Origins | None = None) -> "AccessControl":
        """Return an access control that requires no keys."""
        return cls(None, origins)

    def grant(self, headers: Mapping[str, str]) -> Grant:
        """Return the grant for a request's headers (lower-case names), which its connection ends with.

        A browser sends cookies with the requests of any page, so the origin is checked unless a header has
        a key. Raises KeyRefused and OriginRefused, and RateLimited for a WebSocket more than the key may
        have.
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
        grant = replace(self._grant_of(self.keys.check(key)), trace_id=trace_id_of(headers))
        connection = current_connection()
        if connection is not None:
            connection.follow(grant)
        return grant

    async def watch(self) -> None:
        """End what keys have opened that are not valid any more, until the task is cancelled."""
        if self._ends is None:
            await asyncio.Event().wait()
        else:
            await self._ends.watch()

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

    def prepare_keys(self) -> None:
        """Read the lexicons of all keys, so that their first requests have them; log faults of keys."""
        keys = [key for key in self.keys or () if key.is_valid_at(time.time())]
        for key in keys:
            self._report_old_scope(key)
        for lexicon in [self._lexicon_of(key) for key in keys]:
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

    def _grant_of(self, key: ApiKey) -> Grant:
        self._report_old_scope(key)
        rate_limiter = self._rate_limiters.get(key.id)
        if rate_limiter is None:
            rate_limiter = self._rate_limiters[key.id] = KeyRateLimiter(key.limits, self._clock)
        elif rate_limiter.limits != key.limits:
            rate_limiter.set_limits(key.limits)
        scopes = included_scopes(key.scopes)
        return Grant(key.id, scopes, rate_limiter, key, self._ends, self._lexicon_of(key))

    def _report_old_scope(self, key: ApiKey) -> None:
        if Scope.CALLS in key.scopes and key.id not in self._reported_keys:
            self._reported_keys.add(key.id)
            logger.warning(
                "Key %s (%s) has the old scope 'calls', which means page, calls:all and originate; "
                "'vivavoce keys change %s --scope ...' gives it what it needs",
                *(key.id, key.name, key.id),
            )

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
