"""Records of other packages: found by their entry points, and refused by a sentence with the package."""

import sys
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest

from vivavoce.tts_engine.errors import PlugInError
from vivavoce.tts_engine.packaging.plug_ins import with_plug_ins


@dataclass(frozen=True)
class Toy:
    """A record with a name."""

    name: str


BUILT_IN = (Toy("bear"),)


def install(folder: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package "toys" with one entry point."""
    metadata = folder / "toys-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[vivavoce.toys]\nowl = {target}\n")
    monkeypatch.syspath_prepend(str(folder))


def toys() -> tuple[Toy, ...]:
    return with_plug_ins("vivavoce.toys", BUILT_IN, attrgetter("name"))


def test_a_record_of_another_package_follows_the_built_in_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert toys() == BUILT_IN
    install(tmp_path, "aviary:OWL", monkeypatch)
    monkeypatch.setitem(sys.modules, "aviary", SimpleNamespace(OWL=Toy("owl")))
    assert toys() == (Toy("bear"), Toy("owl"))


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("absent_package_of_toys:OWL", "cannot be imported: ModuleNotFoundError: No module named 'absent_"),
        ("pathlib:Path", "pathlib:Path is no Toy"),
        ("second_bear:BEAR", "the name 'bear' is taken"),
    ],
)
def test_a_faulty_entry_point_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, sentence: str
) -> None:
    install(tmp_path, target, monkeypatch)
    monkeypatch.setitem(sys.modules, "second_bear", SimpleNamespace(BEAR=Toy("bear")))
    with pytest.raises(PlugInError) as raised:
        toys()
    assert str(raised.value).startswith("entry point 'owl' of vivavoce.toys, installed by toys")
    assert sentence in str(raised.value)
