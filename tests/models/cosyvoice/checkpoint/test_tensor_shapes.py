"""The computed shapes are those of the released checkpoints, key by key."""

import json
from pathlib import Path
from typing import Any

import pytest

from vivavoce.models.cosyvoice.checkpoint.tensor_shapes import WEIGHT_FILES, file_shapes
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, released_config

GOLDEN = Path(__file__).parents[3] / "golden" / "data"


def released_tensors(version: CosyVoiceVersion, name: str) -> dict[str, Any]:
    text = (GOLDEN / f"manifest_cosyvoice{version.value}_0.5b.json").read_text("utf-8")
    tensors: dict[str, Any] = json.loads(text)[name]["tensors"]
    return tensors


@pytest.mark.parametrize("version", CosyVoiceVersion)
@pytest.mark.parametrize("name", WEIGHT_FILES)
def test_every_key_and_shape_is_that_of_the_release(version: CosyVoiceVersion, name: str) -> None:
    tensors = released_tensors(version, name)
    assert file_shapes(released_config(version))[name] == {
        key: tuple(shape) for key, (shape, _) in tensors.items()
    }
    assert {dtype for _, dtype in tensors.values()} == {"float32"}
