"""What an utterance feeds the language model, step by step, and which ids it may answer: control flow alone.

A ``Generation`` asks and is answered. It never sees a tensor, so that it is tested with a scripted model:

    generation.push_text(ids); generation.end_text()
    while (ask := generation.ask()) is not None:      # None: wants more text, or finished
        generation.answer(sampled(feed(ask.inputs), ask.forbidden, generation.decoded))
    generation.spoken                                 # speech ids so far

Four of them, two ways to feed and two ways to be faithful:

    OneShot                 all text, then all speech
    Bistream                5 text ids, 15 speech ids, 5 text ids, ... while the text is still being written
    CompatOneShot, CompatBistream     the same with upstream's faults, id by id, for comparison

The interleave as the model was trained on it; F asks for the next block and is never fed, T is the turn to
speech once fewer than 5 text ids are left:

    start  t t t t t  s s s ... s s (15) F  t t t t t  s s s ... s s (15) F  t t  T  s s s s ... end

Source: FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:150-160, 474-505, 551-661. Mended in OneShot and
Bistream: a speech id fed twice after a last F; only one block of text used for each piece pushed; speech of
the prompt dropped when the text is short; 15 ids without text after a prompt of whole blocks; no bound of
length; ids outside the codec ending the utterance, or the process; version 3's least length.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from .geometry import Version, control_ids

TEXT_BLOCK = 5
SPEECH_BLOCK = 15
END_OF_PROMPT = 151_646  # <|endofprompt|> of the released vocabularies


class StrayId(ValueError):
    """The model answered an id that upstream cannot go on from."""


class Kind(Enum):
    """Where an input id is looked up."""

    TEXT = "text"
    SPEECH = "speech"
    START = "start"
    TURN = "turn"


@dataclass(frozen=True, slots=True)
class Unit:
    """One input of the language model. id: of text or speech; 0 for the two that have none."""

    kind: Kind
    id: int = 0


@dataclass(frozen=True, slots=True)
class Ask:
    """Feed ``inputs``, then sample an id that is not ``forbidden``; or answer ``forced``, unsampled."""

    inputs: tuple[Unit, ...]
    forbidden: tuple[int, ...] = ()
    forced: int | None = None


@dataclass(frozen=True, slots=True)
class SpeechIds:
    """The ids of a codec of ``codes`` sounds that are not sounds, and the text id that ends a prompt."""

    version: Version
    codes: int = 6561
    end_of_prompt: int = END_OF_PROMPT

    @property
    def end(self) -> int:
        """Ends the speech."""
        return self.codes if self.version is Version.V2 else self.codes + 1

    @property
    def fill(self) -> int:
        """Asks for the next block of text."""
        return self.codes + (2 if self.version is Version.V2 else 3)

    @property
    def control(self) -> range:
        """Everything that the head can answer and that is no sound."""
        return range(self.codes, self.codes + control_ids(self.version))

    def control_but(self, *allowed: int) -> tuple[int, ...]:
        """Every control id except ``allowed``."""
        return tuple(id for id in self.control if id not in allowed)


@dataclass(frozen=True, slots=True)
class LengthRule:
    """Speech ids for each text id, prompt not counted: at least and at most."""

    fewest: float = 2.0
    most: float = 20.0


@dataclass(frozen=True, slots=True)
class Prompt:
    """What the voice says before: its transcript and its speech; either may be empty."""

    text_ids: tuple[int, ...] = ()
    speech_ids: tuple[int, ...] = ()


START = Unit(Kind.START)
TURN = Unit(Kind.TURN)


class Generation(ABC):
    """One utterance's dealings with the language model.

    Attributes:
        spoken: speech ids so far, codec sounds only.
        decoded: every id answered so far, the requests for text among them; what repetition is judged by.
        finished: whether nothing will be asked any more.
    """

    def __init__(self, ids: SpeechIds, prompt: Prompt = Prompt(), rule: LengthRule = LengthRule()) -> None:
        self.ids, self.prompt, self.rule = ids, prompt, rule
        self.spoken: list[int] = []
        self.decoded: list[int] = []
        self.finished = False
        self._pieces: deque[tuple[int, ...]] = deque()
        self._ended = False
        self._asked: Ask | None = None
        self._flow = self._ask_all()

    def push_text(self, text_ids: Sequence[int]) -> None:
        """More text, any number of ids; raises ValueError after ``end_text``."""
        if self._ended:
            raise ValueError("text was pushed after its end")
        self._pieces.append(tuple(text_ids))

    def end_text(self) -> None:
        """No more text will come."""
        self._ended = True

    def ask(self) -> Ask | None:
        """What to feed and sample next; the same until it is answered; None: wants more text, or finished."""
        if self._asked is None and not self.finished:
            self._go_on(None)
        return self._asked

    def answer(self, sampled: int) -> None:
        """The id sampled for the last ``ask``; raises StrayId where upstream would raise."""
        if self._asked is None:
            raise ValueError("answered without having been asked")
        self._go_on(sampled)

    def _go_on(self, sampled: int | None) -> None:
        try:
            self._asked = next(self._flow) if sampled is None else self._flow.send(sampled)
        except StopIteration:
            self._asked = None
            self.finished = True

    @abstractmethod
    def _ask_all(self) -> Generator[Ask | None, int, None]:
        """Yield every Ask in order, and None wherever text is wanted that has not come."""

    def _accept(self, sampled: int) -> tuple[Unit, ...]:
        """Take a sound, and feed it next."""
        self.spoken.append(sampled)
        self.decoded.append(sampled)
        return (Unit(Kind.SPEECH, sampled),)


class OneShot(Generation):
    """All text at once, then all speech; nothing is asked before the text has ended."""

    def _ask_all(self) -> Generator[Ask | None, int, None]:
        text = yield from self._all_text()
        if not text:
            return
        _require_end_of_prompt(self.ids, (*self.prompt.text_ids, *text))
        fewest, most = _length_range(self.rule, len(text))
        silent, ending = self.ids.control_but(), self.ids.control_but(self.ids.end)
        inputs = _one_shot_inputs(self.prompt, text)
        while len(self.spoken) < most:
            sampled = yield Ask(inputs, silent if len(self.spoken) < fewest else ending)
            if sampled == self.ids.end:
                return
            inputs = self._accept(sampled)

    def _all_text(self) -> Generator[None, int, list[int]]:
        while not self._ended:
            yield None
        return [id for piece in self._pieces for id in piece]


class CompatOneShot(OneShot):
    """As upstream: any control id may end the speech, in version 3 even before its least length."""

    def _ask_all(self) -> Generator[Ask | None, int, None]:
        text = yield from self._all_text()
        fewest, most = _length_range(self.rule, len(text))
        _require_end_of_prompt(self.ids, (*self.prompt.text_ids, *text))
        inputs = _one_shot_inputs(self.prompt, text)
        for index in range(most):
            sampled = yield Ask(inputs, _compat_forbidden(self.ids) if index < fewest else ())
            if sampled in self.ids.control:
                return
            inputs = self._accept(sampled)


class Bistream(Generation):
    """Text and speech in turns: speech may start once 5 text ids are there."""

    def __init__(self, ids: SpeechIds, prompt: Prompt = Prompt(), rule: LengthRule = LengthRule()) -> None:
        super().__init__(ids, prompt, rule)
        head, text = _split_prompt(ids, prompt.text_ids)
        self._inputs: tuple[Unit, ...] = (START, *_units(Kind.TEXT, head))
        self._text = deque(text)
        self._prompt_speech = deque(prompt.speech_ids)
        self._pushed = 0
        self._voiced = 0

    def _ask_all(self) -> Generator[Ask | None, int, None]:
        while not self._pushed and not self._ended:
            yield None
            self._take_pieces()
        self._take_pieces()
        if not self._pushed:
            return
        while (yield from self._enough_text()):
            yield from self._speak_block()
        yield from self._speak_rest()

    def _enough_text(self) -> Generator[None, int, bool]:
        self._take_pieces()
        while len(self._text) < TEXT_BLOCK and not self._ended:
            yield None
            self._take_pieces()
        return len(self._text) >= TEXT_BLOCK

    def _take_pieces(self) -> None:
        while self._pieces:
            piece = self._pieces.popleft()
            self._pushed += len(piece)
            self._text += piece

    def _speak_block(self) -> Generator[Ask | None, int, None]:
        """5 text ids and 15 sounds, as many of them from the prompt as it has left.

        The last sound of a block is fed with whatever follows it; one that was fed already is not fed again.
        """
        heard = _taken(self._prompt_speech, SPEECH_BLOCK)
        self._inputs += (*_units(Kind.TEXT, _taken(self._text, TEXT_BLOCK)), *_units(Kind.SPEECH, heard))
        if len(heard) < SPEECH_BLOCK:
            self._voiced += TEXT_BLOCK
        for _ in range(SPEECH_BLOCK - len(heard)):
            sampled = yield self._next_ask(self.ids.control_but(self.ids.fill))
            if sampled == self.ids.fill:
                break
            self._inputs = self._accept(sampled)

    def _speak_rest(self) -> Generator[Ask | None, int, None]:
        """The text that makes no block, the turn, the rest of the prompt's speech, and then sounds only."""
        # A prompt without speech of its own is spoken too, and then has its share of the length.
        fewest, _ = _length_range(self.rule, self._pushed)
        _, most = _length_range(self.rule, max(self._pushed, self._voiced + len(self._text)))
        self._inputs += (*_units(Kind.TEXT, self._text), TURN, *_units(Kind.SPEECH, self._prompt_speech))
        silent, ending = self.ids.control_but(), self.ids.control_but(self.ids.end)
        while len(self.spoken) < most:
            sampled = yield self._next_ask(silent if len(self.spoken) < fewest else ending)
            if sampled == self.ids.end:
                return
            self._inputs = self._accept(sampled)

    def _next_ask(self, forbidden: tuple[int, ...]) -> Ask:
        inputs, self._inputs = self._inputs, ()
        return Ask(inputs, forbidden)


class CompatBistream(Generation):
    """As upstream, id by id: blocks are spoken piece by piece as they were pushed, and faults are kept."""

    def __init__(self, ids: SpeechIds, prompt: Prompt = Prompt(), rule: LengthRule = LengthRule()) -> None:
        super().__init__(ids, prompt, rule)
        head, text = _split_prompt(ids, prompt.text_ids)
        self._inputs: tuple[Unit, ...] = (START, *_units(Kind.TEXT, head))
        self._text = deque(text)
        self._prompt_speech = deque(prompt.speech_ids)
        prompted = len(prompt.speech_ids)
        self._next_fill = (prompted // SPEECH_BLOCK + 1) * SPEECH_BLOCK - prompted

    def _ask_all(self) -> Generator[Ask | None, int, None]:
        while self._pieces or not self._ended:
            if not self._pieces:
                yield None
                continue
            self._text += self._pieces.popleft()
            self._feed_prompt()
            if not self._prompt_speech and self._feed_block():
                yield from self._speak_block()
        yield from self._speak_rest()

    def _feed_prompt(self) -> None:
        while self._prompt_speech and len(self._text) >= TEXT_BLOCK:
            self._inputs += _units(Kind.TEXT, _taken(self._text, TEXT_BLOCK))
            self._inputs += _units(Kind.SPEECH, _taken(self._prompt_speech, SPEECH_BLOCK))

    def _feed_block(self) -> bool:
        """Add a block of text where one is due; False while it has not come."""
        filled = self.decoded[-1:] == [self.ids.fill]
        if not filled and (self.decoded or self._inputs != (START,)):
            return True
        if len(self._text) < TEXT_BLOCK:
            return False
        block = _units(Kind.TEXT, _taken(self._text, TEXT_BLOCK))
        self._inputs = block if filled else self._inputs + block
        return True

    def _speak_block(self) -> Generator[Ask | None, int, None]:
        while True:
            if len(self.decoded) == self._next_fill:
                yield Ask(self._inputs, forced=self.ids.fill)
                self._next_fill += SPEECH_BLOCK + 1
                break
            sampled = yield Ask(self._inputs, _compat_forbidden(self.ids))
            if sampled == self.ids.fill:
                self._next_fill = len(self.decoded) + SPEECH_BLOCK + 1
                break
            self._inputs = self._accept_sound(sampled)
        # Stays in self._inputs although it has been fed: the last sound before a fill.
        self.decoded.append(self.ids.fill)

    def _speak_rest(self) -> Generator[Ask | None, int, None]:
        self._inputs += (*_units(Kind.TEXT, self._text), TURN)
        while True:
            sampled = yield Ask(self._inputs)
            if sampled == self.ids.end:
                return
            self._inputs = self._accept_sound(sampled)

    def _accept_sound(self, sampled: int) -> tuple[Unit, ...]:
        if sampled in self.ids.control:
            raise StrayId(f"got id {sampled}, where only sounds below {self.ids.codes} can be spoken")
        return self._accept(sampled)


def _one_shot_inputs(prompt: Prompt, text: Iterable[int]) -> tuple[Unit, ...]:
    text_units = _units(Kind.TEXT, (*prompt.text_ids, *text))
    return (START, *text_units, TURN, *_units(Kind.SPEECH, prompt.speech_ids))


def _units(kind: Kind, ids: Iterable[int]) -> tuple[Unit, ...]:
    return tuple(Unit(kind, id) for id in ids)


def _taken(queue: deque[int], most: int) -> list[int]:
    return [queue.popleft() for _ in range(min(most, len(queue)))]


def _length_range(rule: LengthRule, text_ids: int) -> tuple[int, int]:
    return int(rule.fewest * text_ids), int(rule.most * text_ids)


def _compat_forbidden(ids: SpeechIds) -> tuple[int, ...]:
    """What upstream forbids to go on speaking: the end of speech in version 2, its start in version 3."""
    return (ids.codes,)


def _split_prompt(ids: SpeechIds, text_ids: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
    """What version 3 must hear before the interleave begins, and what takes part in it."""
    if ids.version is Version.V2:
        return (), text_ids
    _require_end_of_prompt(ids, text_ids)
    cut = list(text_ids).index(ids.end_of_prompt) + 1
    return text_ids[:cut], text_ids[cut:]


def _require_end_of_prompt(ids: SpeechIds, text_ids: Sequence[int]) -> None:
    if ids.version is Version.V3 and ids.end_of_prompt not in text_ids:
        raise ValueError(
            f"version 3 wants <|endofprompt|> ({ids.end_of_prompt}) in its prompt or text; it is in neither"
        )
