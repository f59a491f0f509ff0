"""The gateway that real clients talk to, and the mark of their tests.

They are slow: they install SDKs, start browsers, or hold conversations.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.gateways.client_programs import run_gateway


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("slow")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Return the URL and the keys of a gateway over the stand-in backend."""
    with run_gateway(tmp_path_factory.mktemp("gateway")) as addresses:
        yield addresses


@pytest.fixture
def server(gateway: dict[str, str]) -> tuple[str, str, str]:
    """Return the arguments of a client program: URL, key, and a key without budget."""
    return gateway["url"], gateway["key"], gateway["poor_key"]
