"""Control flow of one utterance in the language model: the inputs of each step and the ids it may sample.

A ``Generation`` yields requests and takes the sampled ids. It handles ids only, no tensors:

    generation.push_text(ids); generation.end_text()
    while (request := generation.ask()) is not None:      # None: waits for text, or has finished
        generation.answer(sample(run(request.inputs), request.forbidden, generation.decoded))
    generation.speech_ids                                 # so far

    OneShotGeneration     all text, then all speech
    BistreamGeneration    5 text ids, 15 speech ids, 5 text ids, ... while the text is still being written

The interleave of the releases; a bundle may state another mix ratio. F (fill) asks for the next block of text
and is not fed; T (turn) starts the speech-only part once fewer than 5 text ids are left:

    start  t t t t t  s s s ... s s (15) F  t t t t t  s s s ... s s (15) F  t t  T  s s s s ... end

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:150-160, 474-505, 551-661, without its faults: a
speech id fed twice after a last F; one block of text used for each piece pushed; the prompt's speech dropped
if the text is short; 15 ids without text after a prompt of whole blocks; no bound on the length; ids outside
the codec ending the utterance, or the process; the minimum length ignored in version 3.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from ..config import (
    CODEBOOK_SIZE,
    RELEASED_MIX_RATIO,
    CosyVoiceVersion,
    MixRatio,
    SpeechLmConfig,
    control_id_count,
)

END_OF_PROMPT_ID = 151_646  # <|endofprompt|> of the released vocabularies


class LmInputKind(Enum):
    """The embedding that an input id belongs to."""

    TEXT = "text"
    SPEECH = "speech"
    START = "start"
    TURN = "turn"


@dataclass(frozen=True, slots=True)
class LmInput:
    """One input of the language model."""

    kind: LmInputKind
    id: int = 0  # START and TURN have no id


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """Feed ``inputs``, then sample an id that is not in ``forbidden``."""

    inputs: tuple[LmInput, ...]
    forbidden: tuple[int, ...] = ()


# What a generation yields: a request, or None if it waits for text. It is sent the sampled id.
RequestGenerator = Generator[SamplingRequest | None, int, None]


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """Speech ids that stand for no sound, and the text id that ends a prompt."""

    version: CosyVoiceVersion
    codebook_size: int = CODEBOOK_SIZE
    end_of_prompt: int = END_OF_PROMPT_ID

    @property
    def end(self) -> int:
        """Ends the speech."""
        return self.codebook_size if self.version is CosyVoiceVersion.V2 else self.codebook_size + 1

    @property
    def fill(self) -> int:
        """Asks for the next block of text."""
        return self.codebook_size + (2 if self.version is CosyVoiceVersion.V2 else 3)

    @property
    def control(self) -> range:
        """All ids of the head that stand for no sound."""
        return range(self.codebook_size, self.codebook_size + control_id_count(self.version))

    def control_except(self, *allowed: int) -> tuple[int, ...]:
        """Every control id except ``allowed``."""
        return tuple(id for id in self.control if id not in allowed)


@dataclass(frozen=True, slots=True)
class SpeechLengthRule:
    """Bounds of the number of speech ids for each text id, the prompt not counted."""

    min_ratio: float = 2.0
    max_ratio: float = 20.0

    def bounds(self, text_ids: int) -> tuple[int, int]:
        """Minimum and maximum number of speech ids for this many text ids."""
        return int(self.min_ratio * text_ids), int(self.max_ratio * text_ids)


@dataclass(frozen=True, slots=True)
class LmPrompt:
    """Transcript and speech that come before the utterance; either may be empty."""

    text_ids: tuple[int, ...] = ()
    speech_ids: tuple[int, ...] = ()


START_INPUT = LmInput(LmInputKind.START)
TURN_INPUT = LmInput(LmInputKind.TURN)


class Generation(ABC):
    """One utterance in the language model.

    Attributes:
        speech_ids: sounds sampled so far.
        decoded: all ids sampled so far, fill ids included; the rule on repetition looks at these.
        finished: whether no request will follow.
    """

    def __init__(
        self, ids: SpecialIds, prompt: LmPrompt = LmPrompt(), rule: SpeechLengthRule = SpeechLengthRule()
    ) -> None:
        self.ids, self.prompt, self.rule = ids, prompt, rule
        self.speech_ids: list[int] = []
        self.decoded: list[int] = []
        self.finished = False
        self._pushed_text: list[int] = []
        self._text_ended = False
        self._pending_request: SamplingRequest | None = None
        self._request_iterator = self._requests()

    def push_text(self, text_ids: Sequence[int]) -> None:
        """Add text. Raises ValueError after ``end_text``."""
        if self._text_ended:
            raise ValueError("text was pushed after its end")
        self._pushed_text += text_ids

    def end_text(self) -> None:
        """Declare that no more text follows."""
        self._text_ended = True

    def ask(self) -> SamplingRequest | None:
        """Return the next request, the same one until it is answered.

        None while the generation waits for text, and after it has finished. Raises ValueError if version 3
        finds no <|endofprompt|> in prompt and text.
        """
        if self._pending_request is None and not self.finished:
            self._resume(None)
        return self._pending_request

    def answer(self, sampled: int) -> None:
        """Take the id sampled for the pending request. Raises ValueError if there is none."""
        if self._pending_request is None:
            raise ValueError("an id was given, but no request is pending")
        self._resume(sampled)

    def _resume(self, sampled: int | None) -> None:
        try:
            self._pending_request = (
                next(self._request_iterator) if sampled is None else self._request_iterator.send(sampled)
            )
        except StopIteration:
            self._pending_request = None
            self.finished = True

    @abstractmethod
    def _requests(self) -> RequestGenerator:
        """Yield every request in order, and None while text is missing."""

    def _accept(self, sampled: int) -> tuple[LmInput, ...]:
        """Record a sound; returns it as the next input."""
        self.speech_ids.append(sampled)
        self.decoded.append(sampled)
        return (LmInput(LmInputKind.SPEECH, sampled),)


class OneShotGeneration(Generation):
    """All text at once, then all speech; the first request comes after ``end_text``."""

    def _requests(self) -> RequestGenerator:
        while not self._text_ended:
            yield None
        text = self._pushed_text
        if not text:
            return
        require_end_of_prompt(self.ids, (*self.prompt.text_ids, *text))
        min_ids, max_ids = self.rule.bounds(len(text))
        all_controls, controls_but_end = self.ids.control_except(), self.ids.control_except(self.ids.end)
        inputs = one_shot_prefix(self.prompt, text)
        while len(self.speech_ids) < max_ids:
            forbidden = all_controls if len(self.speech_ids) < min_ids else controls_but_end
            sampled = yield SamplingRequest(inputs, forbidden)
            if sampled == self.ids.end:
                return
            inputs = self._accept(sampled)


class BistreamGeneration(Generation):
    """Text and speech in turns: speech starts once a block of text is there."""

    def __init__(
        self,
        ids: SpecialIds,
        prompt: LmPrompt = LmPrompt(),
        rule: SpeechLengthRule = SpeechLengthRule(),
        mix_ratio: MixRatio = RELEASED_MIX_RATIO,
    ) -> None:
        super().__init__(ids, prompt, rule)
        self._mix_ratio = mix_ratio
        opening, text = split_prompt(ids, prompt.text_ids)
        self._inputs: tuple[LmInput, ...] = (START_INPUT, *lm_inputs(LmInputKind.TEXT, opening))
        self._text = deque(text)
        self._prompt_speech = deque(prompt.speech_ids)
        self._text_id_count = 0  # pushed, the prompt not counted
        self._text_ids_with_speech = 0  # of blocks in which at least one sound was sampled

    def _requests(self) -> RequestGenerator:
        while not self._text_id_count and not self._text_ended:
            yield None
            self._take_text()
        self._take_text()
        if not self._text_id_count:
            return
        while (yield from self._wait_for_block()):
            yield from self._speak_block()
        yield from self._speak_rest()

    def _wait_for_block(self) -> Generator[None, int, bool]:
        self._take_text()
        while len(self._text) < self._mix_ratio.text_ids and not self._text_ended:
            yield None
            self._take_text()
        return len(self._text) >= self._mix_ratio.text_ids

    def _take_text(self) -> None:
        self._text_id_count += len(self._pushed_text)
        self._text += self._pushed_text
        self._pushed_text.clear()

    def _speak_block(self) -> RequestGenerator:
        """A block of text and one of sounds, taken from the prompt as long as it has any.

        The last sound of a block is fed together with what follows it, and not a second time.
        """
        text_ids, speech_ids = self._mix_ratio.text_ids, self._mix_ratio.speech_ids
        prompt_speech = pop_front(self._prompt_speech, speech_ids)
        self._inputs += (
            *lm_inputs(LmInputKind.TEXT, pop_front(self._text, text_ids)),
            *lm_inputs(LmInputKind.SPEECH, prompt_speech),
        )
        if len(prompt_speech) < speech_ids:
            self._text_ids_with_speech += text_ids
        for _ in range(speech_ids - len(prompt_speech)):
            sampled = yield self._next_request(self.ids.control_except(self.ids.fill))
            if sampled == self.ids.fill:
                break
            self._inputs = self._accept(sampled)

    def _speak_rest(self) -> RequestGenerator:
        """The text left over, the turn, the rest of the prompt's speech, and then sounds only."""
        min_ids, _ = self.rule.bounds(self._text_id_count)
        # A prompt without speech is spoken too, so its text counts for the maximum.
        spoken_text_ids = self._text_ids_with_speech + len(self._text)
        _, max_ids = self.rule.bounds(max(self._text_id_count, spoken_text_ids))
        self._inputs += (
            *lm_inputs(LmInputKind.TEXT, self._text),
            TURN_INPUT,
            *lm_inputs(LmInputKind.SPEECH, self._prompt_speech),
        )
        all_controls, controls_but_end = self.ids.control_except(), self.ids.control_except(self.ids.end)
        while len(self.speech_ids) < max_ids:
            sampled = yield self._next_request(
                all_controls if len(self.speech_ids) < min_ids else controls_but_end
            )
            if sampled == self.ids.end:
                return
            self._inputs = self._accept(sampled)

    def _next_request(self, forbidden: tuple[int, ...]) -> SamplingRequest:
        inputs, self._inputs = self._inputs, ()
        return SamplingRequest(inputs, forbidden)


def one_shot_prefix(prompt: LmPrompt, text: Iterable[int]) -> tuple[LmInput, ...]:
    """All inputs before the first sampled id: start, text, turn, the prompt's speech."""
    text_inputs = lm_inputs(LmInputKind.TEXT, (*prompt.text_ids, *text))
    return (START_INPUT, *text_inputs, TURN_INPUT, *lm_inputs(LmInputKind.SPEECH, prompt.speech_ids))


def lm_inputs(kind: LmInputKind, ids: Iterable[int]) -> tuple[LmInput, ...]:
    """The ids as inputs of one kind."""
    return tuple(LmInput(kind, id) for id in ids)


def pop_front(queue: deque[int], max_ids: int) -> list[int]:
    """Remove and return up to ``max_ids`` ids from the left."""
    return [queue.popleft() for _ in range(min(max_ids, len(queue)))]


def split_prompt(ids: SpecialIds, text_ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """Split a prompt's text into the part that precedes the interleave and the part that takes part in it.

    Version 3 is fed everything up to <|endofprompt|> first. Raises ValueError if it is missing there.
    """
    if ids.version is CosyVoiceVersion.V2:
        return (), text_ids
    require_end_of_prompt(ids, text_ids)
    cut = list(text_ids).index(ids.end_of_prompt) + 1
    return text_ids[:cut], text_ids[cut:]


def require_end_of_prompt(ids: SpecialIds, text_ids: Sequence[int]) -> None:
    """Raise ValueError if version 3 finds no <|endofprompt|> in the ids."""
    if ids.version is CosyVoiceVersion.V3 and ids.end_of_prompt not in text_ids:
        raise ValueError(
            f"version 3 needs <|endofprompt|> ({ids.end_of_prompt}) in its prompt or text; it is in neither"
        )


def lm_input_index(config: SpeechLmConfig, lm_input: LmInput) -> int:
    """Index of an input among text ids, then speech ids, then the controls of v2.

    Raises IndexError for an id outside the vocabulary.
    """
    text, speech = config.text_vocab_size, config.speech_vocab_size
    match lm_input.kind:
        case LmInputKind.TEXT:
            return range(text)[lm_input.id]
        case LmInputKind.SPEECH:
            return text + range(speech)[lm_input.id]
        case LmInputKind.START | LmInputKind.TURN if config.version is CosyVoiceVersion.V2:
            return text + speech + (lm_input.kind is LmInputKind.TURN)
        case LmInputKind.START | LmInputKind.TURN:
            # In v3 both are speech ids, with the end of speech between them.
            return text + config.codebook_size + 2 * (lm_input.kind is LmInputKind.TURN)
        case _:
            assert_never(lm_input.kind)
