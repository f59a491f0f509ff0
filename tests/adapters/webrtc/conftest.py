"""Fixtures of the WebRTC tests."""

from collections.abc import Iterator

import pytest

from shared.browser.chromium import loopback_only


@pytest.fixture(autouse=True)
def only_loopback() -> Iterator[None]:
    with loopback_only():
        yield
