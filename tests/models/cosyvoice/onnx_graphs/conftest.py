"""Exported bundles of reduced size."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from vivavoce.models.bundle_files import BundleSize
from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.onnx_graphs.export import MATRIX_FORMATS, export_bundle


@pytest.fixture(scope="session", params=list(CosyVoiceVersion), ids=lambda version: f"v{version.value}")
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CosyVoiceBundle:
    """A tiny bundle with its graphs in every precision."""
    folder: Path = tmp_path_factory.mktemp("exported") / "bundle"
    write_random_bundle(folder, request.param, BundleSize.TINY, seed=5)
    bundle = open_bundle(folder)
    for precision in MATRIX_FORMATS:
        list(export_bundle(bundle, precision))
    return bundle
