"""Audio that is fetched later: kept for its time, dropped when there is no room, deleted if not kept."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from vivavoce.gateway.apis.dashscope.audio_store import AudioStore, StoredAudio
from vivavoce.tts_engine.errors import Overloaded


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Iterator[AudioStore]:
    store = AudioStore(retention_s=60.0, max_bytes=100, clock=clock)
    yield store
    store.close()


def kept(store: AudioStore, *parts: bytes) -> StoredAudio:
    async def write() -> StoredAudio:
        async with store.open_writer("audio/wav") as draft:
            for part in parts:
                await draft.write(part)
            return draft.commit()

    return asyncio.run(write())


def files(audio: StoredAudio) -> list[Path]:
    return list(audio.path.parent.iterdir())


def test_what_is_kept_can_be_had_until_its_time_is_over(store: AudioStore, clock: Clock) -> None:
    audio = kept(store, b"one ", b"two")
    assert store.get(audio.id) == audio
    assert (audio.path.read_bytes(), audio.expires_at) == (b"one two", 1_060.0)
    clock.now = 1_059.9
    assert store.get(audio.id) is not None
    clock.now = 1_060.0
    assert store.get(audio.id) is None
    assert files(audio) == []


def test_ids_cannot_be_guessed_and_are_no_paths(store: AudioStore) -> None:
    one, two = kept(store, b"x"), kept(store, b"x")
    assert one.id != two.id
    assert len(one.id) >= 32
    assert [store.get(id) for id in ("", ".", "../" + one.id, one.id + "/")] == [None] * 4


def test_the_oldest_go_when_there_is_no_room(store: AudioStore) -> None:
    first, second, third = (kept(store, bytes(40)) for _ in range(3))
    assert [store.get(audio.id) is not None for audio in (first, second, third)] == [False, True, True]
    assert len(files(third)) == 2


def test_what_does_not_fit_at_all_is_refused_and_leaves_nothing(store: AudioStore) -> None:
    audio = kept(store, bytes(10))
    with pytest.raises(Overloaded, match="full"):
        kept(store, bytes(60), bytes(60))
    assert not audio.path.exists()  # it had to make room
    assert kept(store, bytes(100)).size == 100


def test_a_draft_that_is_not_kept_is_deleted(store: AudioStore) -> None:
    async def give_up() -> None:
        async with store.open_writer("audio/wav") as draft:
            await draft.write(bytes(100))

    asyncio.run(give_up())
    assert files(kept(store, bytes(100)))[0].stat().st_size == 100


def test_closing_deletes_everything() -> None:
    store = AudioStore()
    audio = kept(store, b"x")
    store.close()
    assert not audio.path.parent.exists()
