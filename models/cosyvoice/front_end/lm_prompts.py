"""What stands before the text in each way of speaking: a voice's own words, an instruction, or nothing.

    zero_shot_prompt        in the voice of a recording, its transcript and speech before the text
    cross_lingual_prompt    in the voice of a recording or a known speaker, whatever they spoke (cross-lingual)
    instructed       told how: a dialect, a feeling, a pace

Version 3 was trained with a greeting and a mark before everything and repeats itself without; it is always
there. Transcripts and instructions are strangers' text: control marks in them are read as letters.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:167-215, cosyvoice/utils/common.py:28-53.
"""

from ..config import CosyVoiceVersion
from ..lm.generation import LmPrompt
from .text_tokenizer import TextTokenizer
from .voice_encoder import VoicePrompt

_V3_GREETING = "You are a helpful assistant."


def zero_shot_prompt(tokenizer: TextTokenizer, voice: VoicePrompt) -> LmPrompt:
    """Continue what the voice says.

    Without a transcript there is nothing to continue: as ``cross_lingual_prompt``.
    """
    if not voice.transcript:
        return cross_lingual_prompt(tokenizer, voice.version)
    start = _prompt_start(tokenizer, voice.version)
    text = (*start, *tokenizer.encode_plain(voice.transcript))
    return LmPrompt(text, tuple(voice.speech_ids.tolist()))


def cross_lingual_prompt(tokenizer: TextTokenizer, version: CosyVoiceVersion) -> LmPrompt:
    """Nothing before the text but what version 3 must have."""
    return LmPrompt(_prompt_start(tokenizer, version))


def instruct_prompt(tokenizer: TextTokenizer, version: CosyVoiceVersion, instruction: str) -> LmPrompt:
    """Say it as the instruction wants it."""
    instruction_text = instruction if version is CosyVoiceVersion.V2 else f"{_V3_GREETING} {instruction}"
    return LmPrompt((*tokenizer.encode_plain(instruction_text), tokenizer.end_of_prompt))


def _prompt_start(tokenizer: TextTokenizer, version: CosyVoiceVersion) -> tuple[int, ...]:
    if version is CosyVoiceVersion.V2:
        return ()
    return (*tokenizer.encode_plain(_V3_GREETING), tokenizer.end_of_prompt)
