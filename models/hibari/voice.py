"""The packaged voice: hibari-tts 0.2.1 ("heart", US English, 24 kHz), streamed, trimmed and levelled.

Words in, samples out, one line (a clause or a sentence) at a time:

    phonemizer.phonemize(words) -> PhonemeLine     phoneme ids, and the ids of each word
    encode(line) -> EncodedLine                    hidden frames, f0 and word times, in one call for the line
    encode_between(line, before, after)            the same, of a line in the middle of a sentence
    init_state, step -> samples                    decoder and vocoder, any number of frames in a step

A listener at 8 kHz hears a smaller decoder, which was made for telephones; all others, the voice's own.

The model as shipped begins with 250-350 ms of silence, ends with 340-580 ms, and speaks near -26 dBFS. Here
speech starts within 5 ms, ends without silence (the caller adds the pause) and has an active speech level of
-20 dBFS. Text normalization is not included: words are spelled as they are spoken.

Source: hibari-tts 0.2.1 (Apache-2.0).
"""

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from ..devices.onnx_providers import CPU, OnnxDevice
from ..devices.onnx_sessions import (
    OnnxSessions,
    optimized_graph_options,
    options_that_free_memory,
    session_options,
)
from ..phonemes.english_ipa import SpelledWord
from ..phonemes.timed_sounds import TimedSounds, earlier, timed_sounds
from ..signal.level import limit
from ..signal.room_tone import RoomTone
from . import harmonic_vocoder
from .decoder import LOOKAHEAD_FRAMES, Contexts, Decoder, FullBandDecoder, TelephoneDecoder
from .harmonic_vocoder import DELAY_FRAMES, FRAME_S, HOP, Band, HarmonicVocoderState
from .phonemizer import ASSETS, MAX_PHONEMES, PhonemeLine, Phonemizer
from .prepared_files import TELEPHONE_WEIGHTS, PreparedFiles, unoptimized_graphs

logger = logging.getLogger(__name__)

_MAX_PHONEMES_BEFORE = 80  # of a sentence, before the line that is rendered

# From the active speech level (ITU-T P.56) as shipped, -25.6 dBFS, to -20 dBFS; a test measures it.
_GAIN = np.float32(10 ** (5.6 / 20))
_FRAMES_PER_UNIT = 2  # the model's durations count units of 25 ms
_ONSET_MARGIN_FRAMES = 12  # speech may begin this much before the nominal time of the first phoneme
# The model gives most of a pause to the phoneme before it: a word ends at most 150 ms into its last phoneme,
# less if it is fast.
_MAX_PHONEME_FRAMES = 12
# Sounds are heard this much before the nominal time of their phonemes, at any speed: at 1.0, 92 % of the
# windows of 10 ms of hisses and vowels lie in their phonemes then, and 75 % without it.
_HEARD_BEFORE_S = 0.045
_AUDIBLE = np.float32(10 ** (-50 / 20))  # -50 dBFS
# A level is measured over 1.25 ms. Such a window is a whole number of samples at every rate.
_WINDOWS_PER_FRAME = 10
_LEAD_WINDOWS = 3  # 3.75 ms kept before the first audible window
_FADE_WINDOWS = 8  # 10 ms
_DECAY_WINDOWS = 40  # 50 ms
_LAST_FRAMES = 2 * LOOKAHEAD_FRAMES  # the silence after a line is cut in one step
_AROUND_PAUSE = ("on the other hand", "the larger model lasts for years")

Float = NDArray[np.float32]

_NO_PHONEMES = PhonemeLine(np.zeros(2, np.int64), ())


@dataclass(frozen=True, slots=True)
class EncodedLine:
    """A line with its timing, ready to be rendered. Frames are 12.5 ms."""

    hidden: Float  # (1, 130, F) float32
    f0: Float  # (F,) float32, Hz
    words: tuple[tuple[int, int], ...]  # (first, stop) frame of each word
    onset: int  # the first frame in which speech may be audible
    frames: int  # that are rendered, at most F; those after it are seen by the decoder only
    phonemes: tuple[TimedSounds[int], ...] = ()  # of each word, in frames


@dataclass(frozen=True, slots=True)
class HibariRenderState:
    """Memory of a line's rendering between steps."""

    decoder: Decoder
    decoded_frames: int
    contexts: Contexts  # of the decoder's layers
    vocoder: HarmonicVocoderState
    early_frames: int  # of the next spectra, those before the onset
    withheld: Float  # the last 3.75 ms of samples, while none has been audible
    trimmed_lead_samples: int | None  # leading silence that was cut; None while no sample was audible
    samples: int  # rendered so far
    trailing_quiet_samples: int  # of these, at the end below the audible level

    @property
    def sample_rate(self) -> int:
        """Of the samples, Hz."""
        return self.vocoder.band.sample_rate

    @property
    def window(self) -> int:
        """Samples over which a level is measured."""
        return self.vocoder.band.hop // _WINDOWS_PER_FRAME


class HibariVoice:
    """The packaged voice: weights and pure steps. Each worker thread has an instance of its own.

    Args:
        encoder: its session.
        decoder: for all frequencies.
        telephone_decoder: of listeners at 8 kHz.
        phonemizer: of its words.
    """

    def __init__(
        self,
        encoder: onnxruntime.InferenceSession,
        decoder: Decoder,
        telephone_decoder: Decoder,
        phonemizer: Phonemizer,
    ) -> None:
        self.phonemizer = phonemizer
        self._encoder, self._decoder, self._telephone_decoder = encoder, decoder, telephone_decoder
        self._encoder_run = options_that_free_memory(encoder)
        self._noise = harmonic_vocoder.noise_table()

    @classmethod
    def load(cls, count: int = 1, device: OnnxDevice = CPU) -> "list[HibariVoice]":
        """Load the voice from the installed package, for ``count`` threads.

        They share the phonemizer and the encoder's session, which runs once a line and may run on several
        threads at once; opening one takes 0.2 s. Sessions are opened on other threads while this one decodes
        the lexicons. Raises HibariGraphMismatchError for another version of the package.
        """
        files, sessions = PreparedFiles.load(ASSETS), OnnxSessions(device)
        if device.is_cpu:
            graphs, encoder_options = files.graphs(), optimized_graph_options()
        else:
            graphs, encoder_options = unoptimized_graphs(ASSETS), session_options()
        with ThreadPoolExecutor(2) as threads:
            encoder = threads.submit(sessions.open, graphs[0], encoder_options)
            # Its session optimizes it: how it lays out its convolutions depends on the processor.
            decoders = [threads.submit(_open_decoders, sessions, *graphs[1:]) for _ in range(count)]
            phonemizer = Phonemizer(files)
        if graphs[2] is None:
            message = "%s is missing or damaged; the decoder for all frequencies speaks to telephones"
            logger.warning(message, TELEPHONE_WEIGHTS)
        return [cls(encoder.result(), *pair.result(), phonemizer) for pair in decoders]

    def encode(self, line: PhonemeLine, speed: float = 1.0) -> EncodedLine:
        """Run the encoder on a line. speed: 0.5 (slow) to 2.0 (fast)."""
        feed = {"ids": line.ids[None], "speed": np.array([speed * _correction(speed)], np.float32)}
        hidden, durations, f0 = self._encoder.run(None, feed, self._encoder_run)
        ends = np.cumsum(durations.reshape(-1)).astype(int) * _FRAMES_PER_UNIT
        starts = np.concatenate([[0], ends[:-1]])
        sound_ends = np.minimum(ends, starts + round(_MAX_PHONEME_FRAMES / speed))
        words = tuple(
            (int(starts[first]), int(sound_ends[stop - 1] if stop > first else starts[first]))
            for first, stop in line.words
        )
        onset = max(0, int(ends[0]) - _ONSET_MARGIN_FRAMES)
        signs = [self.phonemizer.ipa.get(id, "") for id in line.ids.tolist()]
        phonemes = tuple(
            timed_sounds(signs[first:stop], starts[first:stop].tolist(), sound_ends[first:stop].tolist())
            for first, stop in line.words
        )
        return EncodedLine(hidden, f0[0], words, onset, hidden.shape[2], phonemes)

    def encode_between(
        self, line: PhonemeLine, before: PhonemeLine | None, after: PhonemeLine | None, speed: float = 1.0
    ) -> EncodedLine:
        """Run the encoder on a line between the lines before and after it in the same sentence.

        Only ``line`` is rendered from the result, with the melody that it has in the sentence: encoded by
        itself, a clause ends about 4 semitones lower, as a sentence does, and begins 3 higher.
        """
        before, after = _last_words(before or _NO_PHONEMES), after or _NO_PHONEMES
        joined = _join([part for part in (before, line, after) if part.words], self.phonemizer.space_id)
        if len(joined.ids) - 2 > MAX_PHONEMES:
            return self.encode(line, speed)
        encoded = self.encode(joined, speed)
        first, stop = len(before.words), len(before.words) + len(line.words)
        words = encoded.words
        onset, frames = encoded.onset, encoded.frames
        if first:
            onset = _cut_frame(words, first)
        if stop < len(words):
            frames = _cut_frame(words, stop)
        skipped = max(0, onset - LOOKAHEAD_FRAMES) // _FRAMES_PER_UNIT * _FRAMES_PER_UNIT if first else 0
        return EncodedLine(
            encoded.hidden[:, :, skipped:],
            encoded.f0[skipped:],
            tuple((start - skipped, end - skipped) for start, end in words[first:stop]),
            onset - skipped,
            frames - skipped,
            earlier(encoded.phonemes[first:stop], skipped),
        )

    def room_tone(self) -> RoomTone:
        """The tone of a pause that the voice makes inside a line; at the ends of a line it makes none."""
        before, after = ([SpelledWord(word) for word in part.split()] for part in _AROUND_PAUSE)
        before[-1] = replace(before[-1], punctuation=",")
        (words,) = self.phonemizer.phonemize([*before, *after])
        line = self.encode(words)
        decoder = self._decoder
        spectrum, _ = decoder.decode(line.hidden, decoder.start(0).contexts, at_edge=True)
        state = harmonic_vocoder.init_state()
        samples, _ = harmonic_vocoder.step(decoder.reader(spectrum), line.f0, state, self._noise)
        return RoomTone.like(_longest_pause(samples * _GAIN, HOP // _WINDOWS_PER_FRAME))

    def init_state(self, line: EncodedLine, noise_row: int, band: Band | None = None) -> HibariRenderState:
        """The state before the first step.

        noise_row: of the noise table, to begin with; 0 to NOISE_ROWS - 1. band: None for all frequencies,
        24 kHz.
        """
        vocoder = harmonic_vocoder.init_state(line.onset, noise_row, band)
        is_telephone = vocoder.band == harmonic_vocoder.TELEPHONE_BAND
        decoder = self._telephone_decoder if is_telephone else self._decoder
        start = decoder.start(line.onset)
        return HibariRenderState(
            decoder=decoder,
            decoded_frames=start.frame,
            contexts=start.contexts,
            vocoder=vocoder,
            early_frames=line.onset - start.spectrum_frame,
            withheld=np.zeros(0, np.float32),
            trimmed_lead_samples=None,
            samples=0,
            trailing_quiet_samples=0,
        )

    def step(
        self, line: EncodedLine, state: HibariRenderState, frames: int
    ) -> tuple[Float, HibariRenderState]:
        """Render ``frames`` more frames of speech: (N,) float32 samples, |x| < 1, and the next state.

        The samples are at ``state.sample_rate``.

        The first step also decodes the lookahead of 27 or 14 frames, and as much of the leading silence as
        the first frame depends on. The last step is the one that reaches the end (``is_finished``). N is 0 as
        long as no sample is audible.

            decoded frames    |leading silence|  frames  |2|   27    |
            samples out                       |  frames  |    vocoder's delay, decoder's lookahead
        """
        decoder, first, stop = state.decoder, state.decoded_frames, _next_stop(line, state, frames)
        last = stop == decoded_frames(line, decoder)
        at_edge = stop == line.hidden.shape[2]
        spectrum, contexts = decoder.decode(line.hidden[:, :, first:stop], state.contexts, at_edge=at_edge)
        spectrum = spectrum[state.early_frames :][: line.frames - state.vocoder.frame]
        samples, vocoder_state = harmonic_vocoder.step(
            decoder.reader(spectrum), line.f0, state.vocoder, self._noise
        )
        if last:
            samples = np.concatenate([samples, harmonic_vocoder.finish(vocoder_state)])
        state = replace(state, decoded_frames=stop, contexts=contexts, vocoder=vocoder_state, early_frames=0)
        return _trim(limit(samples * _GAIN), state, last)


def _open_decoders(
    sessions: OnnxSessions, graph: bytes, telephone_graph: bytes | None
) -> tuple[Decoder, Decoder]:
    """The decoder for all frequencies, and the one for telephones: the same, if there is none."""
    decoder = FullBandDecoder(sessions.open(graph))
    if telephone_graph is None:
        return decoder, decoder
    return decoder, TelephoneDecoder(sessions.open(telephone_graph))


def _correction(speed: float) -> float:
    """Factor of a slow speed: a sound that dies away after its last phoneme takes longer than its share."""
    return 1 + 0.05 * min(0.3, max(0.0, 1 - speed))


def decoded_frames(line: EncodedLine, decoder: Decoder) -> int:
    """Number of frames of the line that the decoder sees, whole rows."""
    seen = line.frames + decoder.lookahead_frames
    return min(seen + -seen % decoder.row_frames, int(line.hidden.shape[2]))


def is_finished(line: EncodedLine, state: HibariRenderState) -> bool:
    """Whether every frame has been rendered."""
    return state.decoded_frames == decoded_frames(line, state.decoder)


def lead_s(state: HibariRenderState) -> float:
    """What the time of a frame has more than the time at which its sound is heard, in seconds.

    Valid after the first audible step.
    """
    return (state.trimmed_lead_samples or 0) / state.sample_rate + _HEARD_BEFORE_S


def word_times(line: EncodedLine, state: HibariRenderState) -> list[tuple[float, float]]:
    """(start, stop) of each word, in seconds from the first sample. Valid after the first audible step."""
    lead = lead_s(state)
    return [(max(0.0, first * FRAME_S - lead), max(0.0, stop * FRAME_S - lead)) for first, stop in line.words]


def _next_stop(line: EncodedLine, state: HibariRenderState, frames: int) -> int:
    """The frame at which the next step stops decoding. The last one renders at least ``_LAST_FRAMES``."""
    decoder = state.decoder
    stop = state.decoded_frames + frames
    if state.vocoder.frame == line.onset:
        stop = line.onset + frames + decoder.lookahead_frames + DELAY_FRAMES
    stop += -stop % decoder.row_frames
    end = decoded_frames(line, decoder)
    return end if end - stop < _LAST_FRAMES - decoder.lookahead_frames else stop


def _last_words(line: PhonemeLine) -> PhonemeLine:
    """The last words of a line, of at most 80 phonemes: enough for the melody of what follows."""
    kept = [word for word in line.words if word[0] >= len(line.ids) - 1 - _MAX_PHONEMES_BEFORE]
    first = kept[0][0] if kept else len(line.ids) - 1
    ids = np.concatenate([line.ids[:1], line.ids[first:]])
    return PhonemeLine(ids, tuple((start - first + 1, stop - first + 1) for start, stop in kept))


def _join(lines: Sequence[PhonemeLine], space_id: int) -> PhonemeLine:
    """One line of several, with spaces between them."""
    ids: list[int] = [0]
    words: list[tuple[int, int]] = []
    for line in lines:
        if words:
            ids.append(space_id)
        offset = len(ids) - 1  # instead of the line's first id
        words += [(first + offset, stop + offset) for first, stop in line.words]
        ids += line.ids[1:-1].tolist()
    return PhonemeLine(np.array([*ids, 0], np.int64), tuple(words))


def _cut_frame(words: Sequence[tuple[int, int]], index: int) -> int:
    """The frame between two words at which the earlier ends and the later begins."""
    end, start = words[index - 1][1], words[index][0]
    return start - min(_ONSET_MARGIN_FRAMES, max(0, start - end) // 2)


def _trim(samples: Float, state: HibariRenderState, last: bool) -> tuple[Float, HibariRenderState]:
    """Cut the silence before the first and, if ``last``, after the last audible sample, with short fades."""
    if state.trimmed_lead_samples is None:
        samples, state = _trim_lead(samples, state, last)
    audible = _audible_windows(samples, state.window)
    trailing_quiet = len(samples) + state.trailing_quiet_samples
    if len(audible):
        trailing_quiet = len(samples) - (int(audible[-1]) + 1) * state.window
    if last:
        samples, trailing_quiet = _trim_tail(samples, trailing_quiet, _FADE_WINDOWS * state.window)
    return samples, replace(
        state, samples=state.samples + len(samples), trailing_quiet_samples=max(0, trailing_quiet)
    )


def _trim_lead(samples: Float, state: HibariRenderState, last: bool) -> tuple[Float, HibariRenderState]:
    """Drop samples up to 3.75 ms before the first audible window; all, if there is none yet."""
    samples = np.concatenate([state.withheld, samples])
    audible = _audible_windows(samples, state.window)
    lead = _LEAD_WINDOWS * state.window
    if not len(audible):
        return samples[:0], replace(state, withheld=samples[-lead:])
    cut = max(0, int(audible[0]) * state.window - lead)
    kept = samples[cut:]
    kept[:lead] *= np.linspace(0, 1, len(kept[:lead]), dtype=np.float32)
    # The last step has also given the frames that the vocoder withholds.
    rendered_to = (state.vocoder.frame - (0 if last else DELAY_FRAMES)) * state.vocoder.band.hop
    return kept, replace(state, withheld=samples[:0], trimmed_lead_samples=rendered_to - len(kept))


def _trim_tail(samples: Float, trailing_quiet: int, fade_samples: int) -> tuple[Float, int]:
    """Keep ``fade_samples`` after the last audible window and fade them out."""
    surplus = min(len(samples), max(0, trailing_quiet - fade_samples))
    kept = samples[: len(samples) - surplus].copy()
    fade = kept[-fade_samples:]
    fade *= np.linspace(1, 0, len(fade), dtype=np.float32)
    return kept, trailing_quiet - surplus


def _longest_pause(samples: Float, window: int) -> Float:
    """The longest part below the audible level that sound surrounds, without the decay of the sounds."""
    audible = _audible_windows(samples, window)
    at = int(np.diff(audible).argmax())
    first, stop = int(audible[at]) + 1 + _DECAY_WINDOWS, int(audible[at + 1]) - _DECAY_WINDOWS
    return samples[first * window : stop * window]


def _audible_windows(samples: Float, window: int) -> NDArray[np.int64]:
    """Indices of the windows of ``window`` samples whose level exceeds -50 dBFS."""
    whole = len(samples) // window
    windows = samples[: whole * window].reshape(whole, window)
    return np.flatnonzero(np.mean(np.square(windows), axis=1) > _AUDIBLE**2)
