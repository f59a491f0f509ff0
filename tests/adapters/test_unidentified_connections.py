"""Connections whose peers are unknown: which one is closed for a new one."""

import pytest

from vivavoce.adapters.unidentified_connections import UnidentifiedConnections


class Listener:
    """Numbers its connections, and notes those that were closed."""

    def __init__(self, max_connections: int, max_from_address: int, proxies: tuple[str, ...] = ()) -> None:
        self.sentences: list[str] = []
        self.connections = UnidentifiedConnections(
            max_connections, max_from_address, proxies, self.sentences.append
        )
        self.closed: list[str] = []

    def accept(self, *names: str, address: str = "192.0.2.1") -> None:
        for name in names:
            self.connections.add(name, address, lambda name=name: self.closed.append(name))  # type: ignore[misc]


def test_the_oldest_of_an_address_is_closed_for_its_next_one() -> None:
    listener = Listener(10, 3)
    listener.accept("a", "b", "c")
    listener.accept("other", address="192.0.2.2")
    listener.connections.remove("b")
    listener.accept("d")
    assert listener.closed == []
    listener.accept("e", "f")
    assert listener.closed == ["a", "c"]
    assert len(listener.connections) == 4 and "d" in listener.connections


def test_strangers_of_many_addresses_do_not_displace_the_one_who_has_just_connected() -> None:
    listener = Listener(4, 3)
    for number in range(50):
        listener.accept(f"stranger {number}", address=f"198.51.100.{number}")
        listener.accept(f"caller {number}", address="192.0.2.1")
        assert f"caller {number}" in listener.connections
        listener.connections.remove(f"caller {number}")
    assert len(listener.connections) <= 4


def test_when_all_are_too_many_the_address_with_most_loses_its_oldest() -> None:
    listener = Listener(4, 4)
    listener.accept("caller", address="192.0.2.1")
    listener.accept("x", "y", "z", address="198.51.100.7")
    listener.accept("next", address="192.0.2.2")
    assert listener.closed == ["x"]


def test_a_proxy_counts_among_all_only() -> None:
    listener = Listener(4, 1, proxies=("192.0.2.1",))
    listener.accept("a", "b", "c", "d")
    assert listener.closed == []
    listener.accept("e")
    assert listener.closed == ["a"]


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("?", "?", True),
    ],
)
def test_addresses_of_one_subscriber_are_one(first: str, second: str, is_one: bool) -> None:
    listener = Listener(10, 1)
    listener.accept("a", address=first)
    listener.accept("b", address=second)
    assert listener.closed == (["a"] if is_one else [])


def test_removing_twice_is_no_error_and_a_report_says_who_was_closed() -> None:
    listener = Listener(10, 1)
    listener.accept("a", "b")
    listener.connections.remove("a")
    listener.connections.remove("b")
    listener.connections.remove("b")
    assert len(listener.connections) == 0 and not listener.connections.close_oldest()
    (sentence,) = listener.sentences
    assert sentence == (
        "closed the oldest of 2 connections whose peers have not said who they are, 2 of them from 192.0.2.1"
    )
