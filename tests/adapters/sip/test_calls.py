"""Calls between endpoints in virtual time: what is lost, crossed, repeated and forged."""

import pytest

from shared.sip.network import (
    ANSWER,
    OFFER,
    Sent,
    SipNetwork,
    SipPeer,
    listener_of,
    two_peers,
)
from vivavoce.adapters.sip.digest import Credentials
from vivavoce.adapters.sip.endpoint import RequestVerdict
from vivavoce.adapters.sip.headers import NameAddress
from vivavoce.adapters.sip.message import SipHeaders, SipRequest
from vivavoce.adapters.sip.session import SessionState


def lose_first(network: SipNetwork, name: str, count: int = 1) -> None:
    left = [count]

    def loses(sent: Sent) -> bool:
        if sent.name == name and left[0]:
            left[0] -= 1
            return True
        return False

    network.loses = loses


def test_a_call_is_answered_and_ended_by_either_side() -> None:
    network, alice, bob = two_peers()
    for ends_here in (True, False):
        session = alice.call(bob)
        network.run()
        (answered,) = bob.calls
        assert listener_of(session).last("answered") == ANSWER
        assert listener_of(answered).names() == ["confirmed"]
        (session if ends_here else answered).hang_up()
        network.run()
        assert listener_of(session).names() == ["answered", "ended"]
        assert listener_of(answered).names() == ["confirmed", "ended"]
        bob.calls.clear()
    network.run(60)
    assert (alice.endpoint.sessions, bob.endpoint.sessions) == (0, 0)


@pytest.mark.parametrize("name", ["INVITE", "100", "200", "ACK", "BYE"])
@pytest.mark.parametrize("count", [1, 3])
def test_a_lost_message_is_repeated(name: str, count: int) -> None:
    network, alice, bob = two_peers()
    lose_first(network, name, count)
    session = alice.call(bob)
    network.run(8)
    assert session.state is SessionState.UP
    session.hang_up()
    network.run(8)
    assert [listener_of(call).names() for call in bob.calls] == [["confirmed", "ended"]]


def test_a_call_without_an_acknowledgement_ends() -> None:
    network, alice, bob = two_peers()
    network.loses = lambda sent: sent.name == "ACK"
    alice.call(bob)
    network.run(40)
    assert listener_of(bob.calls[0]).names() == ["ended"]
    assert "BYE" in network.names(bob.host)


def test_a_refusal_without_an_acknowledgement_is_repeated_for_32_seconds() -> None:
    network, alice, bob = two_peers()
    network.loses = lambda sent: sent.name == "ACK"
    bob.on_call = lambda session: session.reject(486)  # type: ignore[method-assign]
    alice.call(bob)
    network.run(300)
    # 0, 0.5, 1.5, 3.5, 7.5 s, then every 4 s to 31.5 s
    assert network.names(bob.host) == ["100", *["486"] * 11]
    assert network.timers.next_at is None


def test_a_call_to_nobody_ends_after_32_seconds() -> None:
    network, alice, bob = two_peers()
    network.loses = lambda sent: True
    session = alice.call(bob)
    network.run(31)
    assert session.state is SessionState.NEW
    network.run(2)
    assert listener_of(session).events == [("ended", 408)]
    assert network.names() == ["INVITE"] * 7  # 0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5 s


def test_a_hang_up_before_the_acknowledgement_waits_for_it() -> None:
    network, alice, bob = two_peers()
    lose_first(network, "ACK")
    alice.call(bob)
    network.run(0.1)
    bob.calls[0].hang_up()
    assert "BYE" not in network.names(bob.host)
    network.run(2)
    assert network.names(bob.host)[-2:] == ["200", "BYE"]


def test_a_bye_of_the_caller_before_its_acknowledgement_ends_the_call() -> None:
    network, alice, bob = two_peers()
    network.loses = lambda sent: sent.name == "ACK"
    session = alice.call(bob)
    network.run(0.1)
    session.hang_up()
    network.run(40)
    assert listener_of(bob.calls[0]).names() == ["ended"]
    assert network.names(bob.host).count("200") == 2  # of INVITE and BYE, none repeated


def test_a_call_that_rings_is_cancelled() -> None:
    network, alice, bob = two_peers()
    bob.answers_calls = False
    session = alice.call(bob)
    network.run(0.1)
    bob.calls[0].ring()
    network.run(0.1)
    session.hang_up()
    network.run(1)
    assert listener_of(session).events == [("progress", 180), ("ended", 487)]
    assert listener_of(bob.calls[0]).events == [("ended", 487)]


@pytest.mark.parametrize("takes_cancel", [True, False])
def test_a_call_that_rings_too_long_has_no_answer(takes_cancel: bool) -> None:
    network, alice, bob = two_peers()
    bob.answers_calls = False
    if not takes_cancel:
        network.loses = lambda sent: sent.name == "487"
    session = alice.call(bob, max_ring_s=20)
    network.run(0.1)
    bob.calls[0].ring()
    network.run(19)
    assert listener_of(session).events == [("progress", 180)]
    network.run(60)
    assert listener_of(session).events == [("progress", 180), ("ended", 480)]
    assert listener_of(bob.calls[0]).events == [("ended", 487)]


def test_a_cancel_waits_for_the_first_response() -> None:
    network, alice, bob = two_peers()
    bob.answers_calls = False
    session = alice.call(bob)
    session.hang_up()
    assert network.names() == ["INVITE"]
    network.run(1)
    assert "CANCEL" in network.names(alice.host)
    assert listener_of(session).events == [("ended", 487)]


def test_an_answer_that_crosses_the_cancel_is_acknowledged_and_ended() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    session.hang_up()
    network.run(1)
    assert network.names(alice.host) == ["INVITE", "CANCEL", "ACK", "BYE"]
    assert listener_of(session).events == [("ended", 487)]
    assert listener_of(bob.calls[0]).names() == ["confirmed", "ended"]


def test_a_cancelled_call_to_a_silent_peer_is_cancelled() -> None:
    network, alice, bob = two_peers()
    network.loses = lambda sent: True
    session = alice.call(bob)
    session.hang_up()
    network.run(40)
    assert listener_of(session).events == [("ended", 487)]


def test_the_second_of_two_phones_that_answer_is_ended() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    network.run(0.5)
    (invite,) = [sent.message for sent in network.sent if sent.name == "INVITE"]
    assert isinstance(invite, SipRequest)
    contact = ("contact", "<sip:carol@10.0.0.3>")
    network.sent.clear()
    second = invite.response(200, contact, to_tag="other", body=ANSWER, content_type="application/sdp")
    alice.receive(bytes(second), alice.flow_to(bob))
    assert [sent.message.uri for sent in network.sent if isinstance(sent.message, SipRequest)] == [
        "sip:carol@10.0.0.3",
        "sip:carol@10.0.0.3",
    ]
    assert network.names() == ["ACK", "BYE"]
    assert session.state is SessionState.UP


@pytest.mark.parametrize("status", [302, 404, 480, 486, 500, 503, 603])
def test_a_refusal_has_its_status(status: int) -> None:
    network, alice, bob = two_peers()
    bob.answers_calls = False
    session = alice.call(bob)
    network.run(0.1)
    bob.calls[0].reject(status, ("contact", "<sip:premium@10.9.9.9>"))
    network.run(1)
    assert listener_of(session).events == [("ended", status)]
    assert network.names(alice.host) == ["INVITE", "ACK"]  # a redirection is not followed


def test_the_media_change_within_a_call() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    network.run()
    session.offer(OFFER + b"a=sendonly\r\n")
    network.run()
    assert listener_of(bob.calls[0]).last("offer") == OFFER + b"a=sendonly\r\n"
    assert listener_of(session).last("confirmed") == ANSWER
    assert listener_of(bob.calls[0]).names() == ["confirmed", "offer", "confirmed"]


def test_a_refused_change_leaves_the_call_as_it_is() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    network.run()
    listener_of(bob.calls[0]).refuses = 488
    session.offer(b"v=0\r\n")
    network.run()
    assert "488" in network.names(bob.host)
    assert session.state is bob.calls[0].state is SessionState.UP


def test_changes_that_cross_are_both_made_in_the_end() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    network.run()
    session.offer(OFFER)
    bob.calls[0].offer(ANSWER)
    network.run(10)
    assert network.names().count("491") == 2
    assert "offer" in listener_of(session).names()
    assert "offer" in listener_of(bob.calls[0]).names()


def test_an_offer_in_the_answer_is_answered_in_the_acknowledgement() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob, description=b"")
    network.run()
    assert listener_of(session).last("answered") == OFFER
    assert network.names(alice.host) == ["INVITE", "ACK"]


def test_a_request_by_another_way_is_merged() -> None:
    network, alice, bob = two_peers()
    alice.call(bob)
    network.run(0.1)
    (invite,) = [sent.message for sent in network.sent if sent.name == "INVITE"]
    assert isinstance(invite, SipRequest)
    other = invite.headers.replace("via", "SIP/2.0/UDP 10.0.0.9;branch=z9hG4bKother")
    bob.receive(bytes(SipRequest("INVITE", invite.uri, other, invite.body)), alice.flow_to(alice))
    assert network.names(bob.host)[-1] == "482"
    assert len(bob.calls) == 1


def test_a_call_of_ours_that_comes_back_is_a_loop() -> None:
    network, alice, bob = two_peers()
    alice.call(bob)
    (invite,) = [sent.message for sent in network.sent if sent.name == "INVITE"]
    assert isinstance(invite, SipRequest)
    back = invite.headers.replace("via", "SIP/2.0/UDP 10.0.0.2;branch=z9hG4bKback")
    alice.receive(bytes(SipRequest("INVITE", invite.uri, back, invite.body)), alice.flow_to(bob))
    assert network.names(alice.host) == ["INVITE", "482"]
    assert alice.calls == []


def test_strangers_get_no_answer() -> None:
    network, alice, bob = two_peers()
    bob.admission = RequestVerdict.SILENCE
    alice.call(bob)
    for method in ("OPTIONS", "REGISTER", "BYE", "CANCEL", "ACK", "REFER", "MESSAGE"):
        headers = SipHeaders(
            (
                ("via", f"SIP/2.0/UDP 10.0.0.1;branch=z9hG4bK{method}"),
                ("from", "<sip:x@y>;tag=1"),
                ("to", "<sip:x@y>"),
                ("call-id", method),
                ("cseq", f"1 {method}"),
            )
        )
        bob.receive(bytes(SipRequest(method, "sip:100@10.0.0.2", headers)), bob.flow_to(alice))
    bob.receive(
        b"INVITE sip:1@2 SIP/2.0\r\nVia: SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKq\r\n\r\n", bob.flow_to(alice)
    )
    network.run(40)
    assert network.names(bob.host) == []
    assert bob.calls == []


@pytest.mark.parametrize("status", [401, 407])
@pytest.mark.parametrize("algorithm", ["MD5", "SHA-256"])
def test_a_call_with_a_password(algorithm: str, status: int) -> None:
    network = SipNetwork()
    alice, bob = SipPeer(network, "10.0.0.1"), SipPeer(network, "10.0.0.2", passwords={"alice": "secret"})
    bob.is_proxy = status == 407
    offered = bob.challenges
    bob.challenges = lambda request: [value for value in offered(request) if value.endswith(f"={algorithm}")]  # type: ignore[method-assign]
    session = alice.call(bob, credentials=Credentials("alice", "secret"))
    network.run()
    assert session.state is SessionState.UP
    assert network.names(alice.host) == ["INVITE", "ACK", "INVITE", "ACK"]
    assert str(status) in network.names(bob.host)
    wrong = alice.call(bob, credentials=Credentials("alice", "wrong"))
    network.run()
    assert listener_of(wrong).events == [("ended", status)]


def test_an_answer_to_a_challenge_is_good_once() -> None:
    network = SipNetwork()
    alice, bob = SipPeer(network, "10.0.0.1"), SipPeer(network, "10.0.0.2", passwords={"alice": "secret"})
    alice.call(bob, credentials=Credentials("alice", "secret"))
    network.run()
    invite = [sent.message for sent in network.sent if sent.name == "INVITE"][-1]
    assert isinstance(invite, SipRequest)
    forged = invite.headers.replace("via", "SIP/2.0/UDP 10.6.6.6;branch=z9hG4bKforged").replace(
        "call-id", "new"
    )
    network.sent.clear()
    bob.receive(bytes(SipRequest("INVITE", invite.uri, forged, invite.body)), bob.flow_to(alice))
    assert network.names(bob.host) == ["401"]
    assert len(bob.calls) == 1


def test_a_transfer_by_the_other_side() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    network.run()
    bob.calls[0].refer("<sip:carol@10.0.0.3>")
    network.run()
    assert listener_of(session).last("refer") == "sip:carol@10.0.0.3"
    session.notify_transfer(180, "Ringing")
    session.notify_transfer(200, "OK")
    network.run()
    transfers = [value for name, value in listener_of(bob.calls[0]).events if name == "transfer"]
    assert transfers == [100, 180, 200]


@pytest.mark.parametrize("way", ["refused", "failed", "silent"])
def test_a_transfer_that_fails_is_reported_once(way: str) -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    network.run()
    listener_of(session).takes_refer = 603 if way == "refused" else 202
    bob.calls[0].refer("<sip:carol@10.0.0.3>")
    network.run()
    if way == "failed":
        session.notify_transfer(486, "Busy")
    network.run(70)
    transfers = [value for name, value in listener_of(bob.calls[0]).events if name == "transfer"]
    assert transfers[-1] == {"refused": 603, "failed": 486, "silent": 408}[way]
    assert sum(isinstance(value, int) and value >= 200 for value in transfers) == 1


def test_a_refer_outside_of_calls_is_refused() -> None:
    network, alice, bob = two_peers()
    alice.call(bob)
    network.run()
    invite = network.sent[0].message
    assert isinstance(invite, SipRequest)
    headers = SipHeaders(
        (
            ("via", "SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKrefer"),
            ("from", "<sip:x@y>;tag=1"),
            ("to", "<sip:bob@10.0.0.2>"),
            ("call-id", "refer"),
            ("cseq", "1 REFER"),
            ("refer-to", "<sip:+900123@premium.example>"),
        )
    )
    bob.receive(bytes(SipRequest("REFER", "sip:bob@10.0.0.2", headers)), bob.flow_to(alice))
    # With the Call-ID of a call, but not with its tags:
    forged = headers.replace("call-id", invite.call_id).replace("to", "<sip:bob@10.0.0.2>;tag=guess")
    forged = forged.replace("via", "SIP/2.0/UDP 10.0.0.1;branch=z9hG4bKforged")
    bob.receive(bytes(SipRequest("REFER", "sip:bob@10.0.0.2", forged)), bob.flow_to(alice))
    assert network.names(bob.host)[-2:] == ["403", "481"]
    assert listener_of(bob.calls[0]).names() == ["confirmed"]


def test_a_call_takes_the_place_of_another() -> None:
    network, alice, bob = two_peers()
    carol = SipPeer(network, "10.0.0.3")
    first_call = alice.call(bob)
    network.run()
    dialog = bob.calls[0].dialog
    replaces = f"{dialog.call_id};to-tag={dialog.local.tag};from-tag={dialog.remote.tag}"
    carol.call(bob, headers=(("replaces", replaces),))
    network.run()
    assert bob.calls[1].replaced is bob.calls[0]
    assert listener_of(first_call).names() == ["answered", "ended"]
    wrong = carol.call(bob, headers=(("replaces", "unknown;to-tag=1;from-tag=2"),))
    network.run()
    assert listener_of(wrong).events == [("ended", 481)]


def test_keys_come_in_info() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    network.run()
    for digit in "5*#A":
        session.send_key(digit)
        network.run()
    session.send("INFO", body=b"11", content_type="application/dtmf")
    session.send("INFO", body=b"Signal=banana", content_type="application/dtmf-relay")
    session.send("INFO", body=b"<xml/>", content_type="text/xml")
    network.run()
    assert [value for name, value in listener_of(bob.calls[0]).events if name == "key"] == list("5*#A#")
    assert {"400", "415"} <= set(network.names(bob.host))


def test_a_call_is_refreshed_and_ends_without_refreshes() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob, interval_s=90)
    network.run(400)
    assert session.state is bob.calls[0].state is SessionState.UP
    assert network.names(alice.host).count("UPDATE") == 8
    network.loses = lambda sent: True
    network.run(120)
    assert listener_of(session).names()[-1] == "ended"
    assert listener_of(bob.calls[0]).names()[-1] == "ended"


@pytest.mark.parametrize("way", ["gone", "forgot"])
def test_a_peer_that_is_gone_or_forgot_the_call_is_noticed(way: str) -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    network.run()
    session.keep_alive()
    network.run(100)
    assert session.state is SessionState.UP
    if way == "gone":
        network.loses = lambda sent: sent.source == bob.host
    else:
        bob.calls[0].end(0, "crashed")
    network.run(70)
    assert listener_of(session).names()[-1] == "ended"


def test_an_interval_that_is_too_small_is_asked_for_again() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob, interval_s=30)
    network.run()
    assert network.names(bob.host)[:2] == ["422", "100"]
    assert session.state is SessionState.UP


def test_a_caller_behind_nat_is_answered_where_it_is() -> None:
    network, alice, bob = two_peers()
    session = alice.call(bob)
    network.run()
    answered = bob.calls[0]
    answered.dialog.target = "sip:alice@192.168.1.7:5070"
    assert answered.dialog.next_hop == bob.flow_to(alice)
    answered.dialog.target = "sip:alice@10.0.0.1:5070"
    assert answered.dialog.next_hop.address == ("10.0.0.1", 5070)
    assert NameAddress.parse(str(answered.dialog.remote)).tag == session.invite.tag
