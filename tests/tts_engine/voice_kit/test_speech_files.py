"""Lines on file: found after a restart and by other processes, bounded, private, and no harm if they fail."""

import errno
import logging
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.engine.kept_noise import SAMPLES, NoiseVoice, keeping
from vivavoce.tts_engine.voice_kit import speech_files

FILE_BYTES = 2 * 4 * SAMPLES + 128  # of a line of two pieces, at most
PROGRAM = """
import os, sys
sys.path = sys.argv[1].split(":")
from pathlib import Path
from shared.engine.kept_noise import NoiseVoice, keeping
"""


def speak(folder: Path, *keys: str | None, **how: Any) -> tuple[list[bytes], int]:
    """What a server that is started says, and how many lines it renders for that."""
    voice = NoiseVoice()
    with keeping(folder, **how) as kept:
        return [voice.line(kept, key) for key in keys], voice.rendered


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_lines_are_there_after_a_restart_with_the_same_samples(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "kept"
    first, rendered = speak(folder, "a", "b", "a")
    assert rendered == 2
    assert speak(folder, "b", "a", "a") == ([first[1], first[0], first[0]], 0)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files_in(folder)} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in files_in(folder)} == {0o700}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_line_that_was_read_says_so_and_counts_in_memory(tmp_path: Path) -> None:
    speak(tmp_path, "a")
    with keeping(tmp_path) as kept:
        line = kept.line("a", lambda: iter(()))
        assert [line.piece(index)[1] for index in (0, 1)] == [True, True]
        assert line.is_from_file and 2 * 4 * SAMPLES <= kept.used_bytes < 2 * 4 * SAMPLES + 1_000


def test_a_line_without_a_key_or_that_is_given_up_is_not_written(tmp_path: Path) -> None:
    voice = NoiseVoice()
    with keeping(tmp_path) as kept:
        voice.line(kept, None)
        kept.line("a", lambda: voice.render("a")).piece(0)
    assert files_in(tmp_path) == []


def test_what_another_version_wrote_is_not_read_and_makes_room(tmp_path: Path) -> None:
    speak(tmp_path, *"abc", identity="before")
    for path in files_in(tmp_path):
        os.utime(path, (1, 1))
    assert speak(tmp_path, *"abc")[1] == 3 and len(files_in(tmp_path)) == 6
    speak(tmp_path, "d", max_bytes=4 * FILE_BYTES)
    assert speak(tmp_path, *"abcd")[1] == 0 and speak(tmp_path, *"abc", identity="before")[1] == 3


def test_the_lines_asked_for_longest_ago_make_room(tmp_path: Path) -> None:
    keys = [chr(97 + number) for number in range(16)]
    for at, key in enumerate(keys):
        speak(tmp_path, key)
        newest = max(files_in(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (at + 1, at + 1))
    speak(tmp_path, "a")  # asked for again
    speak(tmp_path, "z", max_bytes=8 * FILE_BYTES)
    assert sum(path.stat().st_size for path in files_in(tmp_path)) <= 8 * FILE_BYTES
    assert speak(tmp_path, "a", "z", *keys[-5:])[1] == 0
    assert speak(tmp_path, *keys[1:9])[1] == 8


def test_a_line_that_is_said_from_memory_is_not_taken_for_an_old_one(tmp_path: Path) -> None:
    voice = NoiseVoice()
    with keeping(tmp_path, max_bytes=4 * FILE_BYTES) as kept:
        for key in "abacadaeafaga":
            voice.line(kept, key)
    assert voice.rendered == 7 and len(files_in(tmp_path)) <= 4
    assert speak(tmp_path, "a")[1] == 0


def _flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:40],
        lambda content: content[:-1],
        lambda content: content + b"\0",
        lambda content: _flip(content, -1),
        lambda content: _flip(content, 8),  # the format
        lambda content: _flip(content, 20),  # the key
        lambda content: _flip(content, 80),
        lambda content: bytes(len(content)),  # as after a loss of power
    ],
)
def test_a_damaged_file_is_one_warning_and_its_line_is_rendered_again(
    tmp_path: Path, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    said, _ = speak(tmp_path, "a", "b")
    for path in files_in(tmp_path):
        path.write_bytes(damage(path.read_bytes()))
    assert speak(tmp_path, "a", "b") == (said, 2)
    (warning,) = warnings(caplog)
    assert warning.endswith("its line is rendered again")
    assert speak(tmp_path, "a", "b") == (said, 0)


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS])
def test_a_disk_that_takes_nothing_is_one_warning_and_speech_goes_on(
    tmp_path: Path, fault: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said, _ = speak(tmp_path, "a")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(speech_files, "_write_whole", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    again, rendered = speak(tmp_path, "a", "b", "c", "b", "c")
    assert again[0] == said[0] and again[1:3] == again[3:] and rendered == 2
    (warning,) = warnings(caplog)
    assert warning.endswith(f"memory only: [Errno {fault}] {os.strerror(fault)}")


def test_a_folder_that_cannot_be_one_is_a_warning_and_speech_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kept").write_text("a file")
    said, rendered = speak(tmp_path / "kept", "a", "b", "a")
    assert said[0] == said[2] and rendered == 2
    assert len(warnings(caplog)) == 2  # of reading and of writing


def test_other_files_in_the_folder_stay(tmp_path: Path) -> None:
    (tmp_path / "ab").mkdir()
    strangers = [tmp_path / "notes.speech", tmp_path / "ab" / "notes.speech"]
    for path in strangers:
        path.write_bytes(bytes(10 * FILE_BYTES))
    speak(tmp_path, "a", max_bytes=2 * FILE_BYTES)
    assert all(path.exists() for path in strangers) and speak(tmp_path, "a")[1] == 0


def test_a_slow_disk_delays_no_line_and_what_is_too_much_for_it_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = threading.Event()
    write_whole = speech_files._write_whole

    def wait(path: Path, content: bytes) -> None:
        disk.wait(30)
        write_whole(path, content)

    monkeypatch.setattr(speech_files, "_write_whole", wait)
    voice = NoiseVoice()
    with keeping(tmp_path) as kept:
        for number in range(100):
            voice.line(kept, str(number))  # does not wait for the disk
        disk.set()
    assert voice.rendered == 100 and len(files_in(tmp_path)) == 32


def start(program: str, *arguments: object) -> "subprocess.Popen[str]":
    """Start a process with that program."""
    command = [sys.executable, "-c", PROGRAM + program, ":".join(sys.path), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def outputs_of(processes: list["subprocess.Popen[str]"]) -> list[str]:
    """What they printed, once they have ended well."""
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return outputs


def test_a_process_that_is_killed_while_it_writes_leaves_whole_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = """
replace, numbers = os.replace, iter(range(20))
def die_after_ten(unfinished, path):
    if next(numbers) == 10:
        os.truncate(unfinished, 5_000)
        os.kill(os.getpid(), 9)
    replace(unfinished, path)
os.replace = die_after_ten
with keeping(Path(sys.argv[2])) as kept:
    for number in range(20):
        NoiseVoice().line(kept, str(number))
"""
    with start(program, tmp_path) as process:
        assert process.wait(60) == -9
    assert sorted(path.suffix for path in files_in(tmp_path)) == [".partial", *[".speech"] * 10]
    keys = [str(number) for number in range(20)]
    assert speak(tmp_path, *keys)[1] == 10
    assert speak(tmp_path, *keys)[1] == 0 and warnings(caplog) == []
    speak(tmp_path, "new", max_bytes=20 * FILE_BYTES)
    assert {path.suffix for path in files_in(tmp_path)} == {".speech"}  # the partial one was the oldest


def test_processes_share_a_folder_and_its_bound(tmp_path: Path) -> None:
    program = """
voice = NoiseVoice()
for _ in range(5):
    with keeping(Path(sys.argv[2]), max_bytes=int(sys.argv[3]), memory=50_000) as kept:
        for number in range(20):
            samples = b"".join(piece.samples.tobytes() for piece in voice.render(str(number)))
            voice.rendered -= 1
            assert voice.line(kept, str(number)) == samples
print(voice.rendered)
"""
    max_bytes = 30 * FILE_BYTES  # a look at the folder after every second file
    processes = [start(program, tmp_path, max_bytes) for _ in range(2)]
    assert all(int(output) <= 20 for output in outputs_of(processes))  # of 100 each
    assert speak(tmp_path, *map(str, range(20)))[1] == 0


def test_processes_that_write_more_than_there_is_room_for_keep_the_bound(tmp_path: Path) -> None:
    program = """
for turn in range(5):
    with keeping(Path(sys.argv[2]), max_bytes=int(sys.argv[3]), memory=50_000) as kept:
        for number in range(20):
            NoiseVoice().line(kept, f"{sys.argv[4]} {turn} {number}")
"""
    max_bytes = 32 * FILE_BYTES
    processes = [start(program, tmp_path, max_bytes, name) for name in "ab"]
    outputs_of(processes)
    total = sum(path.stat().st_size for path in files_in(tmp_path))
    assert max_bytes / 2 < total <= max_bytes + 2 * FILE_BYTES  # another one may write during a look
