"""ElevenLabs' names and fields in terms of the engine, and its output formats, ``mp3_44100_128``."""

import re
from typing import Final

from .....adapters.audio.encoders import AudioFormat, Codec
from .....tts_engine.stream_request import Delivery
from ...kits.service_names import ServiceNames
from ...shell.speech import SynthesisOptions
from .errors import ElevenLabsFormatUnknown
from .models import ElevenLabsSpeechRequest, ElevenLabsTextMessage

ELEVENLABS_NAMES: Final = ServiceNames(voices=re.compile(r"[0-9A-Za-z]{20}", re.ASCII))


def make_elevenlabs_options(
    voice: str,
    audio: AudioFormat,
    speech: ElevenLabsSpeechRequest | ElevenLabsTextMessage,
    language: str | None,
    seed: int | None,
) -> SynthesisOptions:
    """Return the options of an utterance; raises BadRequest."""
    return SynthesisOptions(
        voice=voice,
        audio=audio,
        speed=speech.speed,
        seed=seed or 0,
        delivery=Delivery(language=language),
        lexicon_names=tuple(
            each.pronunciation_dictionary_id for each in speech.pronunciation_dictionary_locators or ()
        ),
    )


DEFAULT_FORMAT: Final = "mp3_44100_128"
_PCM_RATES: Final = (8_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)  # Hz
_BIT_RATES: Final[dict[tuple[Codec, int], tuple[int, ...]]] = {  # kbit/s
    ("mp3", 22_050): (32,),
    ("mp3", 24_000): (48,),
    ("mp3", 44_100): (32, 64, 96, 128, 192),
    ("opus", 48_000): (32, 64, 96, 128, 192),
}


def _all_formats() -> dict[str, AudioFormat]:
    formats = {
        f"{codec}_{rate}_{kbps}": AudioFormat(codec, rate, 1_000 * kbps)
        for (codec, rate), bit_rates in _BIT_RATES.items()
        for kbps in bit_rates
    }
    codecs: tuple[Codec, ...] = ("pcm", "wav")
    formats |= {f"{codec}_{rate}": AudioFormat(codec, rate) for codec in codecs for rate in _PCM_RATES}
    return {**formats, "ulaw_8000": AudioFormat("ulaw", 8_000), "alaw_8000": AudioFormat("alaw", 8_000)}


OUTPUT_FORMATS: Final = _all_formats()


def parse_output_format(name: str | None) -> AudioFormat:
    """Return the format, the default for None; raises ElevenLabsFormatUnknown."""
    audio = OUTPUT_FORMATS.get((name or DEFAULT_FORMAT).lower())
    if audio is None:
        raise ElevenLabsFormatUnknown(
            f"output_format: got {name!r:.40}; allowed are {', '.join(sorted(OUTPUT_FORMATS))}"
        )
    return audio
