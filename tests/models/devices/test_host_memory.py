"""Pages of mapped files that a process has read and no longer needs."""

import mmap
import os
import re
import sys
from pathlib import Path

import pytest

from vivavoce.models.devices.host_memory import release_file_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def resident_kb(path: Path) -> int:
    """Memory of this process in the pages of a mapped file."""
    smaps = Path("/proc/self/smaps").read_text()
    return sum(int(kb) for kb in re.findall(rf" {re.escape(str(path))}\n(?:.*\n)*?Rss: +(\d+) kB", smaps))


def test_pages_of_a_mapped_file_are_dropped_and_can_be_read_again(tmp_path: Path) -> None:
    dropped, kept, content = tmp_path / "dropped", tmp_path / "kept", os.urandom(1 << 20)
    mapped = {}
    for path in (dropped, kept):
        path.write_bytes(content)
        with path.open("rb") as file:
            mapped[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert mapped[path][:] == content
        assert resident_kb(path) == 1024
    release_file_pages(dropped)
    assert (resident_kb(dropped), resident_kb(kept)) == (0, 1024)
    assert mapped[dropped][:] == content
    release_file_pages(tmp_path / "missing")
