"""Releases: the version has one place, and the workflow builds and publishes with few permissions."""

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from vivavoce import __version__

ROOT = Path(__file__).parents[2]
WORKFLOW_TEXT = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
WORKFLOW: dict[Any, Any] = yaml.safe_load(WORKFLOW_TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]


def test_the_version_has_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "vivavoce.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_a_tag_of_a_version_starts_the_workflow() -> None:
    (pattern,) = WORKFLOW[True]["push"]["tags"]  # YAML's "on" is true
    assert pattern == "v[0-9]+.[0-9]+.[0-9]+*"


def test_only_what_signs_and_publishes_has_an_identity_and_no_password_is_stored() -> None:
    assert WORKFLOW["permissions"] == {}
    build, publish = JOBS["build"], JOBS["publish"]
    assert build["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi" and publish["needs"] == "build"
    assert "secrets." not in WORKFLOW_TEXT and "password" not in str(JOBS)


def test_provenance_is_of_the_files_that_make_dist_writes() -> None:
    steps = JOBS["build"]["steps"]
    assert "make dist" in [step.get("run") for step in steps]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    attested = next(step["with"] for step in steps if "attest" in step.get("uses", ""))
    assert attested == {"subject-checksums": "dist/SHA256SUMS"}
    assert ">SHA256SUMS" in makefile[makefile.index("\ndist:") :]
    # Text of a tag reaches a shell through the environment only.
    assert not [step for job in JOBS.values() for step in job["steps"] if "${{" in step.get("run", "")]
