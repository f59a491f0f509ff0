"""A Piper voice: phoneme ids in, latent frames, samples of any range of frames out.

    alphabet.ids(phonemes) -> PhonemeIds      ids, and the ids of each word
    encode(ids) -> EncodedClause              latent frames and the time of each id, in one call
    render(clause, first, stop) -> samples    equal to those of the whole clause up to rounding

Source: rhasspy/piper, the order of ids: ^ _ p _ p _ ... $.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from ..onnx_parts import inference_session
from .config import PiperConfig, PiperVoiceError, read_config
from .graph import NOISE, NOISE_START, PiperGraphs, split_graph

_PAD, _BEGIN, _END = "_", "^", "$"
_NOISE_VALUES = 1 << 18
_NOISE_SEED = 20_260_101
_ONSET_MARGIN_S = 0.05  # speech may begin this much before the nominal time of the first sound
_MAX_SOUND_S = 0.15  # of the last sound of a word; what follows is a pause

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PhonemeIds:
    """The ids of a clause. ``words``: (first, stop) id of each word; equal where it has no sound."""

    ids: NDArray[np.int64]  # (L,)
    words: tuple[tuple[int, int], ...]

    @property
    def has_sound(self) -> bool:
        """Whether any word has a phoneme of the voice."""
        return any(first < stop for first, stop in self.words)


@dataclass(frozen=True, slots=True)
class EncodedClause:
    """A clause ready to be rendered. Frames are ``PiperVoice.frame_s`` seconds."""

    latent: Float  # (1, C, F), or the samples (F,) of a voice that is not cut
    condition: Float | None  # of the speaker
    frames: int
    onset: int  # the first frame in which speech may be audible
    words: tuple[tuple[float, float], ...] | None  # (start, stop) s from the first frame; None: not known


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
        ranges = []
        for phonemes, mark, follows in zip(words, punctuation, joined, strict=True):
            if ranges and not follows:
                ids += self._known(" ")
            first = len(ids)
            for symbol in unicodedata.normalize("NFD", phonemes):
                for mapped in self._map.get(symbol, (symbol,)):
                    ids += self._known(mapped, report=True)
            ranges.append((first, len(ids)))
            ids += self._known(mark)
        ids += self._ids[_END]
        return PhonemeIds(np.array(ids, np.int64), tuple(ranges))

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

    def __init__(self, config: PiperConfig, graphs: PiperGraphs) -> None:
        self.config, self.alphabet = config, PhonemeAlphabet(config)
        self.frame_s = graphs.hop / config.sample_rate
        self._graphs = graphs
        self._encoder = inference_session(graphs.encoder)
        self._decoder: onnxruntime.InferenceSession | None = (
            inference_session(graphs.decoder) if graphs.decoder else None
        )
        self._noise = np.random.default_rng(_NOISE_SEED).standard_normal(_NOISE_VALUES).astype(np.float32)

    @classmethod
    def load(cls, model: Path) -> "PiperVoice":
        """Load ``voice.onnx`` and ``voice.onnx.json``. Raises PiperVoiceError."""
        config = read_config(model)
        return cls(config, split_graph(model))

    @property
    def renders_ranges(self) -> bool:
        """Whether the graph could be cut; otherwise the encoder renders the whole clause."""
        return self._decoder is not None

    def encode(
        self, phonemes: PhonemeIds, noise: np.random.Generator, speed: float = 1.0, speaker: int = 0
    ) -> EncodedClause:
        """Run text encoder and flow on a clause. speed: 0.5 (slow) to 2.0 (fast)."""
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
        latent = values[graphs.latent]
        if not self.renders_ranges:
            latent = latent.reshape(-1)
        condition = values[graphs.condition] if graphs.condition else None
        ends = self._ends(values[graphs.durations]) if graphs.durations else None
        if ends is None:
            return EncodedClause(latent, condition, latent.shape[-1], 0, None)
        first = min((start for start, stop in phonemes.words if start < stop), default=0)
        onset = max(0.0, ends[max(0, first - 1)] - _ONSET_MARGIN_S)
        words = tuple(self._word_time(ends, *word) for word in phonemes.words)
        return EncodedClause(latent, condition, latent.shape[-1], int(onset / self.frame_s), words)

    def render(self, clause: EncodedClause, first: int, stop: int) -> Float:
        """The samples (N,) of the frames from ``first`` to ``stop``, at the voice's own rate."""
        if self._decoder is None:
            return clause.latent[first:stop]
        begin = max(0, first - self._graphs.context_frames)
        end = min(clause.frames, stop + self._graphs.context_frames)
        feed = {self._graphs.latent: clause.latent[:, :, begin:end]}
        if self._graphs.condition and clause.condition is not None:
            feed[self._graphs.condition] = clause.condition
        samples: Float = self._decoder.run(None, feed)[0].reshape(-1)
        hop = self._graphs.hop
        return samples[(first - begin) * hop : (stop - begin) * hop]

    def _ends(self, durations: Float) -> NDArray[np.float64]:
        """The time at which each id ends, in seconds. Durations count frames of the decoder."""
        hop = self._graphs.hop if self.renders_ranges else 256
        return np.cumsum(durations.reshape(-1)) * (hop / self.config.sample_rate)

    def _word_time(self, ends: NDArray[np.float64], first: int, stop: int) -> tuple[float, float]:
        start_s = float(ends[first - 1])
        if first == stop:
            return start_s, start_s
        last_sound = max(first, stop - 2)  # the padding after it belongs to it
        return start_s, min(float(ends[stop - 1]), float(ends[last_sound - 1]) + _MAX_SOUND_S)
