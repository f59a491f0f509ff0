"""Loading the networks of a bundle: sizes from its settings, every tensor used."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from vivavoce.models.bundle_files import BundleSize  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.bundle import InvalidBundleError, open_bundle  # noqa: E402
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle  # noqa: E402
from vivavoce.models.cosyvoice.config import CosyVoiceVersion  # noqa: E402
from vivavoce.models.cosyvoice.flow.flow import Flow  # noqa: E402
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm  # noqa: E402
from vivavoce.models.cosyvoice.networks import load_flow, load_lm, load_networks  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v2 import HiftV2  # noqa: E402
from vivavoce.models.cosyvoice.vocoder.hift_v3 import HiftV3  # noqa: E402


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_a_bundle_becomes_three_networks(tmp_path: Path, version: CosyVoiceVersion) -> None:
    write_random_bundle(tmp_path / "bundle", version, BundleSize.TINY)
    bundle = open_bundle(tmp_path / "bundle")
    networks = load_networks(bundle)
    config = bundle.network_config
    assert (networks.lm.config, networks.flow.config, networks.vocoder.config) == (
        config.lm,
        config.flow,
        config.hift,
    )
    assert isinstance(networks.vocoder, HiftV2 if version is CosyVoiceVersion.V2 else HiftV3)
    for network in (networks.lm, networks.flow, networks.vocoder):
        assert not any(tensor.is_meta for tensor in network.state_dict().values())
        assert not any(tensor.is_meta for tensor in network.buffers())
        assert not any(tensor.requires_grad for tensor in network.parameters())


class _Operators(TorchDispatchMode):
    """Notes the names of all operators."""

    def __init__(self) -> None:
        super().__init__()
        self.names = set[str]()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(operator.overloadpacket.__name__)
        return operator(*args, **(kwargs or {}))


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_networks_are_made_without_operators_that_import_torchs_compiler(
    tmp_path: Path, version: CosyVoiceVersion
) -> None:
    """On the device "meta", torch computes these in Python, and imports its compiler for it, 1 to 2 s."""
    write_random_bundle(tmp_path / "bundle", version, BundleSize.TINY)
    config = open_bundle(tmp_path / "bundle").network_config
    with torch.device("meta"), _Operators() as operators:
        SpeechLm(config.lm)
        Flow(config.flow)
        (HiftV2 if version is CosyVoiceVersion.V2 else HiftV3)(config.hift)
    assert operators.names.isdisjoint({"normal_", "div", "true_divide"})


def test_a_tensor_missing_since_the_check_is_named(tmp_path: Path) -> None:
    write_random_bundle(tmp_path / "bundle", CosyVoiceVersion.V2, BundleSize.TINY)
    bundle = open_bundle(tmp_path / "bundle")
    weights = torch.load(tmp_path / "bundle" / "flow.pt", weights_only=True)
    del weights["encoder_proj.bias"]
    torch.save(weights, tmp_path / "bundle" / "flow.pt")
    with pytest.raises(InvalidBundleError, match=r"flow\.pt: .*encoder_proj\.bias"):
        load_flow(bundle)


def test_an_unused_tensor_is_named(tmp_path: Path) -> None:
    write_random_bundle(tmp_path / "bundle", CosyVoiceVersion.V3, BundleSize.TINY)
    bundle = open_bundle(tmp_path / "bundle")
    weights = torch.load(tmp_path / "bundle" / "llm.pt", weights_only=True)
    torch.save(weights | {"extra": torch.zeros(1)}, tmp_path / "bundle" / "llm.pt")
    with pytest.raises(InvalidBundleError, match=r"llm\.pt: 1 tensors are not used, extra"):
        load_lm(bundle)
