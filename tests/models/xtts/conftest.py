"""A small random XTTS bundle and its networks, for the tests of this folder."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # imported in the fixtures, which run with torch only
    from vivavoce.models.xtts.checkpoint.bundle import XttsBundle
    from vivavoce.models.xtts.networks import XttsNetworks
    from vivavoce.models.xtts.voice import XttsVoiceEncoder


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> "XttsBundle":
    from vivavoce.models.bundle_files import BundleSize
    from vivavoce.models.xtts.checkpoint.bundle import open_bundle
    from vivavoce.models.xtts.checkpoint.random_bundle import write_random_bundle

    folder = tmp_path_factory.mktemp("xtts") / "tiny"
    write_random_bundle(folder, BundleSize.TINY, seed=7)
    return open_bundle(folder)


@pytest.fixture(scope="session")
def folder(bundle: "XttsBundle") -> Path:
    return bundle.folder


@pytest.fixture(scope="session")
def networks(bundle: "XttsBundle") -> "XttsNetworks":
    from vivavoce.models.xtts.networks import load_networks

    return load_networks(bundle)


@pytest.fixture(scope="session")
def voice_encoder(bundle: "XttsBundle") -> "XttsVoiceEncoder":
    from vivavoce.models.xtts.networks import load_voice_encoder

    return load_voice_encoder(bundle)
