"""Builds the prompt of the language model for each mode of speaking.

    zero_shot_prompt        transcript and speech of the recording come before the text
    cross_lingual_prompt    nothing of the recording comes before the text, so its language does not matter
    instruct_prompt         an instruction (dialect, emotion, pace) comes before the text

Version 3 was trained with a greeting and <|endofprompt|> before everything, and repeats itself without them,
so they are always added. Transcripts and instructions are untrusted text: control tokens in them are encoded
as plain characters.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/cli/frontend.py:167-215, cosyvoice/utils/common.py:28-53.
"""

from ..config import CosyVoiceVersion
from ..lm.generation import LmPrompt
from .text_tokenizer import TextTokenizer
from .voice_prompt import VoicePrompt

_V3_GREETING = "You are a helpful assistant."


def zero_shot_prompt(tokenizer: TextTokenizer, voice: VoicePrompt) -> LmPrompt:
    """Prompt that continues the recording of a voice; without a transcript, the cross-lingual prompt."""
    if not voice.transcript:
        return cross_lingual_prompt(tokenizer, voice.version)
    start = _prompt_start(tokenizer, voice.version)
    text = (*start, *tokenizer.encode_plain(voice.transcript))
    return LmPrompt(text, tuple(voice.speech_ids.tolist()))


def cross_lingual_prompt(tokenizer: TextTokenizer, version: CosyVoiceVersion) -> LmPrompt:
    """Prompt without text or speech of a recording."""
    return LmPrompt(_prompt_start(tokenizer, version))


def instruct_prompt(tokenizer: TextTokenizer, version: CosyVoiceVersion, instruction: str) -> LmPrompt:
    """Prompt with an instruction on how to speak."""
    instruction_text = instruction if version is CosyVoiceVersion.V2 else f"{_V3_GREETING} {instruction}"
    return LmPrompt((*tokenizer.encode_plain(instruction_text), tokenizer.end_of_prompt))


def _prompt_start(tokenizer: TextTokenizer, version: CosyVoiceVersion) -> tuple[int, ...]:
    if version is CosyVoiceVersion.V2:
        return ()
    return (*tokenizer.encode_plain(_V3_GREETING), tokenizer.end_of_prompt)
