"""Dependencies without known advisories: what is installed, and what pyproject.toml allows."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import audit
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]


def test_nothing_that_is_installed_has_a_known_advisory() -> None:
    assert audit.outdated_packages() == []


def test_an_outdated_package_is_named_with_its_advisory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "version", lambda name: "1.3.0" if name == "starlette" else "999")
    (line,) = audit.outdated_packages()
    assert line.startswith("starlette 1.3.0 is installed; 1.3.1 mends CVE-2026-54283")


def test_no_requirement_allows_a_version_with_a_known_advisory() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    oldest = {name: Version(version) for name, (version, _) in audit.min_versions().items()}
    allowed = {}
    for requirement in map(Requirement, texts):
        bounds = [spec.version for spec in requirement.specifier if spec.operator in (">=", "==", "~=")]
        allowed[requirement.name] = min(map(Version, bounds), default=Version("0"))
    assert {"starlette", "h11", "protobuf", "python-multipart"} <= allowed.keys()
    assert [name for name in oldest.keys() & allowed.keys() if allowed[name] < oldest[name]] == []


def test_the_numbers_of_advisories_are_well_formed() -> None:
    for _, advisories in audit.min_versions().values():
        assert re.fullmatch(r"CVE-\d{4}-\d{4,}(, CVE-\d{4}-\d{4,})*", advisories)
