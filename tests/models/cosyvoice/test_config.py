"""Size configs refuse sizes that no network can have, and say what is allowed."""

from collections.abc import Callable

import pytest

from vivavoce.models.cosyvoice.config import (
    CosyVoiceConfig,
    CosyVoiceVersion,
    DitConfig,
    EncoderConfig,
    FlowConfig,
    HiftConfig,
    SpeechLmConfig,
    UnetConfig,
    released_config,
)


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_the_released_sizes_are_valid(version: CosyVoiceVersion) -> None:
    config = released_config(version)
    assert config.version is config.flow.version is version
    assert config.hift.samples_per_frame == 480
    assert config.hift.source_strides == (15, 3, 1)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SpeechLmConfig(hidden=897), "hidden is 897; it must be a multiple of heads, which is 14"),
        (lambda: SpeechLmConfig(kv_heads=4), "heads is 14; it must be a multiple of kv_heads, which is 4"),
        (lambda: SpeechLmConfig(heads=0), "heads is 0; it must be above 0"),
        (lambda: SpeechLmConfig(layers=1001), "layers is 1,001; it must be from 1 to 1,000"),
        (lambda: SpeechLmConfig(rope_base=0.5), "rope_base is 0.5; it must be at least 1"),
        (lambda: EncoderConfig(width=100), "width is 100; it must be a multiple of heads, which is 8"),
        (lambda: UnetConfig(mid_blocks=0), "mid_blocks is 0; it must be from 1 to 1,000"),
        (lambda: DitConfig(depth=-1), "depth is -1; it must be from 1 to 1,000"),
        (lambda: FlowConfig(None, UnetConfig()), "no encoder a DitConfig"),
        (lambda: FlowConfig(EncoderConfig(), DitConfig()), "an encoder needs a UnetConfig"),
        (
            lambda: HiftConfig(upsample_kernels=(16, 11)),
            "number of upsample_kernels is 2; it must be 3, as of upsample_rates",
        ),
        (lambda: HiftConfig(dilations=((1, 3, 5),)), "number of dilations is 1; it must be 3, as of kernels"),
        (lambda: HiftConfig(hop=5), "upsample_rates times hop is 600; it must be 480 samples, a mel frame"),
        (
            lambda: CosyVoiceConfig(SpeechLmConfig(), FlowConfig(None, DitConfig())),
            "the flow is of version 3; it must be of version 2",
        ),
        (
            lambda: CosyVoiceConfig(
                SpeechLmConfig(codebook_size=100), released_config(CosyVoiceVersion.V2).flow
            ),
            "codebook_size of the flow is 6,561; it must be 100",
        ),
    ],
)
def test_impossible_sizes_are_refused(build: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        build()
    assert message in str(caught.value)
