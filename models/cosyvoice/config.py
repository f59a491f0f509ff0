"""How large the networks of a CosyVoice bundle are: the released sizes by default, any other for tests.

Numbers only; the networks are elsewhere, and nothing here needs torch.

Source: FunAudioLLM/CosyVoice@ace7c47 examples/libritts/cosyvoice{2,3}/conf/cosyvoice{2,3}.yaml and the
config.json of the Qwen2-0.5B folder that a release carries.
"""

from dataclasses import dataclass
from enum import Enum


class CosyVoiceVersion(Enum):
    """Which released family a checkpoint belongs to."""

    V2 = 2
    V3 = 3


@dataclass(frozen=True, slots=True)
class SpeechLmConfig:
    """Sizes of the language model. rope_base: of the rotary positions' frequencies."""

    version: CosyVoiceVersion = CosyVoiceVersion.V2
    hidden: int = 896
    layers: int = 24
    heads: int = 14
    kv_heads: int = 2
    intermediate: int = 4864
    text_vocab_size: int = 151_936
    codebook_size: int = 6561
    rope_base: float = 1e6
    norm_epsilon: float = 1e-6

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.hidden // self.heads

    @property
    def speech_vocab_size(self) -> int:
        """Rows of the speech embedding and of the head: the codec's sounds, and what controls the flow."""
        return self.codebook_size + control_id_count(self.version)


@dataclass(frozen=True, slots=True)
class EncoderSizes:
    """The token encoder of version 2. inner: channels between the two matrices of a feed-forward block."""

    width: int = 512
    heads: int = 8
    inner: int = 2048
    layers: int = 6
    up_layers: int = 4


@dataclass(frozen=True, slots=True)
class UnetSizes:
    """The flow's estimator of version 2. blocks: transformer blocks after each residual block."""

    channels: int = 256
    head_width: int = 64
    heads: int = 8
    blocks: int = 4
    mid_blocks: int = 12


@dataclass(frozen=True, slots=True)
class DitSizes:
    """The flow's estimator of version 3. factor: of the feed-forward blocks."""

    width: int = 1024
    depth: int = 22
    heads: int = 16
    head_width: int = 64
    factor: int = 2


@dataclass(frozen=True, slots=True)
class FlowSizes:
    """From speech ids to mel. encoder and unet are version 2's, lookahead_channels and dit version 3's."""

    speaker: int = 192
    encoder: EncoderSizes = EncoderSizes()
    unet: UnetSizes = UnetSizes()
    lookahead_channels: int = 1024
    dit: DitSizes = DitSizes()


@dataclass(frozen=True, slots=True)
class HiftSizes:
    """From mel to samples. channels: before the first of the upsampling steps, halved by each."""

    channels: int = 512
    harmonics: int = 8
    upsample_rates: tuple[int, ...] = (8, 5, 3)
    upsample_kernels: tuple[int, ...] = (16, 11, 7)
    resblock_kernels: tuple[int, ...] = (3, 7, 11)
    source_kernels: tuple[int, ...] = (7, 7, 11)
    dilations: tuple[int, ...] = (1, 3, 5)
    transform: int = 16
    hop: int = 4
    f0_channels: int = 512
    look_right: int = 4


@dataclass(frozen=True, slots=True)
class CosyVoiceConfig:
    """Every size of a bundle."""

    lm: SpeechLmConfig
    flow: FlowSizes = FlowSizes()
    hift: HiftSizes = HiftSizes()

    @property
    def version(self) -> CosyVoiceVersion:
        """Which family it belongs to."""
        return self.lm.version


def released_config(version: CosyVoiceVersion) -> CosyVoiceConfig:
    """The sizes of CosyVoice2-0.5B and CosyVoice3-0.5B."""
    return CosyVoiceConfig(SpeechLmConfig(version))


def control_id_count(version: CosyVoiceVersion) -> int:
    """How many speech ids are no sounds."""
    return 3 if version is CosyVoiceVersion.V2 else 200
