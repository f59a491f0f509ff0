"""The Pipecat versions in the documentation against those that CI tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def oldest() -> str:
    """Return the version that CI tests besides the newest."""
    found = re.search(r"^version=(\S+)$", read("tests/peers/pipecat_oldest.sh"), re.MULTILINE)
    assert found
    return found[1]


def test_the_oldest_tested_version_is_the_oldest_allowed() -> None:
    (allowed,) = re.findall(r"pipecat-ai\[.*?\]>=([\d.]+),<2", read("pyproject.toml"))
    assert oldest().removesuffix(".0") == allowed


@pytest.mark.parametrize("page", ["adapters/pipecat/README.md", "examples/pipecat_community_listing.md"])
def test_the_documentation_names_the_oldest_tested_version(page: str) -> None:
    assert f"v{oldest()}, the oldest supported version" in " ".join(read(page).split())
