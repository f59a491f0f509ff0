"""The border between the core and the kinds: the core imports a kind only where its sort is listed.

Kinds never import each other, but for the wires that they speak.
"""

from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

import pytest
from kinds import KINDS, Kind, kind_of, kit_of
from structure import Module, modules
from test_imports import ROOT, file_of, imports_of

# The files that list the kinds of a sort.
REGISTRIES = {
    "agent": ("gateway/calls/agents/registry.py",),
    "audio format": ("adapters/audio/encoders.py", "adapters/audio/line_codecs.py"),
    "dialect": ("gateway/apis/speech_apis.py",),
    "way in": ("gateway/call_servers.py", "gateway/configuration/settings.py"),
    "carrier": ("gateway/calls/ways_in/media_streams/carriers.py",),
    "voice family": ("tts_engine/backends/kinds.py", "gateway/cli/main.py"),
    "language": (
        "tts_engine/reading/languages/registry.py",
        "tts_engine/reading/languages/default.py",
        "tts_engine/reading/languages/multilingual.py",
    ),
    "lexicon format": ("tts_engine/reading/pronunciation/lexicon_files.py",),
    "markup": ("adapters/ssml/input.py", "tts_engine/engine.py"),
    "place to run": (
        "gateway/cli/main.py",
        "gateway/configuration/settings.py",
        "gateway/engine_opening.py",
        "tts_engine/backends/loading.py",
    ),
    "command": ("gateway/cli/main.py",),
}


def name_of(kind: Kind) -> str:
    return f"{kind.sort} {kind.name}"


def _is_wire(kind: Kind | None) -> bool:
    return kind is not None and kind.sort == "wire"


@cache
def _imports() -> list[tuple[Module, PurePosixPath]]:
    """Each module with each file of the product that it imports."""
    return [
        (module, file_of(entry.target))
        for module in modules(ROOT)
        for entry in imports_of(module.path, module.tree)
        if entry.package == "vivavoce"
    ]


def imports_across() -> Iterator[tuple[str, str]]:
    """Each importer with a kind that it imports and that is not its own, but for registries."""
    for module, file in _imports():
        importer, imported = kind_of(module.path), kind_of(file)
        if imported is None or imported is importer:
            continue
        if imported.sort == "wire" and (importer or kit_of(module.path)) and not _is_wire(importer):
            continue
        if str(module.path) not in REGISTRIES.get(imported.sort, ()):
            yield name_of(importer) if importer else str(module.path), name_of(imported)


def test_the_core_imports_no_kind_and_kinds_do_not_import_each_other() -> None:
    assert sorted(set(imports_across())) == []


def test_a_kit_is_used_by_itself_and_the_kinds_of_its_sort_only() -> None:
    strangers = [
        (str(module.path), str(file))
        for module, file in _imports()
        if (sort := kit_of(file))
        if kit_of(module.path) != sort and getattr(kind_of(module.path), "sort", None) != sort
    ]
    assert strangers == []


def test_each_file_has_one_owner_and_each_kind_has_files() -> None:
    owners = {kind_of(module.path) for module in modules(ROOT)}
    assert [name_of(kind) for kind in KINDS if kind not in owners] == []


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("gateway/apis/dialects/openai/models.py", "dialect openai"),
        ("adapters/media_streams/carriers/jambonz.py", "carrier jambonz"),
        ("tts_engine/cosyvoice/session.py", "voice family cosyvoice"),
        ("gateway/apis/shell/speech_job.py", None),
    ],
)
def test_a_file_belongs_to_a_kind_by_its_place(path: str, owner: str | None) -> None:
    kind = kind_of(PurePosixPath(path))
    assert (name_of(kind) if kind else None) == owner
