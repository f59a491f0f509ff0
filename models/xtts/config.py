"""Sizes of the XTTS v2 networks, and the constants that they share.

Every default is the released size; each dataclass validates itself and raises ValueError for sizes that no
network can have. Nothing here imports torch.

Source: idiap/coqui-ai-TTS 0.28.0 TTS/tts/configs/xtts_config.py, TTS/tts/models/xtts.py (XttsArgs) and the
config.json of the release coqui/XTTS-v2.
"""

from dataclasses import dataclass
from math import prod

from ..checkpoint.settings_file import require, require_layers, require_multiple

XTTS_INPUT_RATE = 22_050  # Hz, of recordings and of the codec
XTTS_SAMPLE_RATE = 24_000  # Hz, of the speech made
SPEAKER_RATE = 16_000  # Hz, input of the speaker encoder
CODEC_STRIDE = 1024  # samples of the input rate for each speech id
XTTS_IDS_PER_S = XTTS_INPUT_RATE / CODEC_STRIDE  # speech ids, 21.5
VOCODER_HOP = 256  # samples of the output rate for each vocoder frame: 93.75 frames/s
FRAMES_PER_LATENT = CODEC_STRIDE // VOCODER_HOP  # vocoder frames of an id before the change of rate

CONDITIONING_MEL_BANDS = 80
CONDITIONING_LATENTS = 32  # columns of a voice in front of the text
SPEAKER_MEL_BANDS = 64
SPEAKER_EMBEDDING_WIDTH = 512

RESERVED_SPEECH_POSITIONS = 3  # positions beyond gpt_max_audio_tokens, and ids that are never decoded
RESERVED_TEXT_POSITIONS = 2  # [START] and [STOP]


@dataclass(frozen=True, slots=True)
class XttsGptConfig:
    """Sizes of the language model, a GPT-2 with learned positions."""

    layers: int = 30
    hidden: int = 1024
    heads: int = 16
    max_speech_tokens: int = 605  # gpt_max_audio_tokens
    max_text_tokens: int = 402  # gpt_max_text_tokens
    text_vocab_size: int = 6681
    speech_vocab_size: int = 1026
    start_speech_id: int = 1024
    stop_speech_id: int = 1025

    def __post_init__(self) -> None:
        require_layers(layers=self.layers)
        require_multiple("hidden", self.hidden, "heads", self.heads)
        for name in ("max_text_tokens", "text_vocab_size", "speech_vocab_size"):
            require(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        minimum = RESERVED_SPEECH_POSITIONS + 1
        require(
            self.max_speech_tokens >= minimum,
            "max_speech_tokens",
            self.max_speech_tokens,
            f"at least {minimum}",
        )
        for name in ("start_speech_id", "stop_speech_id"):
            allowed = f"an id of the {self.speech_vocab_size:,} speech ids"
            require(0 <= getattr(self, name) < self.speech_vocab_size, name, getattr(self, name), allowed)

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.hidden // self.heads

    @property
    def max_new_ids(self) -> int:
        """Speech ids that a sentence can have, the stop id included: 602, which are 28 s."""
        return self.max_speech_tokens - RESERVED_SPEECH_POSITIONS

    @property
    def max_text_ids(self) -> int:
        """Text ids that a sentence can have, without [START] and [STOP]."""
        return self.max_text_tokens - 1

    @property
    def speech_positions(self) -> int:
        """Rows of the table of speech positions."""
        return self.max_speech_tokens + RESERVED_SPEECH_POSITIONS

    @property
    def text_positions(self) -> int:
        """Rows of the table of text positions."""
        return self.max_text_tokens + RESERVED_TEXT_POSITIONS

    @property
    def max_positions(self) -> int:
        """Columns of the longest sequence: the voice, the text, the start id and the speech ids."""
        return CONDITIONING_LATENTS + self.max_text_ids + RESERVED_TEXT_POSITIONS + 1 + self.max_new_ids


@dataclass(frozen=True, slots=True)
class ConditioningConfig:
    """Sizes of the network that turns a recording into the latents in front of the text."""

    width: int = 1024  # that of the language model
    heads: int = 16  # of the encoder's attention
    blocks: int = 6
    perceiver_layers: int = 2
    perceiver_heads: int = 8
    perceiver_head_width: int = 64
    latents: int = CONDITIONING_LATENTS

    def __post_init__(self) -> None:
        require_layers(blocks=self.blocks, perceiver_layers=self.perceiver_layers)
        require_multiple("width", self.width, "heads", self.heads)

    @property
    def perceiver_inner(self) -> int:
        """Width between the matrices of a feed-forward block."""
        return self.width * 4 * 2 // 3

    @property
    def norm_groups(self) -> int:
        """Groups of the normalization: 32, less where the width is no multiple of it."""
        groups = 8 if self.width <= 16 else 16 if self.width <= 64 else 32
        while self.width % groups:
            groups //= 2
        return groups


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """Sizes of the speaker encoder, a residual network with squeeze and excitation."""

    mel_bands: int = SPEAKER_MEL_BANDS
    embedding_width: int = SPEAKER_EMBEDDING_WIDTH
    blocks: tuple[int, ...] = (3, 4, 6, 3)  # of each stage
    channels: tuple[int, ...] = (32, 64, 128, 256)
    attention_channels: int = 128
    squeeze: int = 8  # channels for each channel of the excitation's bottleneck

    @property
    def pooled_bands(self) -> int:
        """Bands left by the strides of all stages but the first."""
        return self.mel_bands >> (len(self.blocks) - 1)


@dataclass(frozen=True, slots=True)
class XttsVocoderConfig:
    """Sizes of the HiFi-GAN. A kernel and its dilations describe one residual block."""

    input_width: int = 1024  # of a latent: that of the language model
    base_channels: int = 512  # before the first upsampling, halved by each
    speaker_width: int = SPEAKER_EMBEDDING_WIDTH
    upsample_rates: tuple[int, ...] = (8, 8, 2, 2)
    upsample_kernels: tuple[int, ...] = (16, 16, 4, 4)
    kernels: tuple[int, ...] = (3, 7, 11)
    dilations: tuple[tuple[int, ...], ...] = ((1, 3, 5), (1, 3, 5), (1, 3, 5))
    leaky_slope: float = 0.1

    def __post_init__(self) -> None:
        require(
            prod(self.upsample_rates) == VOCODER_HOP,
            "the product of upsample_rates",
            prod(self.upsample_rates),
            f"{VOCODER_HOP}, the samples of a frame",
        )
        for rate, kernel in zip(self.upsample_rates, self.upsample_kernels, strict=True):
            # Then an output depends on two inputs, which the streaming of the layer relies on.
            require(kernel == 2 * rate, "an upsample kernel", kernel, f"{2 * rate}, twice its rate")
        require_multiple(
            "base_channels", self.base_channels, "the channels' divisor", 1 << len(self.upsample_rates)
        )

    def channels(self, stage: int) -> int:
        """Channels after an upsampling stage."""
        return self.base_channels >> (stage + 1)


@dataclass(frozen=True, slots=True)
class XttsConfig:
    """Sizes of all networks of a checkpoint."""

    gpt: XttsGptConfig = XttsGptConfig()
    conditioning: ConditioningConfig = ConditioningConfig()
    speaker_encoder: SpeakerEncoderConfig = SpeakerEncoderConfig()
    vocoder: XttsVocoderConfig = XttsVocoderConfig()

    def __post_init__(self) -> None:
        for name, width in (
            ("width of the conditioning", self.conditioning.width),
            ("input_width of the vocoder", self.vocoder.input_width),
        ):
            require(width == self.gpt.hidden, name, width, f"{self.gpt.hidden:,}, as of the language model")
