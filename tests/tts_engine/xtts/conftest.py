"""A small random XTTS bundle, made once."""

from pathlib import Path

import pytest

from shared.voices.tiny_xtts import write_tiny_xtts


@pytest.fixture(scope="session")
def xtts_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_xtts(tmp_path_factory.mktemp("xtts") / "tiny")
