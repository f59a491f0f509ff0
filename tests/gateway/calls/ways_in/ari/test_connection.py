"""The connection to Asterisk: lost, refused, and made again; against a simulated Asterisk."""

import asyncio
import logging
import socket
from contextlib import aclosing, closing
from typing import Any

import pytest

from shared.calls.ari_server import AriServer, ari_server
from shared.calls.call_server import call_server, run
from shared.calls.simulated_ari import APP, simulated_ari
from vivavoce.gateway.calls.ways_in.ari.client import AriAccess, AriClient, AriUnreachable


def test_a_lost_connection_is_made_again_and_callers_who_left_meanwhile_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vivavoce.gateway.calls.ways_in.ari.controller._RETRY_S", (0.2,))

    async def scenario() -> None:
        async with ari_server() as running:
            ari = running.ari
            gone, staying = await ari.ring("1700.1"), await ari.ring("1700.2")
            await running.call_up(gone)
            await running.call_up(staying)
            (socket,) = ari.sockets
            ari.sockets.clear()
            await socket.close()
            await ari.caller_hangs_up(gone)  # nobody is told
            registry = running.server.gateway.calls.registry
            await running.until(lambda: len(registry) == 1)
            assert [active.call.call_id for active in registry] == [staying.id]
            await running.until(lambda: bool(ari.sockets))
            await running.call_up(await ari.ring("1700.3"))

    run(scenario())


async def lose_connection(running: AriServer, status: int) -> None:
    """Let Asterisk lose the connection, and refuse three others with a status."""
    ari = running.ari
    ari.unavailable = status
    (socket_,) = ari.sockets
    ari.sockets.clear()
    await socket_.close()
    until = ari.refused_connections + 3
    await running.until(lambda: ari.refused_connections == until)


def test_a_call_ends_when_asterisk_is_killed_after_other_failures_and_when_it_boots_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vivavoce.gateway.calls.ways_in.ari.controller._RETRY_S", (0.05,))

    async def scenario() -> None:
        async with ari_server() as running:
            await running.call_up(await running.ari.ring())
            await lose_connection(running, 502)
            assert len(running.server.gateway.calls.registry) == 1
            await running.ari.kill()
            await running.until(lambda: len(running.server.gateway.calls.registry) == 0)
            await running.ari.start()
            running.ari.unavailable = 0
            await running.until(lambda: bool(running.ari.sockets))
            await running.call_up(await running.ari.ring())
            await lose_connection(running, 503)  # it boots again
            await running.until(lambda: len(running.server.gateway.calls.registry) == 0)

    run(scenario())


def test_a_call_over_rtp_ends_soon_when_asterisk_is_killed() -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            await running.call_up(await running.ari.ring())
            await running.ari.kill()
            async with asyncio.timeout(5):  # 2.5 s if the processor is idle
                await running.until(lambda: len(running.server.gateway.calls.registry) == 0)
            await running.ari.start()

    run(scenario())


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["::1", "127.0.0.1"]], ids=len)
def test_an_asterisk_that_does_not_run_is_known_by_its_refusal(
    addresses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        return [
            (families[":" in each], socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (each, port))
            for each in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    async def scenario() -> None:
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            port = free.getsockname()[1]
        client = AriClient(AriAccess(f"http://asterisk:{port}/ari", "user", APP))
        async with aclosing(client), aclosing(client.events()) as events:
            with pytest.raises(AriUnreachable):
                await anext(events)

    run(scenario())


def test_the_application_is_back_within_two_seconds_of_an_asterisk_that_has_booted() -> None:
    async def scenario() -> None:
        async with ari_server() as running:
            ari = running.ari
            await lose_connection(running, 503)
            ari.unavailable = 0
            async with asyncio.timeout(2):
                await running.until(lambda: bool(ari.sockets))
            await running.call_up(await ari.ring())

    run(scenario())


def test_a_wrong_password_is_logged_and_the_server_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with simulated_ari() as ari, call_server(ari_url=ari.url, ari_password="wrong") as server:
            while "refused the connection" not in caplog.text:
                await asyncio.sleep(0.01)
            assert server.gateway.unready() is None
            assert "wrong" not in caplog.text

    with caplog.at_level(logging.WARNING):
        run(scenario())
