"""A day of registrations in virtual time, against servers that refuse, fail, move and forget."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from shared.sip.network import SipNetwork, SipPeer
from vivavoce.adapters.sip.digest import Credentials
from vivavoce.adapters.sip.headers import SipUri
from vivavoce.adapters.sip.message import SipRequest
from vivavoce.adapters.sip.registration import Account, Registration
from vivavoce.adapters.sip.transactions import ServerTransaction, SipFlow

HOUR_S = 3600
DAY_S = 24 * HOUR_S


class Registrar(SipPeer):
    """A provider's server, whose nonces grow old, and which fails as a test says."""

    def __init__(self, network: SipNetwork, host: str, granted_s: int = 300) -> None:
        super().__init__(network, host, passwords={"alice": "secret"})
        self.granted_s = granted_s
        self.bound_until = 0.0
        self.refuses: Callable[[], tuple[int, tuple[tuple[str, str], ...]] | None] = lambda: None

    def on_register(self, transaction: ServerTransaction) -> None:
        request = transaction.request
        if (refusal := self.refuses()) is not None:
            transaction.respond(request.response(refusal[0], *refusal[1]))
            return
        expires_s = min(int(request.headers.get("expires")), self.granted_s)
        self.bound_until = self.network.now + expires_s
        contact = request.headers.get("contact").partition(";expires")[0]
        transaction.respond(request.response(200, ("contact", f"{contact};expires={expires_s}")))


@dataclass
class Day:
    """A client, its registrars, and the times for which nobody had its registration."""

    network: SipNetwork = field(default_factory=SipNetwork)
    expires_s: int = 300
    password: str = "secret"
    servers: list[Registrar] = field(default_factory=list)
    found: list[str] | None = None  # by the name server; None: all servers
    asked: int = 0

    def __post_init__(self) -> None:
        self.client = SipPeer(self.network, "10.0.0.1")
        self.servers = [Registrar(self.network, host) for host in ("10.1.0.1", "10.1.0.2")]
        account = Account(SipUri("example.com", "alice"), self.expires_s, Credentials("alice", self.password))
        self.registration = Registration(
            self.client.endpoint,
            account,
            lambda flow: self.client.endpoint.contact(flow, "alice"),
            self.look_up,
        )

    def look_up(self, take: Callable[[Sequence[SipFlow]], None]) -> None:
        self.asked += 1
        hosts = [server.host for server in self.servers] if self.found is None else self.found
        take([SipFlow("udp", (host, 5060)) for host in hosts])

    def run(self, seconds: float) -> list[float]:
        """Return the moments, 0.25 s apart, at which no server would send us a call."""
        gone = []
        for _ in range(round(4 * seconds)):
            self.network.run(0.25)
            if not any(server.bound_until > self.network.now for server in self.servers):
                gone.append(self.network.now)
        return gone


def test_six_hours_without_trouble() -> None:
    day = Day()
    day.registration.start()
    day.run(1)
    assert day.run(6 * HOUR_S) == []
    registers = [sent for sent in day.network.sent if sent.name == "REGISTER"]
    assert len(registers) == pytest.approx(2 * 6 * HOUR_S / 150, abs=4)  # each half of 300 s is challenged


@pytest.mark.parametrize(("password", "is_registered"), [("secret", True), ("wrong", False)])
def test_a_proxy_asks_for_the_password(password: str, is_registered: bool) -> None:
    day = Day(password=password)
    day.servers[0].is_proxy = True
    day.registration.start()
    day.run(1)
    assert day.registration.is_registered is is_registered
    assert day.registration.problem.startswith("" if is_registered else "407")
    assert "407" in day.network.names(day.servers[0].host)


def test_a_day_of_short_grants_and_nonces_that_grow_old() -> None:
    day = Day(expires_s=3600)
    day.servers[0].granted_s = 60
    day.registration.start()
    day.run(1)
    assert day.run(2 * HOUR_S) == []


def test_a_server_that_is_away_is_replaced_by_the_next() -> None:
    day = Day()
    day.registration.start()
    day.run(1)
    away = day.servers[0].host
    day.network.loses = lambda sent: sent.source == away
    assert day.run(HOUR_S) == []
    assert day.registration.flow == SipFlow("udp", (day.servers[1].host, 5060))


def test_nobody_is_unregistered_longer_than_all_servers_are_away() -> None:
    day = Day()
    day.registration.start()
    day.run(1)
    day.network.loses = lambda sent: sent.source.startswith("10.1.")
    assert day.run(HOUR_S) != []  # the grants are over
    assert not day.registration.is_registered
    day.network.loses = lambda sent: False
    back = day.network.now
    gone = [at - back for at in day.run(HOUR_S)]
    assert max(gone, default=0.0) <= 32 + 10  # a request under way times out, and the next try comes
    assert day.registration.is_registered


def test_a_day_with_all_troubles_is_without_registration_only_while_the_server_is_away() -> None:
    """The bound: the absence and 42 s, in which a request times out (32 s) and the next follows (10 s)."""
    day = Day(found=["10.1.0.1"])  # whose nonces are new for each of its challenges
    begin, first = day.network.now, day.servers[0]
    day.registration.start()
    day.run(1)
    gone = day.run(6 * HOUR_S)
    refusing = day.network.now + 100
    first.refuses = lambda: (503, (("retry-after", "100"),)) if day.network.now < refusing else None
    gone += day.run(6 * HOUR_S)
    assert "503" in day.network.names(first.host) and gone == []
    away = day.network.now
    day.network.loses = lambda sent: first.host == sent.source
    gone += day.run(1200)
    day.network.loses = lambda sent: False
    back = day.network.now
    gone += day.run(6 * HOUR_S - 1200)
    day.found = ["10.1.0.2"]
    gone += day.run(begin + DAY_S - day.network.now)
    assert day.registration.flow == SipFlow("udp", ("10.1.0.2", 5060))
    assert day.servers[1].bound_until > day.network.now
    nonces = [sent.data.partition(b"nonce=")[2][:32] for sent in day.network.sent if sent.name == "401"]
    assert len(nonces) == len(set(nonces)) > 500
    assert gone and away < gone[0] and gone[-1] <= back + 32 + 10


def test_retry_after_is_kept_and_the_other_server_asked() -> None:
    day = Day()
    refused: list[float] = []

    def refuse() -> tuple[int, tuple[tuple[str, str], ...]] | None:
        if day.network.now < 1000 + 600:
            refused.append(day.network.now)
            return 503, (("retry-after", "120"),)
        return None

    day.servers[0].refuses = refuse
    day.registration.start()
    day.run(1)
    assert day.run(HOUR_S) == []
    assert len(refused) == 1
    assert day.registration.flow == SipFlow("udp", (day.servers[1].host, 5060))


def test_a_single_server_is_not_asked_before_its_time() -> None:
    day = Day(found=["10.1.0.1"])
    day.servers[0].refuses = lambda: (503, (("retry-after", "100"),)) if day.network.now < 1090 else None
    day.registration.start()
    day.run(120)
    registers = [sent.at for sent in day.network.sent if sent.name == "REGISTER"]
    assert [round(at - 1000) for at in registers] == [0, 0, 100, 100]
    assert day.registration.is_registered


def test_a_change_of_the_name_moves_the_registration() -> None:
    day = Day(found=["10.1.0.1"])
    day.registration.start()
    day.run(1)
    day.found = ["10.1.0.2"]
    assert day.run(HOUR_S) == []
    assert day.registration.flow == SipFlow("udp", ("10.1.0.2", 5060))
    day.found = []  # the name server fails: the address of last time serves on
    assert day.run(HOUR_S) == []


def test_an_interval_that_is_too_brief_is_lengthened() -> None:
    day = Day(expires_s=60)
    day.servers[0].granted_s = 7200

    def refuse() -> tuple[int, tuple[tuple[str, str], ...]] | None:
        last = day.network.sent[-1].message
        assert isinstance(last, SipRequest)
        return (423, (("min-expires", "1800"),)) if int(last.headers.get("expires")) < 1800 else None

    day.servers[0].refuses = refuse
    day.registration.start()
    day.run(1)
    assert day.registration.registered_until == pytest.approx(1000 + 1800, abs=2)


def test_a_wrong_password_is_tried_once_a_minute() -> None:
    day = Day(password="wrong")
    day.registration.start()
    day.run(HOUR_S)
    assert day.network.names(day.client.host).count("REGISTER") == pytest.approx(2 * 60, abs=4)
    assert day.registration.problem.startswith("401")


def test_a_registration_is_removed_at_the_end() -> None:
    day = Day()
    day.registration.start()
    day.run(1)
    day.registration.stop()
    day.run(1)
    last = [sent.message for sent in day.network.sent if sent.name == "REGISTER"][-1]
    assert isinstance(last, SipRequest)
    assert last.headers.get("expires") == "0"
    assert day.servers[0].bound_until <= day.network.now
    assert day.run(HOUR_S) != []
