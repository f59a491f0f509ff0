"""Keys, limits and revocations that two gateways share through a real Redis."""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from shared.cluster.redis_server import RedisServer
from vivavoce.gateway.access.access_control import AccessControl, Grant
from vivavoce.gateway.access.errors import KeyRefused, RateLimited
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.cluster.shared_store.redis_link import PREFIX, RedisAway, RedisFull, RedisLink
from vivavoce.gateway.cluster.shared_store.shared_access import SharedAccess

LIMITS = KeyLimits(requests_per_minute=10, characters_per_minute=100, streams=2)


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@pytest.fixture
def redis(server: RedisServer) -> RedisServer:
    """The server, running and empty."""
    server.stop()
    server.start()
    return server


@dataclass(eq=False)
class Peer:
    """One gateway: its keys file, and its side of the exchange. Its clock stands still."""

    keys: KeysFile
    access: AccessControl
    shared: SharedAccess
    link: RedisLink

    def grant(self, key: str) -> Grant:
        return self.access.grant({"authorization": f"Bearer {key}"})


async def open_peers(
    redis: RedisServer, folder: Path, resources: AsyncExitStack, database: int = 0
) -> list[Peer]:
    peers = []
    for number in range(2):
        keys = KeysFile(folder / f"keys{number}.json")
        access = AccessControl(keys, clock=lambda: 0.0)
        link = RedisLink(f"{redis.url.rpartition('/')[0]}/{database}", retry_after_s=0.0)
        resources.push_async_callback(link.aclose)
        peers.append(Peer(keys, access, SharedAccess(link, access, keys), link))
    return peers


async def exchange(*peers: Peer) -> None:
    for _ in range(2):  # so that each knows what the other reported
        for peer in peers:
            await peer.shared.exchange()


def test_a_key_of_one_gateway_is_valid_at_the_other_until_it_is_revoked(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, second = await open_peers(redis, tmp_path, resources)
            key = first.keys.add("reception", (Scope.SPEAK,), LIMITS)
            with pytest.raises(KeyRefused):
                second.grant(key)
            await exchange(first, second)
            grant = second.grant(key)
            assert grant.scopes == {Scope.SPEAK}
            first.keys.revoke(grant.key_id)
            await exchange(first, second)
            with pytest.raises(KeyRefused):
                grant.charge_request()

    asyncio.run(run())


def test_a_revocation_survives_a_redis_that_lost_its_data(redis: RedisServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, second = await open_peers(redis, tmp_path, resources)
            key = first.keys.add("reception", (Scope.SPEAK,), LIMITS)
            await exchange(first, second)
            redis.stop()
            with pytest.raises(RedisAway):
                await second.shared.exchange()
            second.grant(key)  # keys known last stay valid
            first.keys.revoke(second.grant(key).key_id)
            redis.start()
            await exchange(second, first)
            with pytest.raises(KeyRefused):
                second.grant(key)

    asyncio.run(run())


def test_a_full_redis_is_read_and_named_and_what_it_refused_is_shared_later(
    redis: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, second = await open_peers(redis, tmp_path, resources)
            key = first.keys.add("reception", (Scope.SPEAK,), LIMITS)
            await exchange(first, second)
            grant = second.grant(key)
            grant.charge_request()
            first.keys.revoke(grant.key_id)
            await first.shared.exchange()
            await set_memory(first, 1)
            late = first.keys.add("late", (Scope.SPEAK,), LIMITS)
            for peer in (first, second, first, second):
                with pytest.raises(RedisFull):
                    await peer.shared.exchange()
            assert not first.link.is_away
            with pytest.raises(KeyRefused):
                second.grant(key)
            await set_memory(first, 0)
            await exchange(first, second)
            second.grant(late)

    with caplog.at_level(logging.WARNING, logger="vivavoce"):
        asyncio.run(run())
    assert [each.split(":")[0] for each in caplog.messages] == 2 * ["Redis is full"]  # each gateway once


async def set_memory(peer: Peer, most: int) -> None:
    """Set Redis' limit in bytes, at which it evicts nothing; 0 is none."""
    await peer.link.run(lambda client: client.config_set("maxmemory", most))


def test_clusters_with_databases_of_their_own_on_one_redis_share_nothing(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, _ = await open_peers(redis, tmp_path, resources)
            _, other = await open_peers(redis, tmp_path, resources, database=1)
            key = first.keys.add("reception", (Scope.SPEAK,), LIMITS)
            await exchange(first, other)
            with pytest.raises(KeyRefused):
                other.grant(key)

    asyncio.run(run())


def test_limits_hold_for_both_gateways_together(redis: RedisServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, second = await open_peers(redis, tmp_path, resources)
            key = first.keys.add("reception", (Scope.SPEAK,), LIMITS)
            await exchange(first, second)
            here, there = first.grant(key), second.grant(key)
            await exchange(first, second)
            for _ in range(6):
                here.charge_request()
            here.charge_characters(70)
            await exchange(first, second)
            for _ in range(4):
                there.charge_request()
            with pytest.raises(RateLimited):
                there.charge_request()
            with pytest.raises(RateLimited):
                there.charge_characters(31)
            there.charge_characters(30)
            await exchange(first, second)
            with pytest.raises(RateLimited):
                here.charge_characters(1)

    asyncio.run(run())


def test_open_streams_are_counted_at_all_gateways_that_live(redis: RedisServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, second = await open_peers(redis, tmp_path, resources)
            key = first.keys.add("reception", (Scope.SPEAK,), LIMITS)
            await exchange(first, second)
            here, there = first.grant(key), second.grant(key)
            with here.stream(), here.stream():
                await exchange(first, second)
                with pytest.raises(RateLimited, match="2 streams"), there.stream():
                    pass
            await exchange(first, second)
            with there.stream():
                pass
            id = here.key_id
            await first.link.run(lambda client: client.hset(f"{PREFIX}open:{id}", "dead", "2 1000"))
            await exchange(first, second)
            with there.stream():
                pass

    asyncio.run(run())


def test_without_redis_limits_are_local_and_nothing_is_counted_twice_later(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, second = await open_peers(redis, tmp_path, resources)
            key = first.keys.add("reception", (Scope.SPEAK,), LIMITS)
            await exchange(first, second)
            here, there = first.grant(key), second.grant(key)
            await exchange(first, second)
            redis.stop()
            here.charge_characters(60)
            for peer in (first, second):
                with pytest.raises(RedisAway):
                    await peer.shared.exchange()
            there.charge_characters(10)  # what this gateway itself has left
            redis.start()
            await exchange(first, second)
            await exchange(first, second)
            there.charge_characters(30)
            with pytest.raises(RateLimited):
                there.charge_characters(1)

    asyncio.run(run())


@pytest.mark.parametrize("record", [b"", b"[]", b"\xff", b'{"id": "0"}', json.dumps({"x": 1}).encode()])
def test_a_foreign_record_of_a_key_is_ignored(redis: RedisServer, tmp_path: Path, record: bytes) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, second = await open_peers(redis, tmp_path, resources)
            await first.link.run(lambda client: client.hset(f"{PREFIX}keys", "3f9c2a71", record))
            key = first.keys.add("reception", (Scope.SPEAK,), LIMITS)
            await exchange(first, second)
            assert second.grant(key)

    asyncio.run(run())


def test_what_a_key_opened_ends_where_it_is_known_from_redis_alone(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, second = await open_peers(redis, tmp_path, resources)
            keys = [first.keys.add("reception", (Scope.CALLS_ALL,), LIMITS) for _ in range(3)]
            await exchange(first, second)
            revoked, changed, other = (second.grant(key) for key in keys)
            first.keys.revoke(revoked.key_id)
            first.keys.change(changed.key_id, lambda key: replace(key, scopes=(Scope.SPEAK,)))
            await exchange(first, second)
            assert [grant.is_current for grant in (revoked, changed, other)] == [False, False, True]
            assert second.grant(keys[1]).scopes == {Scope.SPEAK}

    asyncio.run(run())


def test_open_calls_and_sockets_are_counted_at_all_gateways(redis: RedisServer, tmp_path: Path) -> None:
    async def run() -> None:
        async with AsyncExitStack() as resources:
            first, second = await open_peers(redis, tmp_path, resources)
            limits = KeyLimits(max_calls=1, max_sockets=1)
            key = first.keys.add("reception", (Scope.CALLS_ALL,), limits)
            await exchange(first, second)
            release = first.grant(key).open_call(lambda: None)
            first.grant(key).rate_limiter.add_socket()
            second.grant(key)
            await exchange(first, second)
            with pytest.raises(RateLimited, match="1 calls"):
                second.grant(key).open_call(lambda: None)
            with pytest.raises(RateLimited, match="1 sockets"):
                second.grant(key).rate_limiter.add_socket()
            release()
            await exchange(first, second)
            second.grant(key).open_call(lambda: None)

    asyncio.run(run())
