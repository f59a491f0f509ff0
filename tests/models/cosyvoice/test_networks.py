"""The networks of a bundle use every tensor of it, and are as large as it says."""

from pathlib import Path

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from vivavoce.models.cosyvoice.checkpoint.bundle import InvalidBundleError, open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import BundleSize, write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion, released_config  # noqa: E402
from vivavoce.models.cosyvoice.flow import flow  # noqa: E402
from vivavoce.models.cosyvoice.networks import flow_config, hift_config, load_flow, load_lm, load_networks  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v3 import HiftV3  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.layers import HiftConfig as DefaultHift  # noqa: E402


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_a_bundle_becomes_three_networks(tmp_path: Path, version: CosyVoiceVersion) -> None:
    write_random_bundle(tmp_path / "bundle", version, BundleSize.TINY)
    bundle = open_bundle(tmp_path / "bundle")
    networks = load_networks(bundle)
    assert networks.lm.config == bundle.network_config.lm
    assert isinstance(networks.vocoder, HiftV2 if version is CosyVoiceVersion.V2 else HiftV3)
    for network in (networks.lm, networks.flow, networks.vocoder):
        assert not any(tensor.is_meta for tensor in network.state_dict().values())
        assert not any(tensor.is_meta for tensor in network.buffers())
        assert not any(tensor.requires_grad for tensor in network.parameters())


def test_the_released_sizes_are_the_networks_defaults() -> None:
    assert flow_config(released_config(CosyVoiceVersion.V2)) == flow.V2_CONFIG
    assert flow_config(released_config(CosyVoiceVersion.V3)) == flow.V3_CONFIG
    assert (
        hift_config(released_config(CosyVoiceVersion.V2))
        == hift_config(released_config(CosyVoiceVersion.V3))
        == DefaultHift()
    )


def test_a_tensor_that_went_missing_after_the_check_is_told(tmp_path: Path) -> None:
    write_random_bundle(tmp_path / "bundle", CosyVoiceVersion.V2, BundleSize.TINY)
    bundle = open_bundle(tmp_path / "bundle")
    weights = torch.load(tmp_path / "bundle" / "flow.pt", weights_only=True)
    del weights["encoder_proj.bias"]
    torch.save(weights, tmp_path / "bundle" / "flow.pt")
    with pytest.raises(InvalidBundleError, match=r"flow\.pt: .*encoder_proj\.bias"):
        load_flow(bundle)


def test_a_tensor_that_is_not_used_is_told(tmp_path: Path) -> None:
    write_random_bundle(tmp_path / "bundle", CosyVoiceVersion.V3, BundleSize.TINY)
    bundle = open_bundle(tmp_path / "bundle")
    weights = torch.load(tmp_path / "bundle" / "llm.pt", weights_only=True)
    torch.save(weights | {"extra": torch.zeros(1)}, tmp_path / "bundle" / "llm.pt")
    with pytest.raises(InvalidBundleError, match=r"llm\.pt: 1 tensors are not used, extra"):
        load_lm(bundle)
