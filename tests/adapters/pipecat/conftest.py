"""Fixtures of the Pipecat tests."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    """Disable Pipecat's log, which goes to standard error."""
    from loguru import logger  # a dependency of Pipecat, which may be missing

    logger.disable("pipecat")
    yield
    logger.enable("pipecat")
