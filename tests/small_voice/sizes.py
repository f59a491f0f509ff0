"""The sizes of the small bundle: CosyVoice 2's networks, narrow and shallow."""

from small_voice.sounds import CODEBOOK_SIZE
from small_voice.vocoder import CONFIG as VOCODER
from vivavoce.models.cosyvoice.config import (
    CosyVoiceConfig,
    CosyVoiceVersion,
    EncoderConfig,
    FlowConfig,
    SpeechLmConfig,
    UnetConfig,
)
from vivavoce.models.cosyvoice.front_end.text_tokenizer import special_tokens

TEXT_TOKENS = 1_400  # without the special ones

LANGUAGE_MODEL = SpeechLmConfig(
    CosyVoiceVersion.V2,
    hidden=192,
    layers=4,
    heads=6,
    kv_heads=2,
    intermediate=512,
    text_vocab_size=TEXT_TOKENS + len(special_tokens(CosyVoiceVersion.V2)),
    codebook_size=CODEBOOK_SIZE,
)
FLOW = FlowConfig(
    EncoderConfig(width=128, heads=4, inner=384, layers=2, up_layers=2),
    UnetConfig(channels=96, head_width=32, heads=3, blocks=1, mid_blocks=3),
    codebook_size=CODEBOOK_SIZE,
)
BUNDLE = CosyVoiceConfig(LANGUAGE_MODEL, FLOW, VOCODER)
