"""The registrar of phones on a network in virtual time: what is bound, for how long, and what is refused."""

from collections.abc import Iterator

import pytest

from shared.sip.network import SipNetwork, SipPeer
from vivavoce.adapters.sip.message import SipHeaders, SipRequest, SipResponse
from vivavoce.adapters.sip.transactions import ServerTransaction, SipFlow
from vivavoce.gateway.calls.ways_in.sip.registrar import SipRegistrar


class RegistrarTest:
    """A registrar, at which a phone of anna's registers."""

    def __init__(self) -> None:
        self.network = SipNetwork()
        self.server = SipPeer(self.network, "10.0.0.1")
        self.phone = SipPeer(self.network, "10.0.0.2")
        self.registrar = SipRegistrar(lambda: self.network.now)
        self.server.on_register = self._register  # type: ignore[method-assign]
        self._numbers: Iterator[int] = iter(range(1, 1000))

    def _register(self, transaction: ServerTransaction) -> None:
        self.registrar.register(transaction, "anna")

    def register(self, *contacts: str, expires: str = "", user: str = "anna") -> SipResponse:
        number = next(self._numbers)
        pairs = (
            ("via", f"SIP/2.0/UDP 10.0.0.2;branch=z9hG4bK{number}"),
            ("from", f"<sip:{user}@10.0.0.1>;tag=1"),
            ("to", f"<sip:{user}@10.0.0.1>"),
            ("call-id", f"register{number}"),
            ("cseq", "1 REGISTER"),
            *(("contact", contact) for contact in contacts),
            *([("expires", expires)] if expires else []),
        )
        request = SipRequest("REGISTER", "sip:10.0.0.1", SipHeaders(pairs))
        self.network.send(bytes(request), self.phone.flow_to(self.server), self.phone.host)
        self.network.run(0.1)
        response = self.network.sent[-1].message
        assert isinstance(response, SipResponse)
        return response

    @property
    def phones(self) -> list[str]:
        return [phone.contact for phone in self.registrar.phones("anna")]


DESK, MOBILE = "<sip:anna@10.0.0.2:5060>", "<sip:anna@10.0.0.2:5070>"


def test_a_phone_is_bound_until_its_registration_expires() -> None:
    test = RegistrarTest()
    response = test.register(DESK, expires="120")
    assert response.headers.values("contact") == [f"{DESK};expires=120"]
    (phone,) = test.registrar.phones("anna")
    assert phone.flow == SipFlow("udp", ("10.0.0.2", 5060))
    test.network.run(118)
    assert test.phones == ["sip:anna@10.0.0.2:5060"]
    test.network.run(2)
    assert test.phones == []
    assert test.register().headers.values("contact") == []


def test_the_time_of_a_contact_goes_before_that_of_all_and_is_bounded() -> None:
    test = RegistrarTest()
    values = test.register(f"{DESK};expires=90", MOBILE, expires="86400").headers.values("contact")
    assert values == [f"{MOBILE};expires=3600", f"{DESK};expires=90"]


@pytest.mark.parametrize(
    ("contacts", "expires", "status", "left"),
    [
        (["*"], "0", 200, 0),
        (["*"], "", 400, 2),
        (["*"], "600", 400, 2),
        ([DESK], "0", 200, 1),
        ([f"{MOBILE};expires=0"], "600", 200, 1),
        ([f"{DESK};expires=0", f"{MOBILE};expires=59"], "", 423, 2),  # all of a request, or nothing
        (["<tel:+1>"], "", 400, 2),
    ],
)
def test_bindings_are_removed(contacts: list[str], expires: str, status: int, left: int) -> None:
    test = RegistrarTest()
    test.register(DESK, MOBILE)
    response = test.register(*contacts, expires=expires)
    assert (response.status, len(test.phones)) == (status, left)
    assert response.headers.get("min-expires") == ("60" if status == 423 else "")


def test_a_user_has_at_most_eight_phones_and_the_oldest_makes_room() -> None:
    test = RegistrarTest()
    for number in range(10):
        test.register(f"<sip:anna@10.0.0.2:{6000 + number}>")
        test.network.run(1)
    assert test.phones == [f"sip:anna@10.0.0.2:{6009 - number}" for number in range(8)]


def test_a_phone_of_another_user_is_refused() -> None:
    test = RegistrarTest()
    assert test.register("<sip:bob@10.0.0.2>", user="bob").status == 403
    assert test.registrar.phones("bob") == test.registrar.phones("anna") == []
