"""The voice store: checks, limits, full disks, and the cache."""

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from shared.voices.voice_prompts import contents, prompt
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.errors import BadRequest, Overloaded, UnknownVoice
from vivavoce.tts_engine.voices.packed_prompt import StorablePrompt
from vivavoce.tts_engine.voices.store import VoiceMetadata, VoiceStore, VoiceStoreLimits


@pytest.fixture
def store(tmp_path: Path) -> Iterator[VoiceStore]:
    with VoiceStore(tmp_path / "voices", 2) as opened:
        yield opened


def test_a_stored_voice_is_read_back_unchanged(store: VoiceStore) -> None:
    about = VoiceMetadata("en-GB", "key-1", "I agree.", "upload anna.wav", "ab" * 32)
    added = store.add(prompt(1), name="Anna", about=about, voice_id="anna")
    assert (added.id, added.name, added.language, added.about) == ("anna", "Anna", "en-GB", about)
    assert (added.content, added.version, added.transcript) == (prompt(1).id, 2, "voice 1 speaks")
    assert store.find("anna") == added
    assert store.list() == (added,)
    with VoiceStore(store.folder, 2) as again:
        assert again.find("anna") == added
        assert again.get("anna").id == prompt(1).id


def test_two_ids_share_a_file_which_is_deleted_with_the_last_id(store: VoiceStore) -> None:
    first, second = (store.add(prompt(1), name="Anna").id for _ in range(2))
    assert first != second
    assert contents(store) == {f"{prompt(1).id}.npz"}
    store.remove(first)
    assert store.get(second).id == prompt(1).id
    store.remove(second)
    assert contents(store) == set()
    with pytest.raises(UnknownVoice):
        store.get(second)


def test_a_removed_voice_is_unknown_although_it_is_cached(store: VoiceStore) -> None:
    voice = store.add(prompt(1), name="Anna")
    store.get(voice.id)
    with VoiceStore(store.folder, 2) as other_process:
        other_process.remove(voice.id)
    with pytest.raises(UnknownVoice):
        store.get(voice.id)


def test_a_voice_is_renamed_and_given_another_recording(tmp_path: Path) -> None:
    now = [100.0]
    with VoiceStore(tmp_path, 2, clock=lambda: now[0]) as store:
        store.add(prompt(1), name="Anna", about=VoiceMetadata(consent="yes"), voice_id="anna")
        now[0] = 200.0
        assert store.rename("anna", "Anna K.").name == "Anna K."
        now[0] = 300.0
        after = store.replace("anna", prompt(2))
        assert (after.created_at, after.changed_at, after.about.consent) == (100.0, 300.0, "yes")
        assert (after.name, after.transcript) == ("Anna K.", "voice 2 speaks")
        assert store.get("anna").id == prompt(2).id
        assert contents(store) == {f"{prompt(2).id}.npz"}
        for change in (lambda: store.rename("bo", "Bo"), lambda: store.replace("bo", prompt(1))):
            with pytest.raises(UnknownVoice):
                change()
        assert contents(store) == {f"{prompt(2).id}.npz"}


def test_voices_are_listed_by_owner_name_and_release(store: VoiceStore) -> None:
    for number, owner in enumerate(("key-1", "key-2", "key-1")):
        store.add(prompt(number), name=str(number), about=VoiceMetadata(owner=owner))
    store.add(prompt(3, CosyVoiceVersion.V3), name="2")

    def names(*arguments: object, **named: object) -> list[str]:
        return [voice.name for voice in store.list(*arguments, **named)]  # type: ignore[arg-type]

    assert names(["key-1"]) == ["0", "2"]
    assert names(["key-1", ""]) == ["0", "2", "2"]
    assert names([]) == []
    assert names() == ["0", "1", "2", "2"]
    assert names(version=2) == ["0", "1", "2"]
    assert names(name="2") == ["2", "2"]
    assert names(["key-1"], name="2") == ["2"]
    assert names(name="'; DROP TABLE voices") == []
    assert names(max_count=2) == ["0", "1"]


@pytest.mark.parametrize(
    "bad", ["", ".", "..", "../anna", "a/b", "a\\b", "a b", "a\0b", "-a", "é", "a" * 129, "a\n"]
)
def test_an_id_that_could_be_a_path_is_refused(store: VoiceStore, bad: str) -> None:
    with pytest.raises(BadRequest, match=r"voice id .* are allowed"):
        store.add(prompt(), name="Anna", voice_id=bad)
    assert store.find(bad) is None
    with pytest.raises(UnknownVoice):
        store.get(bad)
    assert contents(store) == set()


def test_an_id_in_use_is_refused(store: VoiceStore) -> None:
    store.add(prompt(1), name="Anna", voice_id="anna")
    with pytest.raises(BadRequest, match="'anna' already"):
        store.add(prompt(2), name="Anna", voice_id="anna")
    assert store.get("anna").id == prompt(1).id
    assert len(contents(store)) == 1


def test_a_prompt_of_another_version_is_refused_with_the_versions(store: VoiceStore) -> None:
    store.add(prompt(1, CosyVoiceVersion.V3), name="Anna", voice_id="anna")
    with pytest.raises(BadRequest, match="enrolled with CosyVoice 3, and CosyVoice 2 is loaded"):
        store.get("anna")
    with VoiceStore(store.folder, None) as any_release:
        assert any_release.get("anna").model_version == 3


@pytest.mark.parametrize(
    ("name", "sentence"), [("", "0 characters"), ("a" * 201, "201"), ("a\nb", "printable")]
)
def test_a_long_or_unprintable_name_is_refused(store: VoiceStore, name: str, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        store.add(prompt(), name=name)
    assert contents(store) <= {f"{prompt().id}.npz"}
    assert store.list() == ()


@pytest.mark.parametrize("language", ["english", "e", "en_GB", "en-", "../en"])
def test_an_invalid_language_code_is_refused(store: VoiceStore, language: str) -> None:
    with pytest.raises(BadRequest, match="language is"):
        store.add(prompt(), name="Anna", about=VoiceMetadata(language))


def test_lone_surrogates_are_refused(store: VoiceStore) -> None:
    half = "\ud83d"
    for voice, about in (
        (prompt(), VoiceMetadata(consent=half)),
        (prompt(), VoiceMetadata(owner=half)),
        (replace(prompt(), transcript=half), VoiceMetadata()),
    ):
        with pytest.raises(BadRequest, match="half of a character"):
            store.add(voice, name="Anna", about=about)
    with pytest.raises(BadRequest, match="printable"):
        store.add(prompt(), name=half)
    assert store.find(half) is None
    assert store.list(name=half) == store.list() == ()


def test_a_removed_voice_leaves_no_bytes_in_the_index(store: VoiceStore) -> None:
    store.add(prompt(1), name="Anna", about=VoiceMetadata(consent="a secret of hers"), voice_id="anna")
    assert b"a secret of hers" in b"".join(file.read_bytes() for file in store.folder.glob("index*"))
    store.remove("anna")
    store.close()
    assert b"a secret of hers" not in b"".join(file.read_bytes() for file in store.folder.glob("index*"))


def test_a_long_note_is_refused(store: VoiceStore) -> None:
    with pytest.raises(BadRequest, match="consent has 10,001 characters"):
        store.add(prompt(), name="Anna", about=VoiceMetadata(consent="a" * 10_001))


# Limits and full disks


def test_voices_beyond_the_limits_are_refused_with_the_limit(tmp_path: Path) -> None:
    with VoiceStore(tmp_path, 2, VoiceStoreLimits(max_voices=3, max_voices_per_owner=1)) as store:
        store.add(prompt(1), name="1", about=VoiceMetadata(owner="key-1"))
        with pytest.raises(BadRequest, match="this key has 1 voices, of 1 allowed"):
            store.add(prompt(2), name="2", about=VoiceMetadata(owner="key-1"))
        store.add(prompt(3), name="3")
        kept = store.add(prompt(4), name="4")
        with pytest.raises(BadRequest, match="has 3 voices, of 3 allowed"):
            store.add(prompt(5), name="5")
        assert len(contents(store)) == 3
        store.remove(kept.id)
        store.add(prompt(5), name="5")


def test_shared_contents_are_counted_once(tmp_path: Path) -> None:
    with VoiceStore(tmp_path / "first", 2) as measuring:
        size = measuring.add(prompt(1), name="1").bytes
    with VoiceStore(tmp_path / "second", 2, VoiceStoreLimits(max_bytes=2 * size)) as store:
        for name in ("1", "again", "and again"):
            store.add(prompt(1), name=name)
        store.add(prompt(2), name="2")
        with pytest.raises(BadRequest, match=f"has {2 * size:,} bytes, of {2 * size:,} allowed"):
            store.add(prompt(3), name="3")
        assert len(contents(store)) == 2
        assert len(store.list()) == 4


def test_a_full_disk_changes_nothing(store: VoiceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.add(prompt(1), name="Anna", voice_id="anna")

    def full(self: VoicePrompt, path: Path) -> None:
        path.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(VoicePrompt, "save", full)
        with pytest.raises(Overloaded, match=r"No space left on device\); nothing was changed"):
            store.add(prompt(2), name="Bo")
    assert contents(store) == {f"{prompt(1).id}.npz"}
    assert [voice.id for voice in store.list()] == ["anna"]
    store.add(prompt(2), name="Bo")


def test_a_full_index_changes_nothing(store: VoiceStore) -> None:
    (pages,) = store._write_connection.execute("PRAGMA page_count").fetchone()
    store._write_connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(Overloaded, match="full"):
        store.add(prompt(1), name="Anna", about=VoiceMetadata(consent="a" * 9_999, provenance="b" * 9_999))
    assert store.list() == ()
    store._write_connection.execute("PRAGMA max_page_count = 1000000")
    store.add(prompt(1), name="Anna")
    with VoiceStore(store.folder, 2) as again:
        assert len(contents(again)) == 1


# Memory


def test_a_hundred_threads_load_an_uncached_voice_once(
    store: VoiceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(prompt(1), name="Anna", voice_id="anna")
    loads, everyone = [], threading.Barrier(100)
    load = VoicePrompt.load

    def counted(path: Path) -> VoicePrompt:
        loads.append(path)
        return load(path)

    monkeypatch.setattr(store, "_read_prompt", counted)

    def ask(_: int) -> StorablePrompt:
        everyone.wait(30)
        return store.get("anna")

    with ThreadPoolExecutor(100) as threads:
        answers = set(map(id, threads.map(ask, range(100))))
    assert len(loads) == 1
    assert len(answers) == 1


def test_the_cache_of_a_store_stays_within_its_limit(tmp_path: Path) -> None:
    size = prompt(0).nbytes
    with VoiceStore(tmp_path, 2, VoiceStoreLimits(max_cache_bytes=2 * size)) as store:
        for number in range(5):
            assert store.get(store.add(prompt(number), name=str(number)).id).id == prompt(number).id
            assert store.cache.used_bytes <= 2 * size
