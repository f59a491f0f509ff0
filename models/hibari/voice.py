"""The voice that ships: hibari-tts 0.2.1 ("heart", US English, 24 kHz), streamed, trimmed and levelled.

Words in, samples out, one clause or sentence (a line) at a time:

    read(words) -> Line     phoneme ids, and which of them belong to which word
    encode(line) -> Utterance     hidden frames, fundamental frequency, word times; one call, whole line
    init_state / step -> samples     decoder and vocoder, any number of frames at a time

The model as shipped leads with 250-350 ms of silence, trails with 340-580 ms and speaks near -26 dBFS; here
speech starts within 5 ms, ends where it ends (the pause after it is the caller's choice) and stands at
-20 dBFS active speech level. Text normalisation is not here: words come spelled as they are said.

Source: hibari-tts 0.2.1 (Apache-2.0): phoneme alphabet, G2P and weights.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import hibari
import numpy as np
import onnxruntime
from hibari.g2p import G2P
from numpy.typing import NDArray

from . import graph as graph
from . import harmonic_vocoder as vocoder
from .limiter import limit

SAMPLE_RATE = vocoder.SAMPLE_RATE
FRAME_S = vocoder.FRAME_S
MAX_PHONEMES = 400  # hibari's own bound for what its encoder sees at once
SLOWEST, FASTEST = 0.5, 2.0

# Brings the active speech level (P.56) from the -25.6 dBFS as shipped to -20 dBFS; test_packaged measures it.
_GAIN = np.float32(10 ** (5.6 / 20))
_FRAMES_PER_UNIT = 2  # the model's durations count 25 ms
_ONSET_MARGIN_FRAMES = 12  # speech may begin this long before the first phoneme's nominal time
# The sound before a pause is given most of the pause's time; a word ends 150 ms into its last sound at most.
_MAX_SOUND_FRAMES = 12
_AUDIBLE = np.float32(10 ** (-50 / 20))  # -50 dBFS
_WINDOW_SAMPLES = 25  # 1 ms, in which a level is judged; divides the vocoder's blocks
_LEAD_SAMPLES = 100  # 4 ms kept before the first audible window
_FADE_SAMPLES = 240  # 10 ms

Float = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SpelledWord:
    """A word as it is said: letters and apostrophes, and the punctuation after it ("" or one of ,.?!;:—)."""

    text: str
    punctuation: str = ""


@dataclass(frozen=True, slots=True)
class PhonemeLine:
    """Phoneme ids of one line. ids: (L,) int64. words: (first, stop) id of each word, in order."""

    ids: NDArray[np.int64]
    words: tuple[tuple[int, int], ...]

    @property
    def has_phonemes(self) -> bool:
        """Whether any word has a phoneme that the model knows."""
        return any(first < stop for first, stop in self.words)


@dataclass(frozen=True, slots=True)
class EncodedLine:
    """A line with its timing, ready to be rendered.

    hidden: (1, 130, F) float32. f0: (F,) float32, Hz. frames are 12.5 ms.
    words: (first, stop) frame of each word. onset: the frame from which speech may be audible.
    """

    hidden: Float
    f0: Float
    words: tuple[tuple[int, int], ...]
    onset: int

    @property
    def frames(self) -> int:
        """Frames in all."""
        return int(self.hidden.shape[2])


@dataclass(frozen=True, slots=True)
class HibariRenderState:
    """What rendering remembers between steps.

    fed: frames given to the decoder. contexts: (1, C, 3 or 6) float32 of each convolution.
    held: the last samples (at most 4 ms) before anything was audible.
    lead: samples of the model's leading silence that were cut; None while nothing was audible yet.
    samples: given out so far. quiet: of these, how many at the end are inaudible.
    """

    decoded_frames: int
    contexts: tuple[Float, ...]
    vocoder: vocoder.HarmonicVocoderState
    withheld: Float
    trimmed_lead_samples: int | None
    samples: int
    trailing_quiet_samples: int


class HibariVoice:
    """The packaged voice: weights and pure steps. One instance a worker thread; twins share the reader."""

    def __init__(self, graphs: graph.HibariGraphs, phonemizer: "Phonemizer") -> None:
        self._graphs = graphs
        self.phonemizer = phonemizer
        self._encoder = _inference_session(graphs.encoder)
        self._decoder = _inference_session(graphs.decoder)
        self._noise = vocoder.noise_table()
        self._decoder_outputs = [output.name for output in self._decoder.get_outputs()]

    @classmethod
    def load(cls) -> "HibariVoice":
        """Load the voice from the installed package; raises graph.HibariGraphMismatch for another version."""
        assets = Path(hibari.__file__).parent / "assets"
        return cls(graph.split_graph(assets / "hibari.onnx"), Phonemizer(assets))

    def for_another_thread(self) -> "HibariVoice":
        """The same voice for another thread."""
        return HibariVoice(self._graphs, self.phonemizer)

    def encode(self, line: PhonemeLine, speed: float = 1.0) -> EncodedLine:
        """Time a line. speed: 0.5 (slow) to 2.0 (fast)."""
        feed = {"ids": line.ids[None], "speed": np.array([speed], np.float32)}
        hidden, durations, f0 = self._encoder.run(None, feed)
        ends = np.cumsum(durations.reshape(-1)).astype(int) * _FRAMES_PER_UNIT
        starts = np.concatenate([[0], ends[:-1]])
        sound_ends = np.minimum(ends, starts + _MAX_SOUND_FRAMES)
        words = tuple(
            (int(starts[first]), int(sound_ends[stop - 1] if stop > first else starts[first]))
            for first, stop in line.words
        )
        onset = max(0, int(ends[0]) - _ONSET_MARGIN_FRAMES)
        return EncodedLine(hidden, f0[0], words, onset)

    def step(
        self, line_encoding: EncodedLine, state: HibariRenderState, frames: int
    ) -> tuple[Float, HibariRenderState]:
        """Render up to ``frames`` more frames of speech; (N,) float32 samples, |x| < 1.

        The first step also covers the leading silence and the decoder's lookahead of 27 frames; the last
        is the one that reaches the end (``is_finished``). N may be 0 where nothing is audible yet.
        """
        first, stop = state.decoded_frames, _next_stop(line_encoding, state, frames)
        last = stop == line_encoding.frames
        spectrum, contexts = self._decode(line_encoding.hidden[:, :, first:stop], state.contexts, last)
        spectrum = spectrum[_frames_before_onset(state) :]
        samples, vocoder_state = vocoder.step(spectrum, line_encoding.f0, state.vocoder, self._noise)
        if last:
            samples = np.concatenate([samples, vocoder.finish(vocoder_state)])
        state = replace(state, decoded_frames=stop, contexts=contexts, vocoder=vocoder_state)
        return _trim(limit(samples * _GAIN), state, last)

    def _decode(
        self, hidden: Float, contexts: tuple[Float, ...], last: bool
    ) -> tuple[Float, tuple[Float, ...]]:
        edge = graph.EDGE_FRAMES if last else 0
        feed = {
            "hidden": hidden,
            "edge_in": np.zeros((1, graph.HIDDEN_CHANNELS, edge), np.float32),
            "edge": np.zeros((1, graph.CHANNELS, edge), np.float32),
        }
        feed |= {f"context_{layer}": context for layer, context in enumerate(contexts)}
        spectrum, *following = self._decoder.run(self._decoder_outputs, feed)
        return spectrum[0], tuple(following)


def init_state(line_encoding: EncodedLine, noise: np.random.Generator) -> HibariRenderState:
    """The beginning of an utterance; ``noise`` decides where its breath comes from."""
    contexts = tuple(
        np.zeros((1, graph.CHANNELS if layer else graph.HIDDEN_CHANNELS, graph.EDGE_FRAMES), np.float32)
        for layer in range(graph.LAYERS)
    )
    nothing = np.zeros(0, np.float32)
    noise_row = int(noise.integers(vocoder.NOISE_ROWS))
    return HibariRenderState(
        0, contexts, vocoder.init_state(line_encoding.onset, noise_row), nothing, None, 0, 0
    )


def is_finished(line_encoding: EncodedLine, state: HibariRenderState) -> bool:
    """Whether every frame has been rendered."""
    return state.decoded_frames == line_encoding.frames


def word_times(line_encoding: EncodedLine, state: HibariRenderState) -> list[tuple[float, float]]:
    """(start, stop) of each word in seconds from the first sample given out; needs one audible step."""
    lead = (state.trimmed_lead_samples or 0) / SAMPLE_RATE
    return [
        (max(0.0, first * FRAME_S - lead), max(0.0, stop * FRAME_S - lead))
        for first, stop in line_encoding.words
    ]


def _next_stop(line_encoding: EncodedLine, state: HibariRenderState, frames: int) -> int:
    """Where the decoder reads up to. What would be left for a tiny last step is taken along."""
    stop = state.decoded_frames + frames
    if state.decoded_frames == 0:
        stop = line_encoding.onset + frames + graph.LOOKAHEAD_FRAMES + vocoder.DELAY_FRAMES
    if line_encoding.frames - stop < graph.LOOKAHEAD_FRAMES:
        stop = line_encoding.frames
    return stop


def _frames_before_onset(state: HibariRenderState) -> int:
    """Decoded frames of the first step that lie before the vocoder's beginning."""
    return state.vocoder.frame if state.decoded_frames == 0 else 0


def _trim(samples: Float, state: HibariRenderState, last: bool) -> tuple[Float, HibariRenderState]:
    """Cut the silence before the first and after the last audible sample, with short fades."""
    if state.trimmed_lead_samples is None:
        samples, state = _trim_lead(samples, state)
    audible = _audible_windows(samples)
    trailing_quiet = len(samples) + state.trailing_quiet_samples
    if len(audible):
        trailing_quiet = len(samples) - (int(audible[-1]) + 1) * _WINDOW_SAMPLES
    if last:
        samples, trailing_quiet = _trim_tail(samples, trailing_quiet)
    return samples, replace(
        state, samples=state.samples + len(samples), trailing_quiet_samples=max(0, trailing_quiet)
    )


def _trim_lead(samples: Float, state: HibariRenderState) -> tuple[Float, HibariRenderState]:
    samples = np.concatenate([state.withheld, samples])
    audible = _audible_windows(samples)
    if not len(audible):
        return samples[:0], replace(state, withheld=samples[-_LEAD_SAMPLES:])
    cut = max(0, int(audible[0]) * _WINDOW_SAMPLES - _LEAD_SAMPLES)
    kept = samples[cut:]
    kept[:_LEAD_SAMPLES] *= np.linspace(0, 1, len(kept[:_LEAD_SAMPLES]), dtype=np.float32)
    rendered_to = (state.vocoder.frame - vocoder.DELAY_FRAMES) * vocoder.HOP
    return kept, replace(state, withheld=samples[:0], trimmed_lead_samples=rendered_to - len(kept))


def _trim_tail(samples: Float, trailing_quiet: int) -> tuple[Float, int]:
    surplus = min(len(samples), max(0, trailing_quiet - _FADE_SAMPLES))
    kept = samples[: len(samples) - surplus].copy()
    fade = kept[-_FADE_SAMPLES:]
    fade *= np.linspace(1, 0, len(fade), dtype=np.float32)
    return kept, trailing_quiet - surplus


def _audible_windows(samples: Float) -> NDArray[np.int64]:
    """Indices of the 1 ms windows whose level exceeds -50 dBFS."""
    whole = len(samples) // _WINDOW_SAMPLES
    windows = samples[: whole * _WINDOW_SAMPLES].reshape(whole, _WINDOW_SAMPLES)
    return np.flatnonzero(np.mean(np.square(windows), axis=1) > _AUDIBLE**2)


class Phonemizer:
    """Words to phoneme ids, by hibari's lexicon, tagger and out-of-vocabulary network."""

    def __init__(self, assets: Path) -> None:
        self._g2p = G2P()
        self._phoneme_ids: dict[str, int] = json.loads((assets / "vocab.json").read_text("utf-8"))
        # Punctuation comes first in the model's alphabet; its time is a pause, not part of the word.
        self._last_pause_id = self._phoneme_ids["…"]
        self.phonemize([SpelledWord("vivavoce", ".")])  # loads the out-of-vocabulary network

    def phonemize(self, words: Sequence[SpelledWord]) -> list[PhonemeLine]:
        """Lines of at most 400 phonemes, cut between words; words without phonemes have empty ranges."""
        text = " ".join(word.text + word.punctuation for word in words)
        spoken = self._phonemes(text, len(words))
        return [self._line(part) for part in _split_lines(spoken)]

    def _phonemes(self, text: str, words: int) -> list[str]:
        """The phonemes of each word: tokens joined up to the next white space."""
        spoken = [""] * words
        index = 0
        for token in self._g2p.phonemize_tokens(self._g2p.tokenize(text)):
            spoken[index] += token.phonemes or ""
            index += bool(token.whitespace)
        return spoken

    def _line(self, spoken: Iterable[str]) -> PhonemeLine:
        ids = [0]
        ranges = []
        for phonemes in spoken:
            known = [self._phoneme_ids[symbol] for symbol in phonemes.strip() if symbol in self._phoneme_ids]
            if known and len(ids) > 1:
                ids.append(self._phoneme_ids[" "])
            sounds = [symbol for symbol in known if symbol > self._last_pause_id]
            ranges.append((len(ids), len(ids) + len(sounds)))
            ids += known
        ids.append(0)
        return PhonemeLine(np.array(ids, np.int64), tuple(ranges))


def _split_lines(spoken: list[str]) -> list[list[str]]:
    parts: list[list[str]] = [[]]
    length = 0
    for phonemes in spoken:
        if parts[-1] and length + len(phonemes) + 1 > MAX_PHONEMES:
            parts.append([])
            length = 0
        parts[-1].append(phonemes[:MAX_PHONEMES])
        length += len(phonemes) + 1
    return parts


def _inference_session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
