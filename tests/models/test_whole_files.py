"""Files that are whole or not there."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vivavoce.models.whole_files import written_whole


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    with written_whole(path) as partial:
        partial.write_bytes(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert [found.name for found in tmp_path.iterdir()] == ["file"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space"), written_whole(tmp_path / "file") as partial:
        partial.write_bytes(b"a part")
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_deleted_and_what_a_running_one_writes_is_not(tmp_path: Path) -> None:
    path = tmp_path / "file[1].zip"
    program = (
        "import os, sys; from pathlib import Path; from vivavoce.models.whole_files import written_whole\n"
        "with written_whole(Path(sys.argv[1])) as partial: os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, path], check=False)
    (abandoned,) = tmp_path.iterdir()
    with written_whole(path) as partial, written_whole(path) as other:
        assert {found.name for found in tmp_path.iterdir()} == {partial.name, other.name}
        assert str(os.getpid()) in partial.name
    assert not abandoned.exists()
    assert [found.name for found in tmp_path.iterdir()] == [path.name]
