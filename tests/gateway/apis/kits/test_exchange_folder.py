"""The exchange folder: names that cannot be written, and files that go while others are written."""

import os
import stat
from pathlib import Path

import pytest

from vivavoce.gateway.apis.kits import exchange_folder
from vivavoce.gateway.apis.kits.exchange_folder import ExchangeFolder
from vivavoce.tts_engine.errors import BadRequest, Overloaded


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "a/" + "b" * 254])
def test_a_name_may_be_as_long_as_file_systems_allow(tmp_path: Path, name: str) -> None:
    folder = ExchangeFolder(tmp_path)
    folder.check_writable(name, "key")
    assert folder.write_speech(name, b"speech", "key").read_bytes() == b"speech"


@pytest.mark.parametrize("name", ["a" * 256, "é" * 128, "é" * 128 + "/b"])
def test_a_longer_name_is_refused_before_any_speech_is_made(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadRequest, match="255 bytes"):
        ExchangeFolder(tmp_path).check_writable(name, "key")


@pytest.mark.parametrize(("written", "name"), [("a/b.wav", "a"), ("a", "a/b.wav")])
def test_a_name_in_the_place_of_a_folder_or_below_a_file_is_refused(
    tmp_path: Path, written: str, name: str
) -> None:
    folder = ExchangeFolder(tmp_path)
    folder.write_speech(written, b"speech", "key")
    for write in (folder.check_writable, lambda name, key: folder.write_speech(name, b"", key)):
        with pytest.raises(BadRequest, match="folder"):
            write(name, "key")


def test_what_could_not_be_written_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exchange_folder, "write_all", fail)
    with pytest.raises(Overloaded, match="No space left"):
        ExchangeFolder(tmp_path).write_speech("a.wav", b"speech", "key")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_only_the_user_of_the_server_may_read_what_is_written(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        ExchangeFolder(tmp_path).write_speech("a/b.wav", b"speech", "key")
    finally:
        os.umask(mask)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"speech": 0o700, "key": 0o700, "a": 0o700, "b.wav": 0o600}


def test_a_file_that_another_request_deletes_meanwhile_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_folder, "MAX_SPEECH_FILES", 2)
    folder = ExchangeFolder(tmp_path)
    paths = [folder.write_speech(name, b"speech", "key") for name in ("a", "b")]
    for path in paths:
        os.utime(path, (1, 1))
    is_file = Path.is_file

    def delete_after_listing(self: Path) -> bool:
        found = is_file(self)
        if self == paths[0]:
            self.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(Path, "is_file", delete_after_listing)
    assert folder.write_speech("c", b"speech", "key").exists()
