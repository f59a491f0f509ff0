"""Callers whose gateway died, and a second gateway on the same application; against a simulated Asterisk."""

import asyncio
import sys
from collections.abc import Callable
from typing import Literal

import pytest

from shared.calls.ari_server import AriServer, ari_server
from shared.calls.call_server import call_server
from shared.calls.simulated_ari import APP, PASSWORD, USER, AriTestChannel, SimulatedAri, simulated_ari
from shared.event_loop import until
from vivavoce.gateway.calls.ways_in.ari import gateway_identity
from vivavoce.gateway.calls.ways_in.ari.client import AriAccess, AriClient
from vivavoce.gateway.calls.ways_in.ari.gateway_identity import GatewayIdentity
from vivavoce.gateway.calls.ways_in.ari.orphans import Orphans, find_orphans

GATEWAY = """
import asyncio, sys
from shared.calls.call_server import call_server
from shared.calls.simulated_ari import PASSWORD

async def serve(url):
    async with call_server(ari_url=url, ari_password=PASSWORD):
        await asyncio.Event().wait()

asyncio.run(serve(sys.argv[1]))
"""


async def found(
    ari: SimulatedAri, is_ours: Callable[[str], bool] = lambda id_: False
) -> tuple[Orphans | None, GatewayIdentity]:
    client = AriClient(AriAccess(ari.url, USER, APP, PASSWORD))
    try:
        identity = GatewayIdentity(client)
        return await find_orphans(client, identity, is_ours), identity
    finally:
        await client.aclose()


async def bridged(
    ari: SimulatedAri,
    caller: str,
    token: str,
    kind: Literal["media", "joined"] = "media",
    args: tuple[str, ...] = (),
) -> str:
    """A caller in a bridge of a gateway with that token; return the bridge's id."""
    bridge = f"vivavoce-{kind}-{token}-1-{caller}"
    await ari.ring(caller, *args)
    other = bridge if kind == "media" else f"{caller}-b"
    ari.channels[other] = AriTestChannel(other, "UnicastRTP/x", {"id": other, "name": "UnicastRTP/x"})
    await ari.emit("StasisStart", ari.channels[other], args=[])
    ari.bridges[bridge] = [caller, other]
    return bridge


def test_what_a_dead_gateway_left_is_found_and_what_a_living_one_has_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_identity, "WATCH_S", 0.2)

    async def scenario() -> None:
        async with simulated_ari() as ari:
            dead = await bridged(ari, "1.1", "dead")
            pair = await bridged(ari, "1.2", "dead", "joined")
            await bridged(ari, "1.3", "alive")
            ari.bridges["of-somebody-else"] = [(await ari.ring("1.4")).id]
            await ari.ring("1.5")  # in no bridge
            await ari.ring("1.6")
            ari.variables["VIVAVOCE_ALIVE_dead"] = "7"

            async def live() -> None:
                for count in range(1000):
                    ari.variables["VIVAVOCE_ALIVE_alive"] = str(count)
                    await asyncio.sleep(0.01)

            living = asyncio.create_task(live())
            orphans, _ = await found(ari, lambda id_: id_ == "1.6")
            living.cancel()
            assert orphans is not None
            assert [caller.id for caller in orphans.callers] == ["1.1", "1.5"]
            assert orphans.media == [dead] and orphans.bridges == [dead]
            assert [one.id for one in orphans.pairs] == [pair]
            assert ari.variables["VIVAVOCE_ALIVE_dead"] == ""

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_caller_whose_transfer_is_under_way_is_left_alone_by_a_second_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_identity, "WATCH_S", 0.3)
    monkeypatch.setattr(gateway_identity, "_COUNT_EVERY_S", 0.01)

    async def scenario() -> None:
        async with ari_server() as running, running.server.http() as client:
            ari, channel = running.ari, await running.ari.ring()
            channel.refers = "tries"
            await running.call_up(channel)
            transfer = f"/{channel.id}/transfer"
            asking = asyncio.create_task(client.post(transfer, json={"to": "sip:bob@example.org"}))
            await running.until(lambda: bool(ari.did("POST", f"channels/{channel.id}/redirect")))
            assert not any(channel.id in members for members in ari.bridges.values())
            orphans, _ = await found(ari)
            assert orphans == Orphans(callers=[], media=[], bridges=[], pairs=[])
            ari.end_transfer(channel)
            assert (await asking).status_code == 409

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_nothing_is_watched_if_nothing_is_left() -> None:
    async def scenario() -> None:
        async with simulated_ari() as ari:
            assert (await found(ari))[0] is None
            assert not [path for method, path, _ in ari.requests if path == "asterisk/variable"]

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_callers_of_a_dead_gateway_go_on_in_the_dial_plan_or_are_answered_anew_as_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gateway_identity, "WATCH_S", 0.2)

    async def scenario() -> None:
        async with simulated_ari() as ari:
            left = await bridged(ari, "1.1", "dead", args=("if_gateway_dies=agent", "customer=7"))
            await bridged(ari, "1.2", "dead")
            async with call_server(ari_url=ari.url, ari_password=PASSWORD) as server:
                running = AriServer(ari, server)
                await running.call_up(ari.channels["1.1"])
                assert left not in ari.channels and left not in ari.bridges
                (anew,) = server.gateway.calls.registry
                assert anew.call.caller is not None
                assert (anew.call.caller.number, anew.call.caller.variables["customer"]) == ("100", "7")
                ((_, media),) = ari.bridges.values()
                assert media == ari.media[0].id
                assert await running.continued(AriTestChannel("1.2", "", {})) == {}

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_three_seconds_after_the_next_connection_no_caller_of_a_killed_gateway_is_left() -> None:
    async def scenario() -> None:
        async with simulated_ari() as ari:
            process = await asyncio.create_subprocess_exec(sys.executable, "-c", GATEWAY, ari.url)
            try:
                await until(lambda: bool(ari.sockets), within_s=100)  # it imports everything
                left, anew = await ari.ring("1.1"), await ari.ring("1.2", "if_gateway_dies=agent")
                await until(lambda: [len(members) for members in ari.bridges.values()] == [2, 2])
            finally:
                process.kill()
                await process.wait()
            await until(lambda: not ari.sockets)
            async with call_server(ari_url=ari.url, ari_password=PASSWORD) as server:
                await until(lambda: bool(ari.sockets))
                async with asyncio.timeout(3):
                    assert await AriServer(ari, server).continued(left) == {}
                    await AriServer(ari, server).call_up(anew)

    asyncio.run(asyncio.wait_for(scenario(), 120))
