"""Registration of one account at a provider, kept up through refusals, outages and changes of addresses.

    look up the servers --> REGISTER --> 200: again at half of the granted time, with a new look-up
                               |-> no answer, 5xx: the next server; after the last: soon again
                               |-> 423: a longer time          '-> Retry-After of the server is kept
                               '-> 401, 407 with a wrong password, 403: again after a minute

Source: RFC 3261, 10.2; RFC 3263, 4.3 (failover).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from .dialog import MAX_FORWARDS, new_tag
from .digest import Credentials
from .headers import NameAddress, SipSyntaxError, SipUri
from .message import SipHeaders, SipRequest, SipResponse
from .requests import ChallengedRequest, SessionHost
from .timers import Timer
from .transactions import SipFlow, new_branch

LookUp = Callable[[Callable[[Sequence[SipFlow]], None]], None]
_RETRY_S: Final = (1.0, 2.0, 5.0, 10.0)  # after all servers have failed; the last one from then on
_REFUSED_S: Final = 60.0  # a wrong password does not become right by asking often
_MAX_RETRY_AFTER_S: Final = 3600
_MIN_GRANTED_S: Final = 10


@dataclass(frozen=True, slots=True)
class Account:
    """What is registered."""

    address: SipUri  # address of record
    expires_s: int
    credentials: Credentials | None


class Registration:
    """One registration; ``start`` begins, ``stop`` removes it at the server.

    Args:
        contact: returns our URI as the server of a flow must see it.
        look_up: finds the servers, the best one first, and passes them on, now or later; none: it failed.
        on_change: called when it is registered, and at each attempt that leaves it unregistered.

    Attributes:
        flow: of the server that has it; None: none has.
        registered_until: monotonic seconds; 0: never registered.
        problem: why the last attempt failed; "": it did not.
    """

    def __init__(
        self,
        host: SessionHost,
        account: Account,
        contact: Callable[[SipFlow], SipUri],
        look_up: LookUp,
        on_change: Callable[["Registration"], None] = lambda registration: None,
    ) -> None:
        self.flow: SipFlow | None = None
        self.registered_until = 0.0
        self.problem = ""
        self._host = host
        self._account = account
        self._contact = contact
        self._look_up = look_up
        self._on_change = on_change
        self._expires_s = account.expires_s
        self._call_id = new_tag() + new_tag()
        self._tag = new_tag()
        self._cseq = 0
        self._servers: list[SipFlow] = []
        self._not_before: dict[SipFlow, float] = {}  # by Retry-After
        self._failures = 0  # of all servers, one after another
        self._timer: Timer | None = None
        self._is_stopping = False

    @property
    def is_registered(self) -> bool:
        """Whether the server sends us calls."""
        return self.registered_until > self._host.timers.now()

    def start(self) -> None:
        """Register, and stay so."""
        if not self._is_stopping:
            self._look_up(self._take_servers)

    def stop(self) -> None:
        """Remove the registration; its answer is not waited for."""
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self.flow is not None and self.is_registered:
            self._send(self.flow, 0)

    def _take_servers(self, servers: Sequence[SipFlow]) -> None:
        if self._is_stopping:
            return
        if not servers:  # the name server fails: the addresses of last time serve on
            servers = [self.flow] if self.flow is not None else self._servers
            self.problem = "its servers are not found"
        # The server that has it is asked first, as long as it is one of them.
        self._servers = sorted(servers, key=lambda server: server != self.flow)
        self._try_next()

    def _try_next(self) -> None:
        now = self._host.timers.now()
        while self._servers:
            server = self._servers.pop(0)
            if self._not_before.get(server, 0.0) <= now:
                self._send(server, self._expires_s)
                return
        self._retry()

    def _retry(self) -> None:
        wait_s = _RETRY_S[min(self._failures, len(_RETRY_S) - 1)]
        self._failures += 1
        now = self._host.timers.now()
        waits = [at - now for at in self._not_before.values() if at > now]
        self._start_after(max(wait_s, min(waits)) if waits else wait_s)
        if not self.is_registered:
            self._on_change(self)

    def _start_after(self, seconds: float) -> None:
        self._timer = self._host.timers.set(seconds, self.start)

    def _send(self, server: SipFlow, expires_s: int) -> None:
        def make(more: tuple[tuple[str, str], ...]) -> SipRequest:
            return self._make_request(server, expires_s, more)

        ChallengedRequest(
            self._host,
            make,
            server,
            self._account.credentials,
            lambda request, response: self._receive(server, response),
            lambda reason: self._fail(server, reason),
        )

    def _make_request(self, server: SipFlow, expires_s: int, more: tuple[tuple[str, str], ...]) -> SipRequest:
        self._cseq += 1
        account = self._account.address
        transport = server.transport.upper()
        pairs = (
            ("via", f"SIP/2.0/{transport} {self._host.sent_by(server)};rport;branch={new_branch()}"),
            ("max-forwards", MAX_FORWARDS),
            ("from", str(NameAddress(str(account), parameters={"tag": self._tag}))),
            ("to", f"<{account}>"),
            ("call-id", self._call_id),
            ("cseq", f"{self._cseq} REGISTER"),
            ("contact", f"<{self._contact(server)}>;expires={expires_s}"),
            ("expires", str(expires_s)),
            *more,
        )
        return SipRequest("REGISTER", str(SipUri(account.host, port=account.port)), SipHeaders(pairs))

    def _receive(self, server: SipFlow, response: SipResponse) -> None:
        status = response.status
        if status < 200 or self._is_stopping:
            return
        if status < 300:
            self._note_registered(server, response)
        elif status == 423:
            self._lengthen(server, response)
        elif status in (401, 403, 404, 407):
            self.problem = f"{status} {response.reason}"
            self._drop(server)
            self._start_after(_REFUSED_S)
            if not self.is_registered:
                self._on_change(self)
        else:
            self._keep_away(server, response)
            self._fail(server, f"{status} {response.reason}")

    def _note_registered(self, server: SipFlow, response: SipResponse) -> None:
        now = self._host.timers.now()
        granted_s = max(_MIN_GRANTED_S, self._granted(server, response))
        was_registered = self.is_registered and self.flow == server
        self.flow, self.registered_until = server, now + granted_s
        self.problem, self._failures = "", 0
        self._not_before = {each: at for each, at in self._not_before.items() if at > now}
        self._start_after(granted_s / 2)
        if not was_registered:
            self._on_change(self)

    def _granted(self, server: SipFlow, response: SipResponse) -> int:
        """Return the seconds that the server grants to our Contact."""
        ours = self._contact(server)
        for value in response.headers.values("contact"):
            try:
                contact = NameAddress.parse(value)
                is_ours = contact.sip_uri.user == ours.user and contact.sip_uri.host == ours.host
            except SipSyntaxError:
                continue
            if is_ours and contact.parameters.get("expires", "").isdecimal():
                return min(int(contact.parameters["expires"][:9]), 86_400)
        expires = response.headers.get("expires")
        return min(int(expires[:9]), 86_400) if expires.isdecimal() else self._expires_s

    def _lengthen(self, server: SipFlow, response: SipResponse) -> None:
        least = response.headers.get("min-expires").strip()
        if re.fullmatch(r"\d{1,6}", least) and int(least) > self._expires_s:
            self._expires_s = int(least)
            self._send(server, self._expires_s)
        else:
            self._fail(server, "423 without a longer time")

    def _keep_away(self, server: SipFlow, response: SipResponse) -> None:
        wanted = re.match(r"\d{1,9}", response.headers.get("retry-after").strip())
        if wanted is not None:
            wait_s = min(int(wanted[0]), _MAX_RETRY_AFTER_S)
            self._not_before[server] = self._host.timers.now() + wait_s

    def _fail(self, server: SipFlow, reason: str) -> None:
        if self._is_stopping:
            return
        self.problem = reason
        self._drop(server)
        self._try_next()

    def _drop(self, server: SipFlow) -> None:
        """Note that a server does not know us any more, once its grant is over."""
        if self.flow == server and not self.is_registered:
            self.flow = None
