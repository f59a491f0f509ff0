"""What an utterance feeds the language model, step by step, and which ids it may answer: control flow alone.

A ``Generation`` asks and is answered. It never sees a tensor, so that it is tested with a scripted model:

    generation.push_text(ids); generation.end_text()
    while (ask := generation.ask()) is not None:      # None: wants more text, or finished
        generation.answer(sampled(feed(ask.inputs), ask.forbidden, generation.decoded))
    generation.spoken                                 # speech ids so far

Four of them, two ways to feed and two ways to be faithful:

    OneShotGeneration                 all text, then all speech
    Bistream                5 text ids, 15 speech ids, 5 text ids, ... while the text is still being written
    CompatOneShotGeneration, CompatBistreamGeneration     the same with upstream's faults, id by id, for comparison

The interleave as the model was trained on it; F asks for the next block and is never fed, T is the turn to
speech once fewer than 5 text ids are left:

    start  t t t t t  s s s ... s s (15) F  t t t t t  s s s ... s s (15) F  t t  T  s s s s ... end

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:150-160, 474-505, 551-661. Mended in OneShotGeneration and
Bistream: a speech id fed twice after a last F; only one block of text used for each piece pushed; speech of
the prompt dropped when the text is short; 15 ids without text after a prompt of whole blocks; no bound of
length; ids outside the codec ending the utterance, or the process; version 3's least length.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from ..config import CosyVoiceVersion, control_id_count

TEXT_BLOCK_IDS = 5
SPEECH_BLOCK_IDS = 15
END_OF_PROMPT = 151_646  # <|endofprompt|> of the released vocabularies


class UnexpectedIdError(ValueError):
    """The model answered an id that upstream cannot go on from."""


class LmInputKind(Enum):
    """Where an input id is looked up."""

    TEXT = "text"
    SPEECH = "speech"
    START = "start"
    TURN = "turn"


@dataclass(frozen=True, slots=True)
class LmInput:
    """One input of the language model. id: of text or speech; 0 for the two that have none."""

    kind: LmInputKind
    id: int = 0


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """Feed ``inputs``, then sample an id that is not ``forbidden``; or answer ``forced``, unsampled."""

    inputs: tuple[LmInput, ...]
    forbidden: tuple[int, ...] = ()
    forced: int | None = None


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids of a codec of ``codes`` sounds that are not sounds, and the text id that ends a prompt."""

    version: CosyVoiceVersion
    codebook_size: int = 6561
    end_of_prompt: int = END_OF_PROMPT

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
        """Everything that the head can answer and that is no sound."""
        return range(self.codebook_size, self.codebook_size + control_id_count(self.version))

    def control_except(self, *allowed: int) -> tuple[int, ...]:
        """Every control id except ``allowed``."""
        return tuple(id for id in self.control if id not in allowed)


@dataclass(frozen=True, slots=True)
class SpeechLengthRule:
    """Speech ids for each text id, prompt not counted: at least and at most."""

    min_ratio: float = 2.0
    max_ratio: float = 20.0


@dataclass(frozen=True, slots=True)
class LmPrompt:
    """What the voice says before: its transcript and its speech; either may be empty."""

    text_ids: tuple[int, ...] = ()
    speech_ids: tuple[int, ...] = ()


START_INPUT = LmInput(LmInputKind.START)
TURN_INPUT = LmInput(LmInputKind.TURN)


class Generation(ABC):
    """One utterance's dealings with the language model.

    Attributes:
        spoken: speech ids so far, codec sounds only.
        decoded: every id answered so far, the requests for text among them; what repetition is judged by.
        finished: whether nothing will be asked any more.
    """

    def __init__(
        self, ids: SpecialIds, prompt: LmPrompt = LmPrompt(), rule: SpeechLengthRule = SpeechLengthRule()
    ) -> None:
        self.ids, self.prompt, self.rule = ids, prompt, rule
        self.speech_ids: list[int] = []
        self.decoded: list[int] = []
        self.finished = False
        self._pieces: deque[tuple[int, ...]] = deque()
        self._text_ended = False
        self._pending_request: SamplingRequest | None = None
        self._request_iterator = self._requests()

    def push_text(self, text_ids: Sequence[int]) -> None:
        """More text, any number of ids; raises ValueError after ``end_text``."""
        if self._text_ended:
            raise ValueError("text was pushed after its end")
        self._pieces.append(tuple(text_ids))

    def end_text(self) -> None:
        """No more text will come."""
        self._text_ended = True

    def ask(self) -> SamplingRequest | None:
        """What to feed and sample next; the same until it is answered; None: wants more text, or finished."""
        if self._pending_request is None and not self.finished:
            self._resume(None)
        return self._pending_request

    def answer(self, sampled: int) -> None:
        """The id sampled for the last ``ask``; raises UnexpectedIdError where upstream would raise."""
        if self._pending_request is None:
            raise ValueError("answered without having been asked")
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
    def _requests(self) -> Generator[SamplingRequest | None, int, None]:
        """Yield every Ask in order, and None wherever text is wanted that has not come."""

    def _accept(self, sampled: int) -> tuple[LmInput, ...]:
        """Take a sound, and feed it next."""
        self.speech_ids.append(sampled)
        self.decoded.append(sampled)
        return (LmInput(LmInputKind.SPEECH, sampled),)


class OneShotGeneration(Generation):
    """All text at once, then all speech; nothing is asked before the text has ended."""

    def _requests(self) -> Generator[SamplingRequest | None, int, None]:
        text = yield from self._wait_for_all_text()
        if not text:
            return
        _require_end_of_prompt(self.ids, (*self.prompt.text_ids, *text))
        min_ids, max_ids = _length_range(self.rule, len(text))
        all_controls, controls_but_end = self.ids.control_except(), self.ids.control_except(self.ids.end)
        inputs = _one_shot_prefix(self.prompt, text)
        while len(self.speech_ids) < max_ids:
            sampled = yield SamplingRequest(
                inputs, all_controls if len(self.speech_ids) < min_ids else controls_but_end
            )
            if sampled == self.ids.end:
                return
            inputs = self._accept(sampled)

    def _wait_for_all_text(self) -> Generator[None, int, list[int]]:
        while not self._text_ended:
            yield None
        return [id for piece in self._pieces for id in piece]


class CompatOneShotGeneration(OneShotGeneration):
    """As upstream: any control id may end the speech, in version 3 even before its least length."""

    def _requests(self) -> Generator[SamplingRequest | None, int, None]:
        text = yield from self._wait_for_all_text()
        min_ids, max_ids = _length_range(self.rule, len(text))
        _require_end_of_prompt(self.ids, (*self.prompt.text_ids, *text))
        inputs = _one_shot_prefix(self.prompt, text)
        for index in range(max_ids):
            sampled = yield SamplingRequest(inputs, _compat_forbidden(self.ids) if index < min_ids else ())
            if sampled in self.ids.control:
                return
            inputs = self._accept(sampled)


class BistreamGeneration(Generation):
    """Text and speech in turns: speech may start once 5 text ids are there."""

    def __init__(
        self, ids: SpecialIds, prompt: LmPrompt = LmPrompt(), rule: SpeechLengthRule = SpeechLengthRule()
    ) -> None:
        super().__init__(ids, prompt, rule)
        opening, text = _split_prompt(ids, prompt.text_ids)
        self._inputs: tuple[LmInput, ...] = (START_INPUT, *_lm_inputs(LmInputKind.TEXT, opening))
        self._text = deque(text)
        self._prompt_speech = deque(prompt.speech_ids)
        self._pushed_text_ids = 0
        self._text_ids_with_speech = 0

    def _requests(self) -> Generator[SamplingRequest | None, int, None]:
        while not self._pushed_text_ids and not self._text_ended:
            yield None
            self._take_pieces()
        self._take_pieces()
        if not self._pushed_text_ids:
            return
        while (yield from self._wait_for_block()):
            yield from self._speak_block()
        yield from self._speak_rest()

    def _wait_for_block(self) -> Generator[None, int, bool]:
        self._take_pieces()
        while len(self._text) < TEXT_BLOCK_IDS and not self._text_ended:
            yield None
            self._take_pieces()
        return len(self._text) >= TEXT_BLOCK_IDS

    def _take_pieces(self) -> None:
        while self._pieces:
            piece = self._pieces.popleft()
            self._pushed_text_ids += len(piece)
            self._text += piece

    def _speak_block(self) -> Generator[SamplingRequest | None, int, None]:
        """5 text ids and 15 sounds, as many of them from the prompt as it has left.

        The last sound of a block is fed with whatever follows it; one that was fed already is not fed again.
        """
        prompt_speech = _pop_front(self._prompt_speech, SPEECH_BLOCK_IDS)
        self._inputs += (
            *_lm_inputs(LmInputKind.TEXT, _pop_front(self._text, TEXT_BLOCK_IDS)),
            *_lm_inputs(LmInputKind.SPEECH, prompt_speech),
        )
        if len(prompt_speech) < SPEECH_BLOCK_IDS:
            self._text_ids_with_speech += TEXT_BLOCK_IDS
        for _ in range(SPEECH_BLOCK_IDS - len(prompt_speech)):
            sampled = yield self._next_ask(self.ids.control_except(self.ids.fill))
            if sampled == self.ids.fill:
                break
            self._inputs = self._accept(sampled)

    def _speak_rest(self) -> Generator[SamplingRequest | None, int, None]:
        """The text that makes no block, the turn, the rest of the prompt's speech, and then sounds only."""
        # A prompt without speech of its own is spoken too, and then has its share of the length.
        min_ids, _ = _length_range(self.rule, self._pushed_text_ids)
        _, max_ids = _length_range(
            self.rule, max(self._pushed_text_ids, self._text_ids_with_speech + len(self._text))
        )
        self._inputs += (
            *_lm_inputs(LmInputKind.TEXT, self._text),
            TURN_INPUT,
            *_lm_inputs(LmInputKind.SPEECH, self._prompt_speech),
        )
        all_controls, controls_but_end = self.ids.control_except(), self.ids.control_except(self.ids.end)
        while len(self.speech_ids) < max_ids:
            sampled = yield self._next_ask(
                all_controls if len(self.speech_ids) < min_ids else controls_but_end
            )
            if sampled == self.ids.end:
                return
            self._inputs = self._accept(sampled)

    def _next_ask(self, forbidden: tuple[int, ...]) -> SamplingRequest:
        inputs, self._inputs = self._inputs, ()
        return SamplingRequest(inputs, forbidden)


class CompatBistreamGeneration(Generation):
    """As upstream, id by id: blocks are spoken piece by piece as they were pushed, and faults are kept."""

    def __init__(
        self, ids: SpecialIds, prompt: LmPrompt = LmPrompt(), rule: SpeechLengthRule = SpeechLengthRule()
    ) -> None:
        super().__init__(ids, prompt, rule)
        opening, text = _split_prompt(ids, prompt.text_ids)
        self._inputs: tuple[LmInput, ...] = (START_INPUT, *_lm_inputs(LmInputKind.TEXT, opening))
        self._text = deque(text)
        self._prompt_speech = deque(prompt.speech_ids)
        prompted = len(prompt.speech_ids)
        self._next_fill = (prompted // SPEECH_BLOCK_IDS + 1) * SPEECH_BLOCK_IDS - prompted

    def _requests(self) -> Generator[SamplingRequest | None, int, None]:
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
        while self._prompt_speech and len(self._text) >= TEXT_BLOCK_IDS:
            self._inputs += _lm_inputs(LmInputKind.TEXT, _pop_front(self._text, TEXT_BLOCK_IDS))
            self._inputs += _lm_inputs(LmInputKind.SPEECH, _pop_front(self._prompt_speech, SPEECH_BLOCK_IDS))

    def _feed_block(self) -> bool:
        """Add a block of text where one is due; False while it has not come."""
        filled = self.decoded[-1:] == [self.ids.fill]
        if not filled and (self.decoded or self._inputs != (START_INPUT,)):
            return True
        if len(self._text) < TEXT_BLOCK_IDS:
            return False
        block = _lm_inputs(LmInputKind.TEXT, _pop_front(self._text, TEXT_BLOCK_IDS))
        self._inputs = block if filled else self._inputs + block
        return True

    def _speak_block(self) -> Generator[SamplingRequest | None, int, None]:
        while True:
            if len(self.decoded) == self._next_fill:
                yield SamplingRequest(self._inputs, forced=self.ids.fill)
                self._next_fill += SPEECH_BLOCK_IDS + 1
                break
            sampled = yield SamplingRequest(self._inputs, _compat_forbidden(self.ids))
            if sampled == self.ids.fill:
                self._next_fill = len(self.decoded) + SPEECH_BLOCK_IDS + 1
                break
            self._inputs = self._accept_sound(sampled)
        # Stays in self._inputs although it has been fed: the last sound before a fill.
        self.decoded.append(self.ids.fill)

    def _speak_rest(self) -> Generator[SamplingRequest | None, int, None]:
        self._inputs += (*_lm_inputs(LmInputKind.TEXT, self._text), TURN_INPUT)
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


def _one_shot_prefix(prompt: LmPrompt, text: Iterable[int]) -> tuple[LmInput, ...]:
    text_units = _lm_inputs(LmInputKind.TEXT, (*prompt.text_ids, *text))
    return (START_INPUT, *text_units, TURN_INPUT, *_lm_inputs(LmInputKind.SPEECH, prompt.speech_ids))


def _lm_inputs(kind: LmInputKind, ids: Iterable[int]) -> tuple[LmInput, ...]:
    return tuple(LmInput(kind, id) for id in ids)


def _pop_front(queue: deque[int], max_ids: int) -> list[int]:
    return [queue.popleft() for _ in range(min(max_ids, len(queue)))]


def _length_range(rule: SpeechLengthRule, text_ids: int) -> tuple[int, int]:
    return int(rule.min_ratio * text_ids), int(rule.max_ratio * text_ids)


def _compat_forbidden(ids: SpecialIds) -> tuple[int, ...]:
    """What upstream forbids to go on speaking: the end of speech in version 2, its start in version 3."""
    return (ids.codebook_size,)


def _split_prompt(ids: SpecialIds, text_ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """What version 3 must hear before the interleave begins, and what takes part in it."""
    if ids.version is CosyVoiceVersion.V2:
        return (), text_ids
    _require_end_of_prompt(ids, text_ids)
    cut = list(text_ids).index(ids.end_of_prompt) + 1
    return text_ids[:cut], text_ids[cut:]


def _require_end_of_prompt(ids: SpecialIds, text_ids: Sequence[int]) -> None:
    if ids.version is CosyVoiceVersion.V3 and ids.end_of_prompt not in text_ids:
        raise ValueError(
            f"version 3 wants <|endofprompt|> ({ids.end_of_prompt}) in its prompt or text; it is in neither"
        )
