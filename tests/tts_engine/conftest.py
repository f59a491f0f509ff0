"""CosyVoice bundles with tiny random weights, made once for each test file. Only they import torch."""

from pathlib import Path

import pytest


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
    from vivavoce.models.cosyvoice.checkpoint.random_bundle import BundleSize, write_random_bundle
    from vivavoce.models.cosyvoice.config import CosyVoiceVersion

    path = tmp_path_factory.mktemp("bundles") / version
    write_random_bundle(path, CosyVoiceVersion[version], BundleSize.TINY, seed=1)
    return path
