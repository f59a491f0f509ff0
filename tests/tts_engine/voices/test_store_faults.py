"""The voice store: crashes, damage, other formats, and concurrent threads and processes."""

import contextlib
import multiprocessing
import os
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from shared.voices.voice_prompts import contents, prompt
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.errors import BundleError, Overloaded, UnknownVoice
from vivavoce.tts_engine.voices.prompt_cache import PromptCache
from vivavoce.tts_engine.voices.store import VoiceStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VoiceStore]:
    with VoiceStore(tmp_path / "voices", 2) as opened:
        yield opened


# Crashes and damage


class CrashPoint(BaseException):
    """The process ends here."""


CRASHES = {
    "in the middle of the file": lambda patch: patch.setattr(VoicePrompt, "save", _half_a_file),
    "before the file has its name": lambda patch: patch.setattr(Path, "replace", _crash),
    "between file and row": lambda patch: patch.setattr(
        "vivavoce.tts_engine.voices.store.checked_name", _crash
    ),
}


def _half_a_file(self: VoicePrompt, path: Path) -> None:
    path.write_bytes(b"PK\x03\x04")
    raise CrashPoint


def _crash(*arguments: object) -> None:
    raise CrashPoint


def _crashed(folder: Path, crash: str) -> None:
    """A process that ends in the middle of adding: no rollback, no tidying."""
    with pytest.MonkeyPatch.context() as patch:
        store = VoiceStore(folder, 2)
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: None)
        CRASHES[crash](patch)
        try:
            store.add(prompt(2), name="Bo", voice_id="bo")
        except CrashPoint:
            os._exit(0)
    os._exit(1)


@pytest.mark.parametrize("crash", CRASHES)
def test_a_crash_leaves_complete_voices_and_no_stray_file(tmp_path: Path, crash: str) -> None:
    with VoiceStore(tmp_path, 2) as store:
        store.add(prompt(1), name="Anna", voice_id="anna")
    process = multiprocessing.get_context("spawn").Process(target=_crashed, args=(tmp_path, crash))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert len(list((tmp_path / "contents").iterdir())) == 2
    with VoiceStore(tmp_path, 2) as store:
        assert [voice.id for voice in store.list()] == ["anna"]
        assert contents(store) == {f"{prompt(1).id}.npz"}
        assert store.get("anna").id == prompt(1).id
        store.add(prompt(2), name="Bo", voice_id="bo")


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes()[:1000]),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-4000] + bytes(4000)),
        lambda path: prompt(7).save(path),
        lambda path: path.unlink(),
    ],
    ids=["cut", "empty", "overwritten", "another's", "gone"],
)
def test_a_damaged_file_is_reported_and_repaired_by_replacing_the_voice(
    store: VoiceStore, damage: Callable[[Path], None]
) -> None:
    store.add(prompt(1), name="Anna", voice_id="anna")
    store.add(prompt(2), name="Bo", voice_id="bo")
    damage(store.folder / "contents" / f"{prompt(1).id}.npz")
    with pytest.raises(BundleError, match=r"voice 'anna'.*enrol"):
        store.get("anna")
    assert store.get("bo").id == prompt(2).id
    store.replace("anna", prompt(1))
    assert store.get("anna").id == prompt(1).id


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").write_bytes(b"something else " * 100)
    with pytest.raises(BundleError, match="no index of voices, or a damaged one"):
        VoiceStore(tmp_path, 2)
    (tmp_path / "file").touch()
    with pytest.raises(Overloaded):
        VoiceStore(tmp_path / "file", 2)


def test_a_store_of_a_later_format_is_refused_and_not_changed(tmp_path: Path) -> None:
    VoiceStore(tmp_path, 2).close()
    index = sqlite3.connect(tmp_path / "index.sqlite")
    index.execute("PRAGMA user_version = 99")
    index.close()
    (tmp_path / "contents" / "unknown.npz").touch()
    with pytest.raises(BundleError, match=r"format 99, made by a later vivavoce; this one knows up to \d"):
        VoiceStore(tmp_path, 2)
    assert (tmp_path / "contents" / "unknown.npz").exists()


def test_a_store_of_an_earlier_format_is_upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vivavoce.tts_engine.voices import index

    with VoiceStore(tmp_path, 2) as store:
        store.add(prompt(1), name="Anna", voice_id="anna")
    later = (
        *index._MIGRATIONS,
        "CREATE TABLE extra (id TEXT); INSERT INTO extra SELECT id FROM voices",
    )
    monkeypatch.setattr(index, "_MIGRATIONS", later)
    for _ in range(2):
        with VoiceStore(tmp_path, 2) as store:
            assert store._read_connection.execute("SELECT id FROM extra").fetchall() == [("anna",)]
            assert store.get("anna").id == prompt(1).id
    monkeypatch.setattr(index, "_MIGRATIONS", (*later, "CREATE TABLE more (id TEXT); nonsense"))
    with pytest.raises(Overloaded):
        VoiceStore(tmp_path, 2)
    monkeypatch.setattr(index, "_MIGRATIONS", later)
    VoiceStore(tmp_path, 2).close()  # half a migration was none


# Several processes


def _add_and_remove(folder: Path, number: int, rounds: int) -> None:
    with VoiceStore(folder, 2) as store:
        for turn in range(rounds):
            shared = store.add(prompt(turn % 2), name="shared")
            own = store.add(prompt(100 + number), name="own", voice_id=f"own-{number}")
            assert store.get(shared.id).id == prompt(turn % 2).id
            assert store.get(own.id).id == prompt(100 + number).id
            for voice in store.list():
                with contextlib.suppress(UnknownVoice):
                    store.get(voice.id)
            store.remove(shared.id)
            store.remove(own.id)
        store.add(prompt(number % 2), name="last", voice_id=f"last-{number}")


def test_processes_may_add_and_remove_the_same_contents_concurrently(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_add_and_remove, args=(tmp_path / "new", n, 12)) for n in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    with VoiceStore(tmp_path / "new", 2) as store:
        assert {voice.id for voice in store.list()} == {f"last-{number}" for number in range(4)}
        assert contents(store) == {f"{prompt(number).id}.npz" for number in range(2)}
        assert all(store.get(voice.id) for voice in store.list())


def test_threads_may_add_and_remove_the_same_content_concurrently(store: VoiceStore) -> None:
    def come_and_go(_: int) -> None:
        for _ in range(10):
            voice = store.add(prompt(1), name="Anna")
            assert store.get(voice.id).id == prompt(1).id
            store.cache = PromptCache(0)  # so that files are read
            assert store.get(voice.id).id == prompt(1).id
            store.remove(voice.id)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(come_and_go, range(8)))
    assert store.list() == ()
    assert contents(store) == set()


def test_a_write_is_refused_and_reading_continues_while_another_process_holds_the_lock(
    store: VoiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vivavoce.tts_engine.voices.index._LOCK_TIMEOUT_S", 0.05)
    with VoiceStore(store.folder, 2) as impatient:
        store._write_connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(Overloaded, match="locked") as refusal:
            impatient.add(prompt(1), name="Anna")
        assert refusal.value.retry_after_s > 0
        assert impatient.list() == ()  # reading does not wait for a writer
        store._write_connection.execute("ROLLBACK")
        impatient.add(prompt(1), name="Anna")


def test_other_users_of_the_machine_have_no_access(store: VoiceStore) -> None:
    assert store.folder.stat().st_mode & 0o077 == 0


def test_equal_prompts_have_equal_ids_and_others_do_not() -> None:
    assert prompt(1).id == prompt(1).id
    assert prompt(1).id != replace(prompt(1), transcript="something else").id
