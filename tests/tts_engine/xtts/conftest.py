"""A small random XTTS bundle, made once."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def xtts_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from vivavoce.models.cosyvoice.checkpoint.random_bundle import BundleSize
    from vivavoce.models.xtts.checkpoint.random_bundle import write_random_bundle

    folder = tmp_path_factory.mktemp("xtts") / "tiny"
    write_random_bundle(folder, BundleSize.TINY, seed=7)
    return folder
