"""The audio store: expiry, the limit of its size, and files that are not committed."""

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from vivavoce.gateway.apis.dialects.dashscope.audio_store import AudioStore, StoredAudio
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


def store_audio(store: AudioStore, *parts: bytes, key: str = "a") -> StoredAudio:
    async def write() -> StoredAudio:
        async with store.open_writer(key, "audio/wav") as writer:
            for part in parts:
                await writer.write(part)
            return writer.commit()

    return asyncio.run(write())


def files_beside(audio: StoredAudio) -> list[Path]:
    return list(audio.path.parent.iterdir())


def test_audio_can_be_fetched_until_it_expires(store: AudioStore, clock: Clock) -> None:
    audio = store_audio(store, b"one ", b"two")
    assert store.get(audio.id) == audio
    assert (audio.path.read_bytes(), audio.expires_at) == (b"one two", 1_060.0)
    clock.now = 1_059.9
    assert store.get(audio.id) is not None
    clock.now = 1_060.0
    assert store.get(audio.id) is None
    assert files_beside(audio) == []


def test_ids_are_random_and_not_paths(store: AudioStore) -> None:
    one, two = store_audio(store, b"x"), store_audio(store, b"x")
    assert one.id != two.id
    assert len(one.id) >= 32
    assert [store.get(id) for id in ("", ".", "../" + one.id, one.id + "/")] == [None] * 4


def test_the_oldest_files_are_deleted_when_the_store_is_full(store: AudioStore) -> None:
    first, second, third = (store_audio(store, bytes(40)) for _ in range(3))
    assert [store.get(audio.id) is not None for audio in (first, second, third)] == [False, True, True]
    assert len(files_beside(third)) == 2


def test_a_file_that_is_kept_for_a_reader_is_deleted_after_it(store: AudioStore) -> None:
    first = store_audio(store, bytes(60))
    with store.keep(first.id) as audio, store.keep(first.id):
        assert audio == first
        second = store_audio(store, bytes(60))
        assert store.get(first.id) is None
        assert first.path.read_bytes() == bytes(60)
    assert files_beside(second) == [second.path]
    with store.keep(second.id):
        pass
    assert second.path.exists()
    with store.keep(first.id) as audio:
        assert audio is None


def test_audio_that_never_fits_is_refused_and_leaves_no_file(store: AudioStore) -> None:
    audio = store_audio(store, bytes(10))
    with pytest.raises(Overloaded, match="at most 100 bytes"):
        store_audio(store, bytes(60), bytes(60))
    assert not audio.path.exists()  # deleted to make room
    assert store_audio(store, bytes(100)).size == 100


def test_a_file_that_is_not_committed_is_deleted(store: AudioStore) -> None:
    async def give_up() -> None:
        async with store.open_writer("a", "audio/wav") as writer:
            await writer.write(bytes(100))

    asyncio.run(give_up())
    assert files_beside(store_audio(store, bytes(100)))[0].stat().st_size == 100


def test_subtitles_count_and_go_with_their_file(store: AudioStore, clock: Clock) -> None:
    async def write(subtitles: bytes, *, commits: bool = True) -> StoredAudio | None:
        async with store.open_writer("a", "audio/wav") as writer:
            await writer.write(bytes(60))
            await writer.write_subtitles(subtitles)
            return writer.commit() if commits else None

    audio = asyncio.run(write(b"[1]"))
    assert audio is not None
    assert (audio.subtitles_path.read_bytes(), audio.size) == (b"[1]", 63)
    assert stat.S_IMODE(audio.subtitles_path.stat().st_mode) == 0o600
    with pytest.raises(Overloaded, match="at most 100 bytes"):
        asyncio.run(write(bytes(41)))
    assert files_beside(audio) == []  # the old ones made room, the new one is refused
    asyncio.run(write(bytes(40), commits=False))
    assert files_beside(audio) == []
    assert store_audio(store, bytes(100)).size == 100  # what was reserved is free again
    clock.now += 60.0
    last = asyncio.run(write(bytes(40)))
    assert last is not None and sorted(files_beside(last)) == [last.path, last.subtitles_path]


def test_closing_deletes_everything() -> None:
    store = AudioStore()
    audio = store_audio(store, b"x")
    store.close()
    assert not audio.path.parent.exists()


def test_the_oldest_of_too_many_short_files_is_deleted(
    store: AudioStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vivavoce.gateway.apis.dialects.dashscope.audio_store.MAX_FILES", 3)
    files = [store_audio(store, b"x") for _ in range(5)]
    assert [store.get(audio.id) is not None for audio in files] == [False, False, True, True, True]
    assert len(files_beside(files[-1])) == 3


def test_no_key_can_delete_the_audio_of_another(store: AudioStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vivavoce.gateway.apis.dialects.dashscope.audio_store.MAX_FILES", 3)
    kept = store_audio(store, bytes(90), key="b")
    for _ in range(5):
        store_audio(store, bytes(90), key="a")
        store_audio(store, b"x", key="a")
    with pytest.raises(Overloaded):
        store_audio(store, bytes(60), bytes(60), key="a")
    for _ in range(5):
        store_audio(store, b"x", key="a")
    assert store.get(kept.id) == kept
    assert kept.path.read_bytes() == bytes(90)


def test_a_disk_that_fails_is_a_refusal_and_leaves_no_file(
    store: AudioStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    folder = store_audio(store, b"x").path.parent
    with monkeypatch.context() as full:
        full.setattr("vivavoce.gateway.apis.dialects.dashscope.audio_store.write_all", fail)
        with pytest.raises(Overloaded, match="cannot be written: No space left") as refusal:
            store_audio(store, bytes(50))
    assert refusal.value.reason == "disk"
    assert len(list(folder.iterdir())) == 1
    assert store_audio(store, bytes(100)).size == 100  # what was reserved is free again


def test_only_the_user_of_the_server_may_read_the_files(store: AudioStore) -> None:
    audio = store_audio(store, b"x")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (audio.path, audio.path.parent)]
    assert modes == [0o600, 0o700]
