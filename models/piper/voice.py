"""A Piper voice: phoneme ids in, samples out, any number of frames at a time.

    alphabet.ids(phonemes) -> PhonemeIds      ids, and the ids of each word
    encode(ids) -> EncodedClause              frames and the time of each word, in one call for the clause
    step(clause, state, stop) -> samples      equal to those of the whole clause up to rounding

Source: rhasspy/piper, the order of ids: ^ _ p _ p _ ... $.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..devices.onnx_sessions import CPU_SESSIONS, ONNX_RUNTIME_ERRORS, OnnxSessions
from ..phonemes.timed_sounds import TimedSounds, timed_sounds
from .config import PiperConfig, PiperVoiceError, read_config
from .graph import NOISE, NOISE_START, PiperGraphs, split_graph
from .range_renderer import RangeRenderer, RangeState

_PAD, _BEGIN, _END = "_", "^", "$"
_NOISE_VALUES = 1 << 18
_NOISE_SEED = 20_260_101
_ONSET_MARGIN_S = 0.05  # speech may begin this much before the nominal time of the first sound
_EXACT = 1e-3  # the greatest difference of samples by rounding is 1e-6
_MAX_SOUND_S = 0.15  # of the last sound of a word; what follows is a pause

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PhonemeIds:
    """The ids of a clause. ``words``: (first, stop) id of each word; equal where it has no sound.

    signs: of each word, with (first, stop) id; IPA where the voice reads phonemes.
    """

    ids: NDArray[np.int64]  # (L,)
    words: tuple[tuple[int, int], ...]
    signs: tuple[tuple[tuple[str, int, int], ...], ...] = ()

    @property
    def has_sound(self) -> bool:
        """Whether any word has a phoneme of the voice."""
        return any(first < stop for first, stop in self.words)


@dataclass(frozen=True, slots=True)
class EncodedClause:
    """A clause ready to be rendered. Frames are ``PiperVoice.frame_s`` seconds."""

    values: Mapping[str, Float]  # outputs of the encoder by name
    frames: int
    onset: int  # the first frame in which speech may be audible
    words: tuple[tuple[float, float], ...] | None  # (start, stop) s from the first frame; None: not known
    sounds: tuple[TimedSounds[float], ...] | None = None  # of each word, likewise


@dataclass(frozen=True, slots=True)
class PiperRenderState:
    """Memory of a clause's rendering between steps."""

    frame: int  # the next one to render
    parts: RangeState = ()


class PhonemeAlphabet:
    """The phonemes of a voice. A phoneme that it lacks is left out.

    Attributes:
        missing: phonemes that were left out so far.
    """

    def __init__(self, config: PiperConfig) -> None:
        self.missing: set[str] = set()
        self._ids, self._map = config.phoneme_ids, config.phoneme_map
        lacking = [symbol for symbol in (_PAD, _BEGIN, _END) if symbol not in self._ids]
        if lacking:
            raise PiperVoiceError(f"{config.name}: the phoneme_id_map lacks {', '.join(lacking)}")

    def ids(self, words: Sequence[str], punctuation: Sequence[str], joined: Sequence[bool]) -> PhonemeIds:
        """The ids of words, given as phonemes.

        punctuation: after each word. joined: whether a word follows the one before without a blank.
        """
        ids = [*self._ids[_BEGIN], *self._ids[_PAD]]
        ranges: list[tuple[int, int]] = []
        signs: list[tuple[tuple[str, int, int], ...]] = []
        for phonemes, mark, follows in zip(words, punctuation, joined, strict=True):
            if ranges and not follows:
                ids += self._known(" ")
            first, word_signs = len(ids), list[tuple[str, int, int]]()
            for symbol in unicodedata.normalize("NFD", phonemes):
                for mapped in self._map.get(symbol, (symbol,)):
                    found = self._known(mapped, report=True)
                    if found:
                        word_signs.append((mapped, len(ids), len(ids) + len(found)))
                    ids += found
            ranges.append((first, len(ids)))
            signs.append(tuple(word_signs))
            ids += self._known(mark)
        ids += self._ids[_END]
        return PhonemeIds(np.array(ids, np.int64), tuple(ranges), tuple(signs))

    def _known(self, symbol: str, *, report: bool = False) -> list[int]:
        """The ids of a symbol, each followed by padding."""
        found = self._ids.get(symbol) or self._ids.get(symbol.lower())
        if found is None:
            if report and symbol.strip():
                self.missing.add(symbol)
            return []
        return [value for each in found for value in (each, *self._ids[_PAD])]


class PiperVoice:
    """A loaded voice. Its methods may be called from several threads.

    Attributes:
        config: of the voice.
        alphabet: its phonemes.
        frame_s: seconds of a frame.
    """

    def __init__(
        self, config: PiperConfig, graphs: PiperGraphs, sessions: OnnxSessions = CPU_SESSIONS
    ) -> None:
        self.config, self.alphabet = config, PhonemeAlphabet(config)
        self.frame_s = graphs.hop / config.sample_rate
        self._graphs = graphs
        self._encoder = sessions.open(graphs.encoder)
        self._renderer = RangeRenderer(graphs.parts, sessions) if graphs.parts else None
        self._noise = np.random.default_rng(_NOISE_SEED).standard_normal(_NOISE_VALUES).astype(np.float32)

    @classmethod
    def load(cls, model: Path, sessions: OnnxSessions = CPU_SESSIONS) -> "PiperVoice":
        """Load ``voice.onnx`` and ``voice.onnx.json``. Raises PiperVoiceError.

        The voice renders ranges of frames if a trial clause sounds the same in pieces as in one.
        """
        config = read_config(model)
        try:
            voice = cls(config, split_graph(model), sessions)
            if voice.renders_ranges and not voice._is_exact():
                voice = cls(config, split_graph(model, cut=False), sessions)
        except ONNX_RUNTIME_ERRORS as error:
            raise PiperVoiceError(f"{model}: cannot be computed: {error}") from error
        return voice

    @property
    def renders_ranges(self) -> bool:
        """Whether the graph could be cut; otherwise ``encode`` renders the whole clause."""
        return self._renderer is not None

    def encode(
        self, phonemes: PhonemeIds, noise: np.random.Generator, speed: float = 1.0, speaker: int = 0
    ) -> EncodedClause:
        """Run the text encoder on a clause. speed: 0.5 (slow) to 2.0 (fast)."""
        config, graphs = self.config, self._graphs
        feed = {
            "input": phonemes.ids[None],
            "input_lengths": np.array([len(phonemes.ids)], np.int64),
            "scales": np.array([config.noise_scale, config.length_scale / speed, config.noise_w], np.float32),
            NOISE: self._noise,
            NOISE_START: noise.integers(_NOISE_VALUES, size=1),
        }
        if graphs.has_speakers:
            feed["sid"] = np.array([speaker], np.int64)
        names = [output.name for output in self._encoder.get_outputs()]
        values = dict(zip(names, self._encoder.run(names, feed), strict=True))
        if not self.renders_ranges:
            values[graphs.output] = values[graphs.output].reshape(-1)
        frames = values[graphs.output].shape[-1]
        if graphs.durations is None or not self.renders_ranges:
            return EncodedClause(values, frames, 0, None)
        ends = np.cumsum(values[graphs.durations].reshape(-1)) * self.frame_s
        first = min((start for start, stop in phonemes.words if start < stop), default=1)
        onset = max(0.0, float(ends[first - 1]) - _ONSET_MARGIN_S)
        words = tuple(_word_time(ends, *word) for word in phonemes.words)
        sounds = tuple(
            timed_sounds(
                [sign for sign, _, _ in signs],
                [float(ends[first - 1]) for _, first, _ in signs],
                [min(float(ends[stop - 1]), stop_s) for _, _, stop in signs],
            )
            for signs, (_, stop_s) in zip(phonemes.signs, words, strict=True)
        )
        return EncodedClause(values, frames, int(onset / self.frame_s), words, sounds)

    def step(
        self, clause: EncodedClause, state: PiperRenderState, stop: int
    ) -> tuple[Float, PiperRenderState]:
        """The samples (N,) from the state's frame up to ``stop``, at the voice's own rate; the next state."""
        if self._renderer is None:
            samples = clause.values[self._graphs.output][state.frame : stop]
            return samples, PiperRenderState(stop)
        hop = self._graphs.hop
        samples, parts = self._renderer.render(
            clause.values, clause.frames, state.parts, state.frame * hop, stop * hop
        )
        return samples, PiperRenderState(stop, parts)

    def _is_exact(self) -> bool:
        """Whether a short trial clause in two pieces equals the clause in one."""
        symbols = [ids for symbol, ids in self.config.phoneme_ids.items() if symbol.isalpha()][:20]
        ids = np.array([1, *(each for symbol in symbols for each in symbol), 2], np.int64)
        clause = self.encode(PhonemeIds(ids, ()), np.random.default_rng(0))
        whole, _ = self.step(clause, PiperRenderState(0), clause.frames)
        first, state = self.step(clause, PiperRenderState(0), clause.frames // 3)
        second, _ = self.step(clause, state, clause.frames)
        return bool(np.allclose(np.concatenate([first, second]), whole, atol=_EXACT))


def _word_time(ends: NDArray[np.float64], first: int, stop: int) -> tuple[float, float]:
    """(start, stop) of the word with the ids ``first`` to ``stop``, in seconds."""
    start_s = float(ends[first - 1])
    if first == stop:
        return start_s, start_s
    last_sound_s = float(ends[max(first, stop - 2) - 1])  # when it begins; padding follows it
    return start_s, min(float(ends[stop - 1]), last_sound_s + _MAX_SOUND_S)
