"""A registrar for a handful of phones: where each user is, until its registration ends."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from .....adapters.sip.dialog import new_tag
from .....adapters.sip.headers import NameAddress, SipSyntaxError
from .....adapters.sip.transactions import ServerTransaction, SipFlow

_MIN_EXPIRES_S: Final = 60
_MAX_EXPIRES_S: Final = 3600
_MAX_PHONES: Final = 8  # of one user


@dataclass(frozen=True, slots=True)
class PhoneBinding:
    """One phone of a user."""

    contact: str  # URI
    flow: SipFlow  # by which it is reached, also behind NAT
    expires_at: float  # monotonic s


@dataclass(slots=True)
class SipRegistrar:
    """The phones that are registered."""

    now: Callable[[], float] = time.monotonic
    _phones: dict[str, dict[str, PhoneBinding]] = field(default_factory=dict)  # by user and Contact

    def phones(self, user: str) -> list[PhoneBinding]:
        """Return the phones of a user, the newest first."""
        known = {
            key: each for key, each in self._phones.get(user, {}).items() if each.expires_at > self.now()
        }
        self._phones[user] = known
        return sorted(known.values(), key=lambda each: -each.expires_at)

    def register(self, transaction: ServerTransaction, user: str) -> None:
        """Answer a REGISTER of a user who has proved the password."""
        request = transaction.request
        try:
            if request.to.sip_uri.number != user:
                transaction.respond(request.response(403, to_tag=new_tag()))  # nobody else's phone
                return
            status, extra = self._bind(transaction, user)
        except SipSyntaxError:
            status, extra = 400, ()
        found = self.phones(user)
        bindings = [
            ("contact", f"<{each.contact}>;expires={round(each.expires_at - self.now())}") for each in found
        ]
        headers = bindings if status == 200 else extra
        transaction.respond(request.response(status, *headers, to_tag=new_tag()))

    def _bind(self, transaction: ServerTransaction, user: str) -> tuple[int, tuple[tuple[str, str], ...]]:
        request = transaction.request
        common = request.headers.get("expires", str(_MAX_EXPIRES_S))
        contacts = request.headers.values("contact")
        if contacts == ["*"]:
            if common.strip() != "0":
                return 400, ()
            self._phones.pop(user, None)
            return 200, ()
        wanted = [_wanted(NameAddress.parse(value), common) for value in contacts]
        if any(0 < expires_s < _MIN_EXPIRES_S for _, expires_s in wanted):
            return 423, (("min-expires", str(_MIN_EXPIRES_S)),)
        self.phones(user)
        phones = self._phones[user]
        for uri, expires_s in wanted:
            phones.pop(uri, None)
            if expires_s:
                phones[uri] = PhoneBinding(uri, transaction.flow, self.now() + expires_s)
                if len(phones) > _MAX_PHONES:
                    del phones[next(iter(phones))]
        return 200, ()


def _wanted(contact: NameAddress, common: str) -> tuple[str, int]:
    """Return the URI of a Contact, and for how many seconds it wants to be registered."""
    wanted = contact.parameters.get("expires") or common
    expires_s = int(wanted[:9]) if wanted.isdecimal() else _MAX_EXPIRES_S
    return str(contact.sip_uri), min(expires_s, _MAX_EXPIRES_S)
