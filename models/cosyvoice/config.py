"""Sizes of the CosyVoice networks, and the constants that all of them share.

Every default is the released size. The networks, the checks of a bundle and the random bundles read the same
dataclasses; each one validates itself and raises ValueError for sizes that no network can have. Nothing here
imports torch.

Source: FunAudioLLM/CosyVoice@ace7c47 examples/libritts/cosyvoice{2,3}/conf/cosyvoice{2,3}.yaml and the
config.json of the Qwen2-0.5B folder inside a release.
"""

import math
from dataclasses import dataclass
from enum import Enum

from ..checkpoint.settings_file import require, require_layers, require_multiple

SAMPLE_RATE = 24_000  # Hz, of all speech that the networks make
MEL_BANDS = 80
FRAMES_PER_S = 50  # mel frames
SPEECH_IDS_PER_S = 25
FRAMES_PER_SPEECH_ID = FRAMES_PER_S // SPEECH_IDS_PER_S
CODEBOOK_SIZE = 6561  # codec sounds, 3 ** 8
SPEAKER_WIDTH = 192  # numbers of a speaker embedding

# The flow attends in blocks of one second, and its encoder looks three ids past the end of a block.
BLOCK_IDS = 25
BLOCK_FRAMES = BLOCK_IDS * FRAMES_PER_SPEECH_ID
LOOKAHEAD_IDS = 3
VOCODER_LOOKAHEAD_FRAMES = 4  # of version 3
V3_PENDING_FRAMES = 3  # whose pitch depends on the next chunk
V2_WITHHELD_FRAMES = 20  # rendered again with the next chunk: the fade, and 16 that it depends on

# Keys of llm.pt. The head of the text model is tied to the embedding and not used to speak.
TEXT_EMBEDDING_KEY = "llm.model.model.embed_tokens.weight"
TIED_HEAD_KEY = "llm.model.lm_head.weight"
TIED_KEYS = (TIED_HEAD_KEY,)
QWEN_FOLDER = "CosyVoice-BlankEN"  # of a release: the text model

MAX_MIX_IDS = 1000  # of a block of text or speech in the language model's interleave


class CosyVoiceVersion(Enum):
    """The released family that a checkpoint belongs to."""

    V2 = 2
    V3 = 3


def control_id_count(version: CosyVoiceVersion) -> int:
    """Number of speech ids that stand for no sound; they follow the codebook."""
    return 3 if version is CosyVoiceVersion.V2 else 200


@dataclass(frozen=True, slots=True)
class MixRatio:
    """The interleave that a language model was trained on: ids of a block of text, and of speech after it."""

    text_ids: int = 5
    speech_ids: int = 15

    def __post_init__(self) -> None:
        for name, count in (("text_ids", self.text_ids), ("speech_ids", self.speech_ids)):
            require(1 <= count <= MAX_MIX_IDS, f"{name} of the mix ratio", count, f"from 1 to {MAX_MIX_IDS}")


RELEASED_MIX_RATIO = MixRatio()


@dataclass(frozen=True, slots=True)
class SpeechLmConfig:
    """Sizes of the language model, a Qwen2 decoder with a speech head."""

    version: CosyVoiceVersion = CosyVoiceVersion.V2
    hidden: int = 896
    layers: int = 24
    heads: int = 14
    kv_heads: int = 2  # each is shared by heads / kv_heads queries
    intermediate: int = 4864  # width between the matrices of a feed-forward block
    text_vocab_size: int = 151_936
    codebook_size: int = CODEBOOK_SIZE
    rope_base: float = 1e6  # base of the rotary frequencies
    norm_epsilon: float = 1e-6
    mix_ratio: MixRatio = RELEASED_MIX_RATIO

    def __post_init__(self) -> None:
        require_layers(layers=self.layers)
        require_multiple("hidden", self.hidden, "heads", self.heads)
        require_multiple("heads", self.heads, "kv_heads", self.kv_heads)
        require(self.rope_base >= 1, "rope_base", self.rope_base, "at least 1")
        require(self.norm_epsilon >= 0, "norm_epsilon", self.norm_epsilon, "at least 0")

    @property
    def queries_per_key(self) -> int:
        """Heads of queries that share a head of keys."""
        return self.heads // self.kv_heads

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.hidden // self.heads

    @property
    def speech_vocab_size(self) -> int:
        """Rows of the speech embedding and of the head: the codebook, then the control ids."""
        return self.codebook_size + control_id_count(self.version)


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Sizes of the flow's encoder in version 2."""

    width: int = 512
    heads: int = 8
    inner: int = 2048  # width between the matrices of a feed-forward block
    layers: int = 6  # at 25 Hz
    up_layers: int = 4  # at 50 Hz

    def __post_init__(self) -> None:
        require_layers(layers=self.layers, up_layers=self.up_layers)
        require_multiple("width", self.width, "heads", self.heads)


@dataclass(frozen=True, slots=True)
class UnetConfig:
    """Sizes of the flow's velocity estimator in version 2."""

    channels: int = 256
    head_width: int = 64
    heads: int = 8
    blocks: int = 4  # transformer blocks after each residual block
    mid_blocks: int = 12
    in_channels: int = 4 * MEL_BANDS  # noise, encoder output, speaker, prompt mel
    out_channels: int = MEL_BANDS

    def __post_init__(self) -> None:
        require_layers(blocks=self.blocks, mid_blocks=self.mid_blocks)

    @property
    def inner(self) -> int:
        """Channels of all heads."""
        return self.heads * self.head_width

    @property
    def attention_layers(self) -> int:
        """Transformer blocks in all: one level down, the middle, one level up."""
        return self.blocks * (self.mid_blocks + 2)


@dataclass(frozen=True, slots=True)
class DitConfig:
    """Sizes of the flow's velocity estimator in version 3."""

    width: int = 1024
    depth: int = 22
    heads: int = 16
    head_width: int = 64
    feed_forward_factor: int = 2
    in_channels: int = 4 * MEL_BANDS  # noise, prompt mel, encoder output, speaker

    def __post_init__(self) -> None:
        require_layers(depth=self.depth)

    @property
    def inner(self) -> int:
        """Channels of all heads."""
        return self.heads * self.head_width


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Sizes of the flow. Version 2 has an encoder and a U-Net, version 3 a lookahead layer and a DiT."""

    encoder: EncoderConfig | None
    estimator: UnetConfig | DitConfig
    codebook_size: int = CODEBOOK_SIZE
    speaker_width: int = SPEAKER_WIDTH
    lookahead_width: int = 1024  # inner channels of the lookahead layer of version 3
    solver_steps: int = 10
    guidance: float = 0.7  # weight of classifier-free guidance

    def __post_init__(self) -> None:
        if (self.encoder is not None) is not isinstance(self.estimator, UnetConfig):
            raise ValueError(
                f"encoder is {self.encoder} and estimator {type(self.estimator).__name__}; "
                "an encoder needs a UnetConfig, no encoder a DitConfig"
            )

    @property
    def version(self) -> CosyVoiceVersion:
        """The family whose flow has these parts."""
        return CosyVoiceVersion.V3 if self.encoder is None else CosyVoiceVersion.V2


@dataclass(frozen=True, slots=True)
class HiftConfig:
    """Sizes of the vocoder. A kernel and its dilations describe one residual block."""

    base_channels: int = 512  # before the first upsampling, halved by each
    harmonics: int = 8  # above the fundamental
    sample_rate: int = SAMPLE_RATE
    sine_amplitude: float = 0.1
    noise_sigma: float = 0.003  # of the source where the frame is voiced
    voiced_above_hz: float = 10.0
    upsample_rates: tuple[int, ...] = (8, 5, 3)
    upsample_kernels: tuple[int, ...] = (16, 11, 7)
    n_fft: int = 16  # of the inverse transform that makes the samples
    hop: int = 4  # samples between two such transforms
    kernels: tuple[int, ...] = (3, 7, 11)
    dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    source_kernels: tuple[int, ...] = (7, 7, 11)
    source_dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    leaky_slope: float = 0.1
    max_amplitude: float = 0.99  # samples are clipped here
    f0_channels: int = 512

    def __post_init__(self) -> None:
        stages = len(self.upsample_rates)
        for name in ("upsample_kernels", "source_kernels", "source_dilations"):
            count = len(getattr(self, name))
            require(count == stages, f"the number of {name}", count, f"{stages}, as of upsample_rates")
        blocks = len(self.kernels)
        require(
            len(self.dilations) == blocks,
            "the number of dilations",
            len(self.dilations),
            f"{blocks}, as of kernels",
        )
        frame = self.sample_rate // FRAMES_PER_S
        require(
            self.samples_per_frame == frame,
            "upsample_rates times hop",
            self.samples_per_frame,
            f"{frame} samples, a mel frame",
        )

    @property
    def samples_per_frame(self) -> int:
        """Samples of one mel frame."""
        return math.prod(self.upsample_rates) * self.hop

    @property
    def sine_count(self) -> int:
        """The fundamental and its harmonics."""
        return self.harmonics + 1

    @property
    def source_strides(self) -> tuple[int, ...]:
        """Spectral frames of the source for each frame of a stage: 15, 3, 1."""
        return tuple(math.prod(self.upsample_rates[stage + 1 :]) for stage in range(len(self.upsample_rates)))

    def channels(self, stage: int) -> int:
        """Channels after an upsampling stage."""
        return self.base_channels >> (stage + 1)


@dataclass(frozen=True, slots=True)
class CosyVoiceConfig:
    """Sizes of the three networks of a bundle."""

    lm: SpeechLmConfig
    flow: FlowConfig
    hift: HiftConfig = HiftConfig()

    def __post_init__(self) -> None:
        if self.flow.version is not self.lm.version:
            raise ValueError(
                f"the flow is of version {self.flow.version.value}; "
                f"it must be of version {self.lm.version.value}, as the language model"
            )
        require(
            self.flow.codebook_size == self.lm.codebook_size,
            "codebook_size of the flow",
            self.flow.codebook_size,
            f"{self.lm.codebook_size}, as of the language model",
        )

    @property
    def version(self) -> CosyVoiceVersion:
        """The family that the networks belong to."""
        return self.lm.version


def released_config(version: CosyVoiceVersion) -> CosyVoiceConfig:
    """The sizes of CosyVoice2-0.5B or CosyVoice3-0.5B."""
    if version is CosyVoiceVersion.V2:
        return CosyVoiceConfig(SpeechLmConfig(version), FlowConfig(EncoderConfig(), UnetConfig()))
    return CosyVoiceConfig(SpeechLmConfig(version), FlowConfig(None, DitConfig()))
