"""Links between two threads or processes: messages and descriptors, in order, also to a peer that is slow."""

import asyncio
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from shared.event_loop import until
from vivavoce.adapters.media.servers.link import MessageLink


class LinkEnd:
    """One end, and what it has received."""

    def __init__(self, sock: socket.socket) -> None:
        self.received: list[Any] = []
        self.descriptors: list[int] = []
        self.losses = 0
        self.link = MessageLink(sock, self._receive, self._lose)

    def _receive(self, message: Any, descriptor: int) -> None:
        self.received.append(message)
        if descriptor >= 0:
            self.descriptors.append(descriptor)

    def _lose(self) -> None:
        self.losses += 1


def with_link(test: Callable[[LinkEnd, LinkEnd], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(30):
            ends = [LinkEnd(sock) for sock in socket.socketpair()]
            await test(*ends)
            for end in ends:
                end.link.close()
                for descriptor in end.descriptors:
                    os.close(descriptor)

    asyncio.run(run())


def test_messages_arrive_whole_and_in_order() -> None:
    async def test(one: LinkEnd, other: LinkEnd) -> None:
        messages = [b"x" * size for size in (0, 1, 70_000, 3, 1_000_000, 5)]
        for message in messages:
            one.link.send(message)
        await until(lambda: len(other.received) == len(messages))
        assert other.received == messages
        assert one.link.unsent_bytes == 0

    with_link(test)


class CountingSocket(socket.socket):
    """Counts its writes."""

    writes = 0

    def send(self, data: Any, flags: int = 0) -> int:
        self.writes += 1
        return super().send(data, flags)


def test_messages_that_are_sent_soon_go_out_in_order_and_in_one_write() -> None:
    async def test() -> None:
        own, peer = socket.socketpair()
        counting = CountingSocket(fileno=own.detach())
        one, other = LinkEnd(counting), LinkEnd(peer)
        reading, writing = os.pipe()
        for number in range(5):
            one.link.send_soon(number)
        one.link.send("with a descriptor", writing)
        one.link.send_soon("last")
        await until(lambda: len(other.received) == 7)
        assert other.received == [0, 1, 2, 3, 4, "with a descriptor", "last"]
        assert (counting.writes, one.link.unsent_bytes) == (2, 0)
        for end in (one, other):
            end.link.close()
        for descriptor in (reading, *other.descriptors):
            os.close(descriptor)
        one.link.send_soon("nobody reads this")

    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_link_that_is_closed_before_it_has_sent_sends_nothing() -> None:
    async def test(one: LinkEnd, other: LinkEnd) -> None:
        one.link.send_soon("not yet sent")
        one.link.close()
        await until(lambda: other.losses)
        assert other.received == []

    with_link(test)


def test_a_descriptor_arrives_with_its_message_behind_a_full_queue() -> None:
    async def test(one: LinkEnd, other: LinkEnd) -> None:
        reading, writing = os.pipe()
        one.link.send(b"x" * 3_000_000)  # more than a socket buffer
        one.link.send("first", os.dup(writing))
        one.link.send("none")
        one.link.send("second", os.dup(writing))
        os.close(writing)
        await until(lambda: len(other.received) == 4)
        assert other.received[1:] == ["first", "none", "second"]
        for number, descriptor in enumerate(other.descriptors):
            os.write(descriptor, b"%d" % number)
        assert os.read(reading, 10) == b"01"
        os.close(reading)

    with_link(test)


def test_a_message_whose_descriptor_was_lost_at_the_limit_arrives_without_it() -> None:
    async def test(one: LinkEnd, other: LinkEnd) -> None:
        reading, writing = os.pipe()
        one.link.send("lost", os.dup(writing))
        one.link.send("none")
        with no_free_descriptor():
            await until(lambda: len(other.received) == 2)
        assert other.descriptors == []
        one.link.send("kept", os.dup(writing))
        await until(lambda: len(other.received) == 3)
        assert len(other.descriptors) == 1
        os.close(reading)
        os.close(writing)

    with_link(test)


@contextmanager
def no_free_descriptor() -> Iterator[None]:
    """Lower the process's limit to what it has open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_sending_to_a_peer_that_does_not_read_queues_and_does_not_block() -> None:
    async def test(one: LinkEnd, other: LinkEnd) -> None:
        asyncio.get_running_loop().remove_reader(other.link._sock)
        for _ in range(50):
            one.link.send(b"x" * 100_000)
        assert one.link.unsent_bytes > 4_000_000

    with_link(test)


def test_the_end_of_a_peer_is_reported_once_after_its_messages() -> None:
    async def test(one: LinkEnd, other: LinkEnd) -> None:
        one.link.send("last")
        one.link.close()
        await until(lambda: other.losses)
        assert (other.received, other.losses, one.losses) == (["last"], 1, 0)
        other.link.send("nobody reads this")
        assert other.losses == 1

    with_link(test)


def test_a_closed_link_closes_the_descriptors_that_it_was_to_send() -> None:
    async def test(one: LinkEnd, other: LinkEnd) -> None:
        reading, writing = os.pipe()
        one.link.send(b"x" * 3_000_000)
        one.link.send("queued", os.dup(writing))
        one.link.close()
        one.link.send("late", os.dup(writing))
        os.close(writing)
        assert os.read(reading, 1) == b""  # the end: no descriptor of the other side is open
        os.close(reading)

    with_link(test)


@pytest.mark.parametrize("cut", [1, 4, 6])
def test_a_message_split_anywhere_is_delivered_when_it_is_whole(cut: int) -> None:
    async def run() -> None:
        own, peer = socket.socketpair()
        source, sink = socket.socketpair()
        end, sender = LinkEnd(own), LinkEnd(source)
        sender.link.send("whole")
        frame = sink.recv(1000)
        peer.send(frame[:cut])
        await asyncio.sleep(0.01)
        assert end.received == []
        peer.send(frame[cut:])
        await until(lambda: end.received == ["whole"])
        for closing in (end.link, sender.link, peer, sink):
            closing.close()

    asyncio.run(run())


def test_a_message_whose_receiver_raises_is_not_delivered_again() -> None:
    class FailingEnd(LinkEnd):
        def _receive(self, message: Any, descriptor: int) -> None:
            super()._receive(message, descriptor)
            if message == "bad":
                raise ValueError(message)

    async def run() -> None:
        async with asyncio.timeout(30):
            errors: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
            sender, receiver = socket.socketpair()
            end = FailingEnd(receiver)
            one = LinkEnd(sender).link
            for message in ("first", "bad", "second"):
                one.send(message)
            await until(lambda: errors)
            one.send("third")
            await until(lambda: len(end.received) >= 4)
            assert end.received == ["first", "bad", "second", "third"]
            assert len(errors) == 1
            one.close()
            end.link.close()

    asyncio.run(run())
