"""Admission of SIP requests: those of trunks, of peers that are named, and of users with a password.

Everyone else gets silence, so that a scanner learns nothing. An address that sends too much, or guesses
passwords, gets it too.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from .....adapters.sip.digest import DigestChallenger
from .....adapters.sip.endpoint import RequestVerdict
from .....adapters.sip.headers import SipSyntaxError
from .....adapters.sip.message import SipRequest
from .....adapters.sip.transactions import SipFlow
from ....access.networks import AddressSet

logger = logging.getLogger(__name__)

REALM: Final = "vivavoce"
_MAX_ADDRESSES: Final = 10_000
_REQUESTS_PER_S: Final = 50.0  # of one address, outside of calls; 20 calls a second need 20 to 40
_BURST_S: Final = 2.0  # of requests that may come at once
_MAX_WRONG: Final = 5  # passwords, after which an address gets silence
_WRONG_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class SipOrigin:
    """Who sent a request."""

    trunk: str = ""  # name of a trunk
    user: str = ""  # that has proved its password


@dataclass(slots=True)
class _AddressRecord:
    """What an address did lately."""

    room: float  # requests that it may send now
    at: float
    wrong: int = 0  # answers to challenges
    wrong_at: float = 0.0


@dataclass(slots=True)
class SipAdmission:
    """Admits requests.

    Args:
        find_trunk: returns the name of the trunk that a request comes from; "": none.
        peers: addresses that need no password.
    """

    find_trunk: Callable[[SipRequest, SipFlow], str]
    peers: AddressSet
    passwords: Mapping[str, str]
    now: Callable[[], float] = time.monotonic
    unix_now: Callable[[], float] = time.time
    _addresses: dict[str, _AddressRecord] = field(default_factory=dict)
    _challenger: DigestChallenger = field(init=False)

    def __post_init__(self) -> None:
        self._challenger = DigestChallenger(REALM, self.passwords.get)

    def challenges(self, request: SipRequest) -> list[str]:
        """Return the values of WWW-Authenticate for a request."""
        return self._challenger.challenges(request, self.unix_now())

    def admit(self, request: SipRequest, flow: SipFlow) -> tuple[RequestVerdict, SipOrigin]:
        """Say what becomes of a request that begins something, and who sent it."""
        record = self._record_of(flow.host)
        if record.room < 1.0:
            return self._refuse_flood(request, flow), SipOrigin()
        record.room -= 1.0
        if trunk := self.find_trunk(request, flow):
            return RequestVerdict.ADMITTED, SipOrigin(trunk=trunk)
        if flow.host in self.peers:
            return RequestVerdict.ADMITTED, SipOrigin()
        return self._authenticate(request, flow, record)

    def _refuse_flood(self, request: SipRequest, flow: SipFlow) -> RequestVerdict:
        is_known = flow.host in self.peers or bool(self.find_trunk(request, flow))
        return RequestVerdict.BUSY if is_known else RequestVerdict.SILENCE

    def _authenticate(
        self, request: SipRequest, flow: SipFlow, record: _AddressRecord
    ) -> tuple[RequestVerdict, SipOrigin]:
        if not self._names_user(request) or record.wrong >= _MAX_WRONG:
            return RequestVerdict.SILENCE, SipOrigin()
        if "authorization" not in request.headers:
            return RequestVerdict.CHALLENGE, SipOrigin()
        user = self._challenger.verify(request, self.unix_now())
        if user is not None:
            record.wrong = 0
            return RequestVerdict.ADMITTED, SipOrigin(user=user)
        if self._challenger.is_stale(request, self.unix_now()):
            return RequestVerdict.CHALLENGE, SipOrigin()
        record.wrong, record.wrong_at = record.wrong + 1, self.now()
        if record.wrong == _MAX_WRONG:
            logger.warning("SIP: %s has sent %d wrong passwords, and is ignored", flow.host, _MAX_WRONG)
        return RequestVerdict.CHALLENGE, SipOrigin()

    def _names_user(self, request: SipRequest) -> bool:
        """Return whether From names a user: a challenge would tell a scanner that SIP is here."""
        try:
            return request.from_.sip_uri.number in self.passwords
        except SipSyntaxError:
            return False

    def _record_of(self, host: str) -> _AddressRecord:
        now, most = self.now(), max(2.0, _BURST_S * _REQUESTS_PER_S)
        record = self._addresses.pop(host, None)
        if record is None:
            if len(self._addresses) >= _MAX_ADDRESSES:
                del self._addresses[next(iter(self._addresses))]
            record = _AddressRecord(most, now)
        self._addresses[host] = record  # the newest is last
        record.room = min(most, record.room + (now - record.at) * _REQUESTS_PER_S)
        record.at = now
        if record.wrong and now - record.wrong_at > _WRONG_S:
            record.wrong = 0
        return record
