"""Plants faults in a copy of the product, one at a time, and reports which of them the tests catch.

    PYTHONPATH=tests .venv/bin/python -m planted_faults [WORD...]

The words choose the faults whose line has one of them. It ends with an error if a fault survives, or if its
text is no longer in the product.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
_LAYERS: Final = ("models", "tts_engine", "adapters", "gateway")
_TIMEOUT_S: Final = 900.0
_ALL_PASSED, _SOME_FAILED = 0, 1  # of pytest


class FaultNotPlanted(Exception):
    """The source or the tests of a fault are not found, or its tests do not run."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of the source."""

    about: str  # what is wrong then
    file: str  # where the text was when the fault was described
    old: str
    new: str
    tests: tuple[str, ...]  # that should catch it

    def source(self, root: Path) -> Path:
        """The one file that has the text: that of the given name where there are several."""
        files = [
            file for layer in _LAYERS for file in (root / layer).rglob("*.py") if self.old in file.read_text()
        ]
        named = [file for file in files if file.name == Path(self.file).name] or files
        if len(named) != 1 or named[0].read_text().count(self.old) != 1:
            raise FaultNotPlanted(f"{self.old!r} is once in {[str(file) for file in named] or 'no file'}")
        return named[0]

    def test_paths(self, root: Path) -> list[str]:
        """The test files and folders, wherever they are now."""
        found = [path for name in self.tests for path in _named(root, name)]
        if not found:
            raise FaultNotPlanted(f"none of {self.tests} is there")
        return [path.relative_to(root).as_posix() for path in found]


def _named(root: Path, name: str) -> list[Path]:
    path = root / name
    if path.exists():
        return [path]
    return sorted((root / "tests").rglob(path.name))


def load_faults() -> list[Fault]:
    """The faults of the file."""
    entries = tomllib.loads((Path(__file__).parent / "faults.toml").read_text())["fault"]
    return [Fault(**{**entry, "tests": tuple(entry["tests"])}) for entry in entries]


def copy_product(target: Path) -> None:
    """Copy what git knows, and the links by which the package is found."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


def is_caught(fault: Fault, root: Path) -> bool:
    """Plant a fault, run its tests, and take it back. Raises FaultNotPlanted if they fail without it."""
    source = fault.source(root)
    if _fails(fault.test_paths(root), root):
        raise FaultNotPlanted("its tests fail without it")
    text = source.read_text()
    source.write_text(text.replace(fault.old, fault.new))
    try:
        return _fails(fault.test_paths(root), root)
    finally:
        source.write_text(text)


def _fails(tests: Sequence[str], root: Path) -> bool:
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": f"{root}/tests:{root}/.links"}
    try:
        ran = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return True
    if ran.returncode not in (_ALL_PASSED, _SOME_FAILED):
        raise FaultNotPlanted(f"pytest ended with {ran.returncode}: {ran.stdout[-300:]}")
    return ran.returncode == _SOME_FAILED


def main() -> int:
    """Print a line for each fault; return the number of those that were not caught."""
    words = sys.argv[1:]
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        copy_product(Path(name))
        for fault in load_faults():
            line = f"{fault.file}: {fault.about}"
            if words and not any(word in line for word in words):
                continue
            begins = time.monotonic()
            try:
                verdict = "caught" if is_caught(fault, Path(name)) else "SURVIVED"
            except FaultNotPlanted as error:
                verdict = f"NOT PLANTED ({error})"
            bad += verdict != "caught"
            print(f"{verdict:8} {time.monotonic() - begins:4.0f} s  {line}", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())
