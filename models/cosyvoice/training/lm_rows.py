"""Inputs and targets of the language model for one utterance: text first, or interleaved with its speech.

    unistream    inputs    start  t t t ... t  turn  s s s ... s
                 targets     -1  -1 -1 ... -1   s    s s ... s end

    interleaved  inputs    start  t  t  t  t  t  s s ... s (15)  t  t  t  t  t  ...  t  t  turn  s s ... s
                 targets     -1  -1 -1 -1 -1  s  s ... s  fill  -1 -1 -1 -1  s  ... -1 -1   s    s ... s end

The fill id asks for the next block of text and is never an input. In version 3 an instruction stands between
start and the text, in one piece. Ids only, no tensors.

Source: FunAudioLLM/CosyVoice@ace7c47 llm/llm.py:302-349 (prepare_lm_input_target), 351-405, 559-609.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ..config import SpeechLmConfig
from ..lm.generation import (
    START_INPUT,
    TURN_INPUT,
    LmInput,
    LmInputKind,
    SpecialIds,
    lm_inputs,
)

NO_TARGET = -1


@dataclass(frozen=True, slots=True)
class LmUtterance:
    """What is said, as ids."""

    text_ids: tuple[int, ...]
    speech_ids: tuple[int, ...]
    instruct_ids: tuple[int, ...] = ()  # of version 3, with <|endofprompt|> at their end


@dataclass(frozen=True, slots=True)
class LmRow:
    """Inputs, and the id that each of them predicts, or ``NO_TARGET``; equally many."""

    inputs: tuple[LmInput, ...]
    targets: tuple[int, ...]


def make_lm_row(config: SpeechLmConfig, utterance: LmUtterance, *, interleaved: bool) -> LmRow:
    """The row of an utterance, interleaved if that is wanted and its speech is long enough for its text."""
    if interleaved and can_interleave(config, utterance):
        return interleaved_row(config, utterance)
    return unistream_row(config, utterance)


def can_interleave(config: SpeechLmConfig, utterance: LmUtterance) -> bool:
    """Whether every whole block of text has its whole block of speech, and more speech follows."""
    mix = config.mix_ratio
    return len(utterance.speech_ids) * mix.text_ids > len(utterance.text_ids) * mix.speech_ids


def unistream_row(config: SpeechLmConfig, utterance: LmUtterance) -> LmRow:
    """All text, then all speech."""
    prefix = [*_prefix(utterance), *_text(utterance.text_ids)]
    speech, end = utterance.speech_ids, SpecialIds(config.version, config.codebook_size).end
    inputs = (*prefix, TURN_INPUT, *lm_inputs(LmInputKind.SPEECH, speech))
    return LmRow(inputs, (*_silent(len(prefix)), *speech, end))


def interleaved_row(config: SpeechLmConfig, utterance: LmUtterance) -> LmRow:
    """Blocks of text and speech in turns, then the rest of both. Needs ``can_interleave``."""
    ids, mix = SpecialIds(config.version, config.codebook_size), config.mix_ratio
    inputs, text, speech = _prefix(utterance), utterance.text_ids, utterance.speech_ids
    targets = _silent(len(inputs))
    while len(text) >= mix.text_ids:
        block, sounds = text[: mix.text_ids], speech[: mix.speech_ids]
        inputs += [*_text(block), *lm_inputs(LmInputKind.SPEECH, sounds)]
        targets += [*_silent(len(block) - 1), *sounds, ids.fill]
        text, speech = text[mix.text_ids :], speech[mix.speech_ids :]
    inputs += [*_text(text), TURN_INPUT, *lm_inputs(LmInputKind.SPEECH, speech)]
    targets += [*_silent(len(text)), *speech, ids.end]
    return LmRow(tuple(inputs), tuple(targets))


def _prefix(utterance: LmUtterance) -> list[LmInput]:
    return [START_INPUT, *_text(utterance.instruct_ids)]


def _text(ids: Sequence[int]) -> Sequence[LmInput]:
    return lm_inputs(LmInputKind.TEXT, ids)


def _silent(count: int) -> list[int]:
    return [NO_TARGET] * count
