"""A random bundle of each version, and its voice encoder."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from vivavoce.models.cosyvoice.checkpoint.bundle import CosyVoiceBundle
    from vivavoce.models.cosyvoice.front_end.voice_encoder import VoiceEncoder


@pytest.fixture(scope="module", params=[2, 3])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> "CosyVoiceBundle":
    from vivavoce.models.bundle_files import BundleSize
    from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
    from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle
    from vivavoce.models.cosyvoice.config import CosyVoiceVersion

    folder = tmp_path_factory.mktemp("bundle") / "tiny"
    write_random_bundle(folder, CosyVoiceVersion(request.param), BundleSize.TINY)
    return open_bundle(folder)


@pytest.fixture(scope="module")
def encoder(bundle: "CosyVoiceBundle") -> "VoiceEncoder":
    from vivavoce.models.cosyvoice.front_end.voice_encoder import VoiceEncoder

    return VoiceEncoder.load(
        bundle.speaker_encoder, bundle.speech_tokenizer, bundle.version, bundle.yaml_config.mel_max_hz
    )
