"""Whose packets belong to a call: probation, strangers, peers that move, pauses, loss and reordering."""

import random

import pytest

from shared.calls.rtp_stream import PEER, RtpSource
from vivavoce.adapters.rtp.packet import RtpPacket
from vivavoce.adapters.rtp.source_lock import Address, SourceLock

STRANGER = ("203.0.113.7", 5000)
MOVED = (PEER[0], 4100)
PTIME_S = 0.020


class Listener:
    """Feeds a lock with packets, 20 ms apart."""

    def __init__(self, named: Address | None = None) -> None:
        self.lock = SourceLock(named)
        self.now = 100.0

    def hear(self, source: RtpSource, address: Address, count: int = 1) -> list[int]:
        """How many packets were taken with each; -1 for one of a stranger."""
        taken = []
        for _ in range(count):
            packets = self.lock.take(source.next(b"x"), address, self.now)
            taken.append(-1 if packets is None else len(packets))
            self.now += PTIME_S
        return taken


def test_the_address_that_was_named_is_taken_with_its_first_packet_and_sent_to_before() -> None:
    listener = Listener(PEER)
    assert listener.lock.destination == PEER
    assert listener.lock.report_address == (PEER[0], PEER[1] + 1)
    assert listener.hear(RtpSource(), PEER, 2) == [1, 1]


def test_any_other_address_is_taken_with_its_third_packet_and_none_is_lost() -> None:
    listener = Listener()
    assert listener.hear(RtpSource(), PEER, 4) == [0, 0, 3, 1]
    assert listener.lock.destination == PEER


@pytest.mark.parametrize("count", [1, 2, 50])
def test_single_packets_of_strangers_do_not_get_the_call(count: int) -> None:
    listener = Listener()
    draw = random.Random(1)
    for number in range(count):
        stray = RtpSource(ssrc=draw.getrandbits(32), sequence=draw.getrandbits(16))
        listener.hear(stray, (STRANGER[0], 5000 + number))
    assert listener.lock.destination is None
    listener.hear(RtpSource(), PEER, 3)
    assert listener.lock.destination == PEER


def test_packets_of_a_stranger_with_any_numbers_pass_no_probation() -> None:
    listener = Listener()
    draw = random.Random(2)
    for _ in range(200):
        listener.hear(RtpSource(sequence=draw.randrange(0, 2**16, 1000)), STRANGER)
        assert listener.lock.destination is None


def test_the_same_packet_again_and_again_passes_no_probation() -> None:
    listener = Listener()
    for _ in range(10):
        assert listener.hear(RtpSource(), STRANGER) == [0]


@pytest.mark.parametrize("lost", [(1,), (1, 2), (2, 4), (1, 2, 3, 5, 6)])
def test_loss_in_the_probation_takes_three_packets_all_the_same(lost: tuple[int, ...]) -> None:
    listener, source = Listener(), RtpSource()
    sent = [source.next(b"x") for _ in range(10)]
    arrived = [packet for index, packet in enumerate(sent) if index not in lost]
    taken = [listener.lock.take(packet, PEER, 1.0) for packet in arrived]
    assert [len(packets or ()) for packets in taken[:4]] == [0, 0, 3, 1]


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (0, 2, 1), (2, 1, 0)])
def test_reordering_in_the_probation_loses_nothing(order: tuple[int, ...]) -> None:
    listener, source = Listener(), RtpSource()
    sent = [source.next(b"x") for _ in range(3)]
    taken: list[RtpPacket] = []
    for index in order:
        taken += listener.lock.take(sent[index], PEER, 1.0) or []
    assert sorted(taken, key=sent.index) == sent


def test_a_stranger_beside_a_peer_that_sends_never_gets_the_call() -> None:
    for named in (None, PEER):
        listener, source = Listener(named), RtpSource()
        listener.hear(source, PEER, 3)
        for address in (STRANGER, MOVED):
            stranger = RtpSource(ssrc=99)
            for _ in range(500):
                assert listener.hear(source, PEER) == [1]
                listener.now -= PTIME_S
                assert listener.hear(stranger, address) == [-1]


def test_a_peer_that_moved_its_port_is_followed_after_a_tenth_of_a_second() -> None:
    for named in (None, PEER):
        listener, source = Listener(named), RtpSource()
        listener.hear(source, PEER, 10)
        taken = listener.hear(source, MOVED, 20)
        assert taken[:4] == [-1] * 4 and taken[-10:] == [1] * 10
        assert listener.lock.destination == MOVED
        assert listener.lock.report_address == (MOVED[0], MOVED[1] + 1)


def test_a_peer_that_moved_with_another_stream_is_followed_after_a_second() -> None:
    listener = Listener(PEER)
    listener.hear(RtpSource(), PEER, 10)
    taken = listener.hear(RtpSource(ssrc=5), MOVED, 60)
    assert taken[:49] == [-1] * 49 and taken[-5:] == [1] * 5
    assert listener.lock.destination == MOVED


def test_a_peer_with_the_same_stream_is_followed_to_another_host_unless_one_was_named() -> None:
    listener, source = Listener(), RtpSource()
    listener.hear(source, PEER, 10)
    listener.hear(source, STRANGER, 20)
    assert listener.lock.destination == STRANGER
    listener, source = Listener(PEER), RtpSource()
    listener.hear(source, PEER, 10)
    assert listener.hear(source, STRANGER, 500) == [-1] * 500


def test_a_stranger_does_not_replace_a_phone_that_sends_nothing_while_its_user_is_silent() -> None:
    for named in (None, PEER):
        listener, source = Listener(named), RtpSource()
        listener.hear(source, PEER, 10)
        assert set(listener.hear(RtpSource(ssrc=99), STRANGER, 3_000)) == {-1}  # a minute
        assert listener.hear(source, PEER) == [1]


def test_a_pause_shorter_than_a_tenth_of_a_second_does_not_move_the_call() -> None:
    listener, source = Listener(), RtpSource()
    listener.hear(source, PEER, 10)
    for _ in range(50):
        assert set(listener.hear(source, MOVED, 4)) <= {-1, 0}
        listener.hear(source, PEER)
    assert listener.lock.destination == PEER


def test_a_flood_of_addresses_is_bounded_and_the_peer_comes_through_it() -> None:
    listener, source = Listener(), RtpSource()
    for number in range(10_000):
        listener.lock.take(RtpSource(ssrc=number).next(b"x"), (STRANGER[0], number), listener.now)
    assert len(listener.lock._candidates) == 8
    listener.hear(source, PEER, 3)
    assert listener.lock.destination == PEER
