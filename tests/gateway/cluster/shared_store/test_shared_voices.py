"""Named voices that gateways share through a real Redis."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from shared.audio.recordings import recording
from shared.cluster.redis_server import RedisServer
from shared.voices.voice_registry_setup import ANNA, BO, RegistrySetup
from vivavoce.gateway.cluster.shared_store.redis_link import PREFIX, RedisAway, RedisLink
from vivavoce.gateway.cluster.shared_store.shared_voices import SharedVoices, VoiceSharing
from vivavoce.gateway.voice_registry import NewVoice
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.tts_engine.engine_set import EngineSetVoices, NamedEngine
from vivavoce.tts_engine.errors import UnknownVoice

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


class VoicePeer(RegistrySetup):
    """One gateway with its store, and its side of the exchange."""

    def __init__(
        self, redis: RedisServer, folder: Path, version: CosyVoiceVersion = CosyVoiceVersion.V2
    ) -> None:
        super().__init__(folder, version)
        self.link = RedisLink(redis.url, retry_after_s=0.0)
        self.sharing = SharedVoices(self.link, self.voices, self.store)

    async def create(self, name: str) -> str:
        return (await self.registry.create(recording(), NewVoice(name, "Words."), ANNA)).id

    async def aclose(self) -> None:
        await self.link.aclose()
        self.close()


def run(redis: RedisServer, folder: Path, test: Callable[[VoicePeer, VoicePeer], Awaitable[None]]) -> None:
    async def with_peers() -> None:
        async with AsyncExitStack() as opened:
            peers = [VoicePeer(redis, folder / str(number)) for number in range(2)]
            for peer in peers:
                opened.push_async_callback(peer.aclose)
            await test(*peers)

    asyncio.run(with_peers())


async def exchange(*peers: VoicePeer) -> None:
    for peer in (*peers, *peers):
        await peer.sharing.exchange()


def test_a_name_given_at_one_gateway_is_a_voice_of_the_same_key_at_the_other(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def test(first: VoicePeer, second: VoicePeer) -> None:
        voice = await first.create("Anna")
        await exchange(first, second)
        assert second.registry.resolve("anna", ANNA) == voice
        assert second.store.find(voice) == first.store.find(voice)
        assert second.store.get(voice).id == first.store.get(voice).id
        assert second.encoder.encoded_s == []
        with pytest.raises(UnknownVoice):
            second.registry.resolve("Anna", BO)
        await second.registry.rename(voice, "Anne", ANNA)
        await exchange(first, second)
        assert first.registry.resolve("Anne", ANNA) == voice
        await second.registry.remove(voice, ANNA)
        await exchange(first, second)
        assert first.store.list() == () == second.store.list()
        assert await first.link.run(lambda client: client.keys(f"{PREFIX}voice-content:*")) == []

    run(redis, tmp_path, test)


def test_with_clocks_ten_minutes_apart_the_change_that_knew_the_other_counts(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def test(first: VoicePeer, second: VoicePeer) -> None:
        first.store._clock = lambda: time.time() + 600.0
        renamed, removed = await first.create("Anna"), await first.create("Bo")
        await first.registry.rename(renamed, "Anne", ANNA)
        await exchange(first, second)
        await second.registry.rename(renamed, "Ann", ANNA)
        await second.registry.remove(removed, ANNA)
        await exchange(first, second)
        for peer in (first, second):
            assert [voice.name for voice in peer.store.list()] == ["Ann"]

    run(redis, tmp_path, test)


def test_changes_made_while_redis_is_away_are_exchanged_when_it_is_back_empty(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def test(first: VoicePeer, second: VoicePeer) -> None:
        kept, removed = await first.create("kept"), await first.create("removed")
        await exchange(first, second)
        redis.stop()
        with pytest.raises(RedisAway):
            await second.sharing.exchange()
        await second.registry.remove(removed, ANNA)
        new = await second.create("new")
        assert second.registry.resolve("kept", ANNA) == kept
        redis.start()
        await exchange(first, second)
        assert {voice.id for voice in first.store.list()} == {kept, new}
        assert {voice.id for voice in second.store.list()} == {kept, new}

    run(redis, tmp_path, test)


def test_the_voices_of_a_bundle_that_replaces_another_are_shared_from_then_on(
    redis: RedisServer, tmp_path: Path
) -> None:
    def served(peer: VoicePeer) -> EngineSetVoices:
        return EngineSetVoices((NamedEngine("vivavoce", SimpleNamespace(voices=peer.voices)),))

    async def test(first: VoicePeer, second: VoicePeer) -> None:
        voices = served(first)
        sharing = VoiceSharing(first.link, voices)
        shared = await first.create("Anna")
        await sharing.exchange()
        voices.become(served(second))
        await sharing.exchange()
        assert [voice.id for voice in second.store.list()] == [shared]
        late = await first.create("of the retired bundle")
        new = await second.create("Bo")
        await sharing.exchange()
        rows = await first.link.run(lambda client: client.hkeys(f"{PREFIX}voices"))
        assert new.encode() in rows and late.encode() not in rows

    run(redis, tmp_path, test)


def test_rows_and_prompts_that_are_damaged_or_of_another_model_are_not_taken(
    redis: RedisServer, tmp_path: Path
) -> None:
    async def test(first: VoicePeer, second: VoicePeer) -> None:
        damaged = await first.create("damaged")
        await first.sharing.exchange()
        other = VoicePeer(redis, tmp_path / "other", CosyVoiceVersion.V3)
        await other.sharing.exchange()
        assert other.store.list() == ()
        await other.aclose()
        names = await first.link.run(lambda client: client.keys(f"{PREFIX}voice-content:*"))
        await first.link.run(lambda client: client.set(names[0], b"\x80\x04K\x01."))
        rows = {"a": b"{", "b": b'{"voice": {"id": "b"}}', "c": b'{"voice": 3, "changed_at": 1}'}
        await first.link.run(lambda client: client.hset(f"{PREFIX}voices", mapping=rows))
        await second.sharing.exchange()
        assert second.store.list() == ()
        assert first.store.find(damaged) is not None

    run(redis, tmp_path, test)
