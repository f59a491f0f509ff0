"""What is said of Pipecat's versions is what is tested."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def oldest() -> str:
    """The version that CI installs beside the newest."""
    found = re.search(r"^version=(\S+)$", read("tests/peers/pipecat_oldest.sh"), re.MULTILINE)
    assert found
    return found[1]


def test_the_oldest_version_tested_is_the_oldest_allowed() -> None:
    (allowed,) = re.findall(r"pipecat-ai\[.*?\]>=([\d.]+),<2", read("pyproject.toml"))
    assert oldest().removesuffix(".0") == allowed


@pytest.mark.parametrize("page", ["README.md", "examples/pipecat_community_listing.md"])
def test_the_oldest_version_tested_is_the_one_named(page: str) -> None:
    assert f"v{oldest()}, the oldest that it works with" in " ".join(read(page).split())
