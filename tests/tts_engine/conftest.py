"""Fixtures: stand-in backends, and CosyVoice bundles with tiny random weights, made once for each test file.

Only the bundles need torch.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.engine.engine_streams import MakeStandIn, Processes
from shared.engine.standin_backend import StandInBackend


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    processes = Processes()
    yield processes
    processes.close()


@pytest.fixture(params=["here", "in a process"])
def stand_in(request: pytest.FixtureRequest, processes: Processes) -> MakeStandIn:
    """Makes stand-in backends, in this process or in a child process."""
    return StandInBackend if request.param == "here" else processes.stand_in


@pytest.fixture(scope="module", params=["V2", "V3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of version 2, then one of version 3."""
    return _bundle(tmp_path_factory, request.param)


@pytest.fixture(scope="module")
def v2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of version 2, for tests that do not depend on the version."""
    return _bundle(tmp_path_factory, "V2")


@pytest.fixture(scope="module")
def v3_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of version 3."""
    return _bundle(tmp_path_factory, "V3")


def _bundle(tmp_path_factory: pytest.TempPathFactory, version: str) -> Path:
    from vivavoce.models.bundle_files import BundleSize
    from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle
    from vivavoce.models.cosyvoice.config import CosyVoiceVersion

    path = tmp_path_factory.mktemp("bundles") / version
    write_random_bundle(path, CosyVoiceVersion[version], BundleSize.TINY, seed=1)
    return path
