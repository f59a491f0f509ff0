"""Generations of the language model with upstream's faults, id by id, to compare with upstream's traces.

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:474-505 (inference), 551-661 (inference_bistream).
The faults are listed in ``vivavoce.models.cosyvoice.lm.generation``, which has none of them.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from vivavoce.models.cosyvoice.config import RELEASED_MIX_RATIO, MixRatio
from vivavoce.models.cosyvoice.lm.generation import (
    START_INPUT,
    TURN_INPUT,
    Generation,
    LmInput,
    LmInputKind,
    LmPrompt,
    RequestGenerator,
    SamplingRequest,
    SpecialIds,
    lm_inputs,
    one_shot_prefix,
    pop_front,
    require_end_of_prompt,
    split_prompt,
)


class UnexpectedIdError(ValueError):
    """The model sampled an id that upstream cannot continue from."""


@dataclass(frozen=True, slots=True)
class ForcedRequest(SamplingRequest):
    """Feed ``inputs``, then answer the fill id without sampling."""


class UpstreamOneShotGeneration(Generation):
    """Any control id may end the speech, in version 3 even before its minimum length."""

    def _requests(self) -> RequestGenerator:
        while not self._text_ended:
            yield None
        text = self._pushed_text
        min_ids, max_ids = self.rule.bounds(len(text))
        require_end_of_prompt(self.ids, (*self.prompt.text_ids, *text))
        inputs = one_shot_prefix(self.prompt, text)
        for index in range(max_ids):
            sampled = yield SamplingRequest(inputs, _forbidden(self.ids) if index < min_ids else ())
            if sampled in self.ids.control:
                return
            inputs = self._accept(sampled)


class UpstreamBistreamGeneration(Generation):
    """One block of text is used for each piece pushed, and the last sound before a fill is fed twice."""

    def __init__(self, ids: SpecialIds, prompt: LmPrompt, mix_ratio: MixRatio = RELEASED_MIX_RATIO) -> None:
        super().__init__(ids, prompt)
        self._mix_ratio = mix_ratio
        opening, text = split_prompt(ids, prompt.text_ids)
        self._pieces: deque[tuple[int, ...]] = deque()
        self._inputs: tuple[LmInput, ...] = (START_INPUT, *lm_inputs(LmInputKind.TEXT, opening))
        self._text = deque(text)
        self._prompt_speech = deque(prompt.speech_ids)
        prompt_ids = len(prompt.speech_ids)
        self._next_fill = (prompt_ids // mix_ratio.speech_ids + 1) * mix_ratio.speech_ids - prompt_ids

    def push_text(self, text_ids: Sequence[int]) -> None:
        super().push_text(text_ids)
        self._pieces.append(tuple(text_ids))

    def _requests(self) -> RequestGenerator:
        while self._pieces or not self._text_ended:
            if not self._pieces:
                yield None
                continue
            self._text += self._pieces.popleft()
            self._feed_prompt()
            if not self._prompt_speech and self._feed_block():
                yield from self._speak_block()
        yield from self._speak_rest()

    def _feed_prompt(self) -> None:
        while self._prompt_speech and len(self._text) >= self._mix_ratio.text_ids:
            self._inputs += lm_inputs(LmInputKind.TEXT, pop_front(self._text, self._mix_ratio.text_ids))
            self._inputs += lm_inputs(
                LmInputKind.SPEECH, pop_front(self._prompt_speech, self._mix_ratio.speech_ids)
            )

    def _feed_block(self) -> bool:
        """Add a block of text if one is due; returns False if it is due but not available."""
        filled = self.decoded[-1:] == [self.ids.fill]
        if not filled and (self.decoded or self._inputs != (START_INPUT,)):
            return True
        if len(self._text) < self._mix_ratio.text_ids:
            return False
        block = lm_inputs(LmInputKind.TEXT, pop_front(self._text, self._mix_ratio.text_ids))
        self._inputs = block if filled else self._inputs + block
        return True

    def _speak_block(self) -> RequestGenerator:
        while True:
            if len(self.decoded) == self._next_fill:
                yield ForcedRequest(self._inputs)
                self._next_fill += self._mix_ratio.speech_ids + 1
                break
            sampled = yield SamplingRequest(self._inputs, _forbidden(self.ids))
            if sampled == self.ids.fill:
                self._next_fill = len(self.decoded) + self._mix_ratio.speech_ids + 1
                break
            self._inputs = self._accept_sound(sampled)
        # self._inputs keeps the last sound before the fill, although it has been fed.
        self.decoded.append(self.ids.fill)

    def _speak_rest(self) -> RequestGenerator:
        self._inputs += (*lm_inputs(LmInputKind.TEXT, self._text), TURN_INPUT)
        while True:
            sampled = yield SamplingRequest(self._inputs)
            if sampled == self.ids.end:
                return
            self._inputs = self._accept_sound(sampled)

    def _accept_sound(self, sampled: int) -> tuple[LmInput, ...]:
        if sampled in self.ids.control:
            raise UnexpectedIdError(
                f"got id {sampled}, where only sounds below {self.ids.codebook_size} can be spoken"
            )
        return self._accept(sampled)


def _forbidden(ids: SpecialIds) -> tuple[int, ...]:
    """Upstream forbids one id: the end of speech in version 2, its start in version 3."""
    return (ids.codebook_size,)
