"""One XTTS session on the host: sentences, counters and random numbers. No tensors, but latents it passes on.

segment      |Well, who is it?  pause|
speech ids   |.......................|        one generation, with its whole text known from the start
chunks       |10|--24--|--24--|-rest-|
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...models.decoding.uniforms import seeded_uniforms
from ...models.xtts.config import XTTS_IDS_PER_S, XttsGptConfig
from ...models.xtts.sampling import PREFIX_ID, XttsSampling, XttsSamplingInputs, sample_speech_ids
from ...models.xtts.voice import XttsVoice
from ..backends.base import StepResult
from ..chunk import SAMPLE_RATE, Word
from ..segmenter import Segment
from ..voice_kit.word_timing import SpeakingPace, WordTimeEstimator, words_in_stream
from ..voices.languages import primary_language
from .gpt_runner import DecodedColumn, Latent, XttsGptInput, XttsGptTurn
from .policy import XttsPolicy
from .render_runner import XttsRenderState
from .text_encoder import EncodedPiece, XttsTextEncoder

Samples = NDArray[np.float32]

SAMPLES_PER_XTTS_ID = SAMPLE_RATE / XTTS_IDS_PER_S
_FADE_SAMPLES = SAMPLE_RATE // 200  # 5 ms, of speech that the bound on its length ends


@dataclass(frozen=True, slots=True, eq=False)
class XttsConditioning:
    """How a session sounds; fixed when it opens."""

    voice: XttsVoice
    language: str | None  # base code of the text; None: by its script
    sampling: XttsSampling
    speed: float  # 0.5 to 2.0
    first_hop: int | None = None  # speech ids of the first chunk; None: the policy's


class XttsSentence:
    """One generation: its text, speech ids, and latents that are not rendered yet."""

    def __init__(
        self, piece: EncodedPiece, voice: XttsVoice, speed: float, max_ids: int, pace: SpeakingPace
    ) -> None:
        self.piece, self.speed = piece, speed
        self.gpt_input = XttsGptInput(voice, None, piece.text_ids)
        self.render_state: XttsRenderState | None = None
        self.ids: list[int] = []
        self.latents: list[Latent] = []
        self.finished = self.was_cut = False
        self.rendered_ids = self.samples = 0
        self._max_ids = max_ids
        self._word_times = WordTimeEstimator(XTTS_IDS_PER_S, pace)
        self._word_times.add(piece.segment.words, len(piece.text_ids))
        self._word_times.note_text_given(len(piece.text_ids), 0)

    def take(self, latent: Latent, id: int, stop_id: int) -> None:
        """Add a decoded id and the latent that it was chosen from, which is spoken even for the stop id."""
        self.ids.append(id)
        self.latents.append(latent)
        self.was_cut = id != stop_id and len(self.ids) >= self._max_ids
        self.finished = id == stop_id or self.was_cut

    def take_words(self, start_sample: int) -> Iterator[Word]:
        """Words that begin in the samples so far. start_sample: of the sentence, in the stream."""
        until = self.samples * self.speed / SAMPLES_PER_XTTS_ID
        total = len(self.ids) if self.finished else None
        is_rendered = self.finished and not self.latents
        timed = self._word_times.take_words_until(
            len(self.ids) if is_rendered else until, total, len(self.ids)
        )
        # Ids are slightly longer than their samples, which end with a whole frame of the vocoder.
        latest_s = (start_sample + self.samples) / SAMPLE_RATE
        return words_in_stream(timed, start_sample, XTTS_IDS_PER_S * self.speed, latest_s)


class XttsSession:
    """The sentences of one session, one after the other.

    Attributes:
        sentence: the current one.
    """

    def __init__(
        self,
        conditioning: XttsConditioning,
        seed: int,
        policy: XttsPolicy,
        config: XttsGptConfig,
        encoder: XttsTextEncoder,
    ) -> None:
        self.conditioning = conditioning
        self.sentence: XttsSentence | None = None
        self._draws = seeded_uniforms(seed)
        self._policy, self._config, self._encoder = policy, config, encoder
        self._pieces: deque[EncodedPiece] = deque()
        self._rate = 1.0
        self._pace = SpeakingPace()
        self._samples = self._speech_ids = 0

    def begin(self, segment: Segment, pause_s: float) -> None:
        """Queue the pieces of a segment. Raises ValueError for text that cannot be encoded."""
        self._rate = segment.prosody.speed
        pause_s *= self._policy.pause_share
        language = primary_language(segment.language) if segment.language else self.conditioning.language
        self._pieces += self._encoder.encode(segment, language, pause_s)
        self._begin_sentence()

    @property
    def is_chunk_ready(self) -> bool:
        """Whether the latents of the next chunk are complete."""
        sentence = self.sentence
        return sentence is not None and (sentence.finished or len(sentence.latents) >= self._hop(sentence))

    @property
    def needs_prefill(self) -> bool:
        """Whether columns of the current sentence are left to prefill."""
        return self.sentence is not None and not self.sentence.gpt_input.is_prefilled

    @property
    def decode_turn(self) -> XttsGptTurn | None:
        """The session's part in a decode step; None if it needs no speech id now."""
        sentence = self.sentence
        if sentence is None or self.needs_prefill or self.is_chunk_ready:
            return None
        return XttsGptTurn(sentence.ids[-1], len(sentence.ids))

    def choose(self, decoded: DecodedColumn) -> None:
        """Sample the next speech id. Raises ValueError if its scores are not numbers."""
        sentence = self.sentence
        assert sentence is not None
        seen = (PREFIX_ID, self._config.start_speech_id, *sentence.ids)
        inputs = XttsSamplingInputs(seen, self._draws, self.conditioning.sampling)
        [id] = sample_speech_ids(decoded.logits[None], [inputs])
        sentence.take(decoded.latent, id, self._config.stop_speech_id)

    def take_latents(self) -> Sequence[Latent]:
        """The latents of the next chunk."""
        assert self.sentence is not None
        latents, self.sentence.latents = self.sentence.latents, []
        return latents

    def empty_result(self) -> StepResult:
        """The result of a step that rendered nothing."""
        return StepResult(np.zeros(0, np.float32), (), segment_done=self.sentence is None)

    def render_result(self, samples: Samples) -> StepResult:
        """The result of a step that rendered the next chunk to these samples."""
        sentence = self.sentence
        assert sentence is not None
        start_sample = self._samples - sentence.samples
        sentence.samples += len(samples)
        words = tuple(sentence.take_words(start_sample))
        speech_ids = self._speech_ids + sentence.rendered_ids, self._speech_ids + len(sentence.ids)
        sentence.rendered_ids = len(sentence.ids)
        segment = sentence.piece.segment
        if sentence.finished:
            samples = _ended(samples, sentence)
            self._speech_ids += len(sentence.ids)
            self._begin_sentence()
        self._samples += len(samples)
        text = (segment.start, segment.stop)
        return StepResult(samples, words, self.sentence is None, speech_ids=speech_ids, text=text)

    def _begin_sentence(self) -> None:
        self.sentence = None
        if self._pieces:
            piece = self._pieces.popleft()
            max_ids = self._policy.length.max_ids(piece.usual_s, self._config.max_new_ids)
            speed = min(2.0, max(0.5, self.conditioning.speed * self._rate))
            self.sentence = XttsSentence(piece, self.conditioning.voice, speed, max_ids, self._pace)

    def _hop(self, sentence: XttsSentence) -> int:
        if self._samples or sentence.rendered_ids:
            return self._policy.max_hop
        return self.conditioning.first_hop or self._policy.first_hop


def _ended(samples: Samples, sentence: XttsSentence) -> Samples:
    """The last samples of a sentence, faded out if it was cut, and the pause after it."""
    if sentence.was_cut:
        fade = np.linspace(1, 0, min(_FADE_SAMPLES, len(samples)), dtype=np.float32)
        samples = samples.copy()
        samples[len(samples) - len(fade) :] *= fade
    return np.concatenate([samples, np.zeros(round(sentence.piece.pause_s * SAMPLE_RATE), np.float32)])
