"""Calls before they are answered: progress that is acknowledged (100rel), and redirects."""

from dataclasses import replace

import pytest

from shared.sip.network import ANSWER, OFFER, SipPeer, listener_of, two_peers
from vivavoce.adapters.sip.headers import SipUri
from vivavoce.adapters.sip.incoming import IncomingSession
from vivavoce.adapters.sip.message import SipRequest
from vivavoce.adapters.sip.session import SessionState


def test_an_answer_may_be_in_a_progress_that_is_acknowledged() -> None:
    network, alice, bob = two_peers()
    bob.answers_calls = False
    session = alice.call(bob)
    network.run(0.1)
    invite = bob.calls[0].request
    contact = ("contact", "<sip:bob@10.0.0.2>")

    def progress(rseq: int, body: bytes) -> None:
        reliable = (("require", "100rel"), ("rseq", str(rseq)), contact)
        response = invite.response(
            183, *reliable, to_tag=bob.calls[0].dialog.local.tag, body=body, content_type="application/sdp"
        )
        network.send(bytes(response), bob.flow_to(alice), bob.host)

    for rseq, body in ((7, ANSWER), (7, ANSWER), (9, OFFER), (8, b"")):  # 9 comes too early
        progress(rseq, body)
        network.run(0.1)
    acknowledged = [sent.message for sent in network.sent if sent.name == "PRACK"]
    assert [request.headers.get("rack") for request in acknowledged if request] == [
        f"7 {invite.cseq} INVITE",
        f"8 {invite.cseq} INVITE",
    ]
    assert listener_of(session).events.count(("progress", 183)) == 2
    bob.calls[0].answer(b"")
    network.run(0.5)
    assert listener_of(session).events[-1] == ("answered", ANSWER)
    session.hang_up()
    network.run(0.5)
    (bye,) = [sent.message for sent in network.sent if sent.name == "BYE"]
    assert isinstance(bye, SipRequest) and bye.cseq == invite.cseq + 3


def test_a_call_that_must_not_ring_unacknowledged_is_answered_all_the_same() -> None:
    network, alice, bob = two_peers()
    bob.answers_calls = False
    session = alice.call(bob, headers=(("require", "100rel"),))
    network.run(0.1)
    bob.calls[0].ring()
    bob.calls[0].answer(ANSWER)
    network.run(0.5)
    assert "180" not in network.names(bob.host) and session.state is SessionState.UP


def redirecting(bob: SipPeer, *contacts: str) -> None:
    """Have a peer answer every call with 302."""
    bob.answers_calls = False
    bob.on_call = lambda session: session.reject(  # type: ignore[method-assign]
        302, *(("contact", contact) for contact in contacts)
    )


def test_a_redirect_is_followed_where_the_owner_says() -> None:
    network, alice, bob = two_peers()
    carol = SipPeer(network, "10.0.0.3")
    redirecting(bob, "<sip:x@10.0.0.9>;q=0.2", "<sip:carol@10.0.0.3>;q=0.9", "<tel:+1>")
    led: list[str] = []

    def decide(addresses: list[SipUri]) -> bool:
        led.extend(str(address) for address in addresses)
        invite = replace(session.invite, target=addresses[0], flow=alice.flow_to(carol))
        network.timers.set(1.0, lambda: session.follow(invite, None))
        return True

    session = alice.call(bob)
    session.on_redirect = decide
    network.run(3)
    assert led == ["sip:carol@10.0.0.3", "sip:x@10.0.0.9"]
    assert session.state is SessionState.UP and len(carol.calls) == 1
    invite = carol.calls[0].request
    assert (invite.uri, invite.to.uri) == ("sip:carol@10.0.0.3", "sip:bob@10.0.0.2")
    assert network.names(alice.host).count("ACK") == 2


def test_a_redirect_that_nobody_follows_ends_the_call() -> None:
    network, alice, bob = two_peers()
    redirecting(bob, "<sip:carol@10.0.0.3>")
    session = alice.call(bob)
    network.run(1)
    assert listener_of(session).events == [("ended", 302)]


@pytest.mark.parametrize("circles", [True, False])
def test_redirects_are_bounded(circles: bool) -> None:
    network, alice, bob = two_peers()
    numbers = iter(range(100))
    bob.answers_calls = False

    def redirect(session: IncomingSession) -> None:
        user = "bob" if circles else f"bob{next(numbers)}"
        session.reject(302, ("contact", f"<sip:{user}@10.0.0.2>"))

    bob.on_call = redirect  # type: ignore[method-assign]
    session = alice.call(bob)

    def follow(addresses: list[SipUri]) -> bool:
        session.follow(replace(session.invite, target=addresses[0]), None)
        return True

    session.on_redirect = follow
    network.run(3)
    assert listener_of(session).events == [("ended", 302)]
    assert network.names(alice.host).count("INVITE") == (1 if circles else 6)


def test_a_call_is_cancelled_while_a_redirect_is_being_looked_up() -> None:
    network, alice, bob = two_peers()
    redirecting(bob, "<sip:carol@10.0.0.3>")
    session = alice.call(bob)
    session.on_redirect = lambda addresses: True
    network.run(1)
    session.hang_up()
    session.follow(session.invite, None)
    network.run(1)
    assert listener_of(session).events == [("ended", 487)] and network.names(alice.host).count("INVITE") == 1


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_server_that_takes_no_call_is_replaced_once(is_dead: bool) -> None:
    network, alice, bob = two_peers()
    carol = SipPeer(network, "10.0.0.3")
    bob.answers_calls = False
    bob.on_call = lambda session: session.reject(503)  # type: ignore[method-assign]
    if is_dead:
        network.loses = lambda sent: sent.source == bob.host
    session, asked = alice.call(bob), list[str]()

    def go_on() -> bool:
        asked.append(session.invite.flow.host)
        session.follow(replace(session.invite, flow=alice.flow_to(carol)), None)
        return True

    session.on_unreachable = go_on
    network.run(40)
    assert asked == [bob.host] and session.state is SessionState.UP
    assert carol.calls[0].request.uri == "sip:bob@10.0.0.2"


def test_a_server_without_another_one_ends_the_call() -> None:
    network, alice, bob = two_peers()
    bob.on_call = lambda session: session.reject(503)  # type: ignore[method-assign]
    session = alice.call(bob)
    network.run(1)
    assert listener_of(session).events == [("ended", 503)]
