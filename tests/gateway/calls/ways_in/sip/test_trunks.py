"""Trunks: their servers by SRV, an outbound proxy, several of them, and storms of requests."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import pytest

from shared.calls.call_server import run
from shared.sip.network import SipNetwork, SipPeer
from vivavoce.adapters.sip.digest import Credentials, answer_challenge
from vivavoce.adapters.sip.endpoint import RequestVerdict
from vivavoce.adapters.sip.message import SipHeaders, SipRequest, parse_message
from vivavoce.adapters.sip.transactions import SipFlow
from vivavoce.gateway.access.networks import AddressSet
from vivavoce.gateway.calls.ways_in.sip.admission import SipAdmission
from vivavoce.gateway.calls.ways_in.sip.resolver import SipResolver
from vivavoce.gateway.calls.ways_in.sip.settings import SipTrunkTable
from vivavoce.gateway.calls.ways_in.sip.trunks import SipTrunk

ADDRESSES = {"a.example.com": "10.0.0.2", "b.example.com": "10.0.0.3", "proxy.example.net": "10.0.0.4"}


@dataclass
class Record:
    priority: int
    target: str
    port: int = 5060
    weight: int = 1


class NamedResolver(SipResolver):
    """Knows the records that a test gives it."""

    def __init__(self, **records: list[Record]) -> None:
        self.records = records

    async def srv(self, name: str) -> list[Record]:  # type: ignore[override]
        return self.records.get(name.partition(".")[0].lstrip("_"), []) if "example.com" in name else []

    async def _addresses(self, host: str, port: int | None, transport: str) -> list[SipFlow]:
        transport = "udp" if transport == "auto" else transport
        return [SipFlow(transport, (ADDRESSES[host], port or 5060))] if host in ADDRESSES else []


SERVERS = [Record(20, "b.example.com", 5080), Record(10, "a.example.com")]


@pytest.mark.parametrize(
    ("transport", "records", "found"),
    [
        ("auto", {"sip": SERVERS}, ["udp 10.0.0.2:5060", "udp 10.0.0.3:5080"]),
        ("auto", {"sip": SERVERS, "sips": [Record(1, "b.example.com", 5061)]}, ["tls 10.0.0.3:5061"]),
        ("udp", {"sip": SERVERS, "sips": [Record(1, "b.example.com", 5061)]}, ["udp 10.0.0.2:5060"]),
        ("auto", {"sip": [Record(1, "gone.example.com")]}, []),
    ],
)
def test_the_servers_of_a_domain_are_found_in_their_order(
    transport: str, records: dict[str, list[Record]], found: list[str]
) -> None:
    flows = asyncio.run(NamedResolver(**records).find("example.com", None, transport))
    named = [f"{flow.transport} {flow.address[0]}:{flow.address[1]}" for flow in flows]
    assert named[: len(found)] == found and bool(named) == bool(found)


class TrunkTest:
    """A gateway's endpoint on a network in virtual time, with trunks."""

    def __init__(self, resolver: SipResolver) -> None:
        self.network = SipNetwork()
        self.peer = SipPeer(self.network, "10.0.0.1")
        self.resolver = resolver

    def trunk(self, name: str = "trunk", **table: str) -> SipTrunk:
        settings = SipTrunkTable.model_validate({"host": "example.com", "user": "4930"} | table)
        trunk = SipTrunk(
            name, settings, self.peer.endpoint, self.resolver, lambda flow: None, lambda host, name: None
        )
        trunk.start()
        return trunk

    async def run(self, seconds: float) -> None:
        """Let time pass, and lookups be answered."""
        for _ in range(round(seconds)):
            self.network.run(1.0)
            for _ in range(5):
                await asyncio.sleep(0)


def scenario(test: Callable[[], Awaitable[None]]) -> None:
    run(test())


def test_a_trunk_whose_server_is_dead_registers_at_the_next_one() -> None:
    async def test() -> None:
        there = TrunkTest(NamedResolver(sip=SERVERS))
        second = SipPeer(there.network, "10.0.0.3")
        trunk = there.trunk()
        await there.run(45)
        assert second.registers and trunk.server == SipFlow("udp", ("10.0.0.3", 5080))
        await trunk.aclose()

    scenario(test)


def test_a_trunk_without_registration_avoids_a_server_that_took_no_call() -> None:
    async def test() -> None:
        there = TrunkTest(NamedResolver(sip=SERVERS))
        trunk = there.trunk(user="")
        await there.run(1)
        first = trunk.server
        assert first == SipFlow("udp", ("10.0.0.2", 5060))
        trunk.avoid(first)
        assert trunk.server == SipFlow("udp", ("10.0.0.3", 5080))
        await trunk.aclose()

    scenario(test)


def test_requests_go_to_the_outbound_proxy_and_name_the_trunk() -> None:
    async def test() -> None:
        there = TrunkTest(NamedResolver(sip=SERVERS))
        proxy = SipPeer(there.network, "10.0.0.4")
        trunk = there.trunk(outbound_proxy="proxy.example.net:5070")
        await there.run(2)
        assert proxy.registers[0].request.uri == "sip:example.com"
        assert trunk.server == SipFlow("udp", ("10.0.0.4", 5070))
        assert str(trunk.address_of("+4930")) == "sip:+4930@example.com"
        await trunk.aclose()

    scenario(test)


@pytest.mark.parametrize("right", [True, False])
def test_no_password_is_logged_or_shown(right: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        there = TrunkTest(NamedResolver(sip=[Record(1, "a.example.com")]))
        secret = "c0rrect-h0rse"
        SipPeer(there.network, "10.0.0.2", passwords={"4930": secret if right else "another"})
        with caplog.at_level(logging.DEBUG):
            trunk = there.trunk(password=secret)
            await there.run(2)
            there.network.loses = lambda sent: True
            await there.run(600)
            await trunk.aclose()
        assert ("registered at" if right else "is not registered: 401") in caplog.text
        assert "is not registered" in caplog.text
        shown = (repr(Credentials("4930", secret)), repr(trunk), repr(trunk.registration), caplog.text)
        assert secret not in " ".join(shown)
        assert all(secret.encode() not in sent.data for sent in there.network.sent)

    scenario(test)


def test_a_call_belongs_to_the_trunk_whose_server_or_contact_it_comes_by() -> None:
    async def test() -> None:
        there = TrunkTest(NamedResolver())
        peers = [SipPeer(there.network, host) for host in ("10.0.0.2", "10.0.0.3")]
        trunks = [there.trunk(name, host=f"{name}.example.com") for name in ("a", "b")]
        await there.run(2)
        assert [len(peer.registers) for peer in peers] == [1, 1]
        assert len({trunk.token for trunk in trunks}) == 2
        peers[0].call(there.peer, user=trunks[1].token)
        invite = there.network.sent[-1].message
        assert isinstance(invite, SipRequest)
        owners = [trunk.owns(invite, SipFlow("udp", ("10.9.9.9", 5060))) for trunk in trunks]
        assert owners == [False, True]  # by the Contact that only the second one knows
        stranger = replace(invite, uri="sip:100@10.0.0.1")
        for host, owned in (("10.0.0.2", [True, False]), ("10.0.0.3", [False, True])):
            assert [trunk.owns(stranger, SipFlow("udp", (host, 5060))) for trunk in trunks] == owned
        assert not any(trunk.owns(stranger, SipFlow("udp", ("10.9.9.9", 5060))) for trunk in trunks)
        for trunk in trunks:
            await trunk.aclose()

    scenario(test)


def register(user: str = "anna") -> SipRequest:
    text = (
        f"REGISTER sip:10.0.0.1 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.9;branch=z9hG4bK1\r\n"
        f"From: <sip:{user}@10.0.0.1>;tag=1\r\nTo: <sip:{user}@10.0.0.1>\r\n"
        "Call-ID: 1\r\nCSeq: 1 REGISTER\r\n\r\n"
    )
    request = parse_message(text.encode())
    assert isinstance(request, SipRequest)
    return request


def proven(challenges: list[str], password: str = "secret") -> SipRequest:
    """A REGISTER that answers a challenge."""
    request = register()
    answer = answer_challenge(challenges, Credentials("anna", password), "REGISTER", request.uri)
    assert answer is not None
    return replace(request, headers=SipHeaders((*request.headers.pairs, ("authorization", answer))))


STRANGER = SipFlow("udp", ("10.0.0.9", 5060))


@pytest.mark.parametrize("nonce", ["expired", "of an earlier process"])
def test_a_right_password_with_an_old_nonce_is_challenged_anew_and_no_wrong_one(nonce: str) -> None:
    now, users = 0.0, {"anna": "secret"}

    def admission_of() -> SipAdmission:
        nobody = AddressSet.parse([])
        return SipAdmission(lambda *_: "", nobody, users, now=lambda: now, unix_now=lambda: now)

    admission = admission_of()
    old = (admission if nonce == "expired" else admission_of()).challenges(register())
    assert all("stale" not in value for value in old)
    now = 302.0
    for _ in range(10):
        assert admission.admit(proven(old), STRANGER)[0] is RequestVerdict.CHALLENGE
    fresh = admission.challenges(proven(old))
    assert all("stale=true" in value for value in fresh)
    verdict, origin = admission.admit(proven(fresh), STRANGER)
    assert (verdict, origin.user) == (RequestVerdict.ADMITTED, "anna")


@pytest.mark.parametrize("age_s", [0.0, 302.0])
def test_a_wrong_password_counts_whatever_its_nonce(age_s: float) -> None:
    now, users = 0.0, {"anna": "secret"}
    nobody = AddressSet.parse([])
    admission = SipAdmission(lambda *_: "", nobody, users, now=lambda: now, unix_now=lambda: now)
    wrong = proven(admission.challenges(register()), "guess")
    now = age_s
    assert all("stale" not in value for value in admission.challenges(wrong))
    verdicts = [admission.admit(wrong, STRANGER)[0] for _ in range(6)]
    assert verdicts == [RequestVerdict.CHALLENGE] * 5 + [RequestVerdict.SILENCE]


@pytest.mark.parametrize(
    ("agent", "algorithms"),
    [("Linphone/5.2", ["MD5", "SHA-256"]), ("baresip v1.0.0 (x86_64/linux)", ["MD5"])],
)
def test_a_phone_that_fails_at_other_challenges_gets_that_of_md5_alone(
    agent: str, algorithms: list[str]
) -> None:
    admission = SipAdmission(lambda *_: "", AddressSet.parse([]), {"anna": "secret"})
    request = register()
    headers = SipHeaders((*request.headers.pairs, ("user-agent", agent)))
    for index in range(len(algorithms)):
        challenges = admission.challenges(replace(request, headers=headers))
        assert [value.rpartition("algorithm=")[2] for value in challenges] == algorithms
        assert admission.admit(proven([challenges[index]]), STRANGER)[0] is RequestVerdict.ADMITTED


def test_a_storm_of_registrations_is_silenced_and_other_phones_are_heard() -> None:
    now, users = 0.0, {"anna": "secret"}
    admission = SipAdmission(
        lambda request, flow: "", AddressSet.parse([]), users, now=lambda: now, unix_now=lambda: now
    )
    request, verdicts = register(), []
    for number in range(3_000):  # a thousand a second
        now = number / 1_000
        verdicts.append(admission.admit(request, SipFlow("udp", ("10.0.0.9", 5060)))[0])
        if number % 100 == 0:
            other = admission.admit(request, SipFlow("udp", ("10.0.0.8", 5060)))[0]
            assert other is RequestVerdict.CHALLENGE
    assert verdicts.count(RequestVerdict.CHALLENGE) < 300
    assert set(verdicts) == {RequestVerdict.CHALLENGE, RequestVerdict.SILENCE}


def test_a_storm_from_many_addresses_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vivavoce.gateway.calls.ways_in.sip.admission._MAX_ADDRESSES", 100)
    admission, request = SipAdmission(lambda request, flow: "", AddressSet.parse([]), {}), register("scanner")
    for number in range(300):
        admission.admit(request, SipFlow("udp", (f"10.0.{number // 200}.{number % 200}", 5060)))
    assert len(admission._addresses) == 100
