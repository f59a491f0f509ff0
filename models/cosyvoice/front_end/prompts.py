"""What stands before the text in each way of speaking: a voice's own words, an instruction, or nothing.

    zero_shot        in the voice of a recording, its transcript and speech before the text
    without_words    in the voice of a recording or a known speaker, whatever they spoke (cross-lingual)
    instructed       told how: a dialect, a feeling, a pace

Version 3 was trained with a greeting and a mark before everything and repeats itself without; it is always
there. Transcripts and instructions are strangers' text: control marks in them are read as letters.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:167-215, cosyvoice/utils/common.py:28-53.
"""

from ..bistream import Prompt
from ..geometry import Version
from .text_tokenizer import TextTokenizer
from .voice_encoder import VoicePrompt

_GREETING = "You are a helpful assistant."


def zero_shot(tokenizer: TextTokenizer, voice: VoicePrompt) -> Prompt:
    """Continue what the voice says.

    Without a transcript there is nothing to continue: as ``without_words``.
    """
    if not voice.transcript:
        return without_words(tokenizer, voice.version)
    opening = _opening(tokenizer, voice.version)
    text = (*opening, *tokenizer.encode_plain(voice.transcript))
    return Prompt(text, tuple(voice.speech_ids.tolist()))


def without_words(tokenizer: TextTokenizer, version: Version) -> Prompt:
    """Nothing before the text but what version 3 must have."""
    return Prompt(_opening(tokenizer, version))


def instructed(tokenizer: TextTokenizer, version: Version, instruction: str) -> Prompt:
    """Say it as the instruction wants it."""
    told = instruction if version is Version.V2 else f"{_GREETING} {instruction}"
    return Prompt((*tokenizer.encode_plain(told), tokenizer.end_of_prompt))


def _opening(tokenizer: TextTokenizer, version: Version) -> tuple[int, ...]:
    if version is Version.V2:
        return ()
    return (*tokenizer.encode_plain(_GREETING), tokenizer.end_of_prompt)
