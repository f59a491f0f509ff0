"""What of a CosyVoice bundle needs no networks: its voices, how a session is to sound, how text is cut.

It may live in another process than the networks; between them goes an ``Order``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

import numpy as np

from ...models.cosyvoice.bistream import Prompt
from ...models.cosyvoice.front_end import prompts
from ...models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ...models.cosyvoice.geometry import Version
from ...models.cosyvoice.release.bundle import Bundle, open_bundle
from ...models.cosyvoice.sampling import SamplingParameters
from ..backend import Delivery, Mode, SlotRequest
from ..bundles import bundle_errors
from ..errors import BadRequest
from ..reading.polyglot import Languages
from ..text import GenerationSegmenter, Segmenter
from ..voice_store import VoiceStore
from .policy import CosyVoicePolicy
from .render_runner import Timbre
from .utterance import Manner, NoText
from .voices import BundleVoices, Speaker

_LONGEST_INSTRUCTION = 500  # characters; the released ones have under 60


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A session that was asked for, as far as the networks have to know."""

    manner: Manner
    seed: int


class CosyVoiceFront:
    """The side of a bundle that callers meet."""

    # Short: on a small machine a second of speech takes several.
    warm_up = "Hello."

    def __init__(
        self,
        version: Version,
        tokenizer: TextTokenizer,
        voices: BundleVoices,
        sampling: SamplingParameters,
        policy: CosyVoicePolicy,
    ) -> None:
        self.voices = voices
        self._version, self._tokenizer = version, tokenizer
        self._languages = Languages.load()
        self._sampling, self._policy = sampling, policy

    @classmethod
    def load(cls, folder: Path, policy: CosyVoicePolicy, voices: Path | None = None) -> "CosyVoiceFront":
        """Check a checkpoint folder and load this of it; raises BundleError."""
        with bundle_errors():
            bundle = open_bundle(folder)
            return cls.of(bundle, bundle.text_tokenizer(), policy, voices)

    @classmethod
    def of(
        cls, bundle: Bundle, tokenizer: TextTokenizer, policy: CosyVoicePolicy, voices: Path | None
    ) -> "CosyVoiceFront":
        """Of a bundle that was checked. voices: folder of a ``VoiceStore``."""
        speakers = {name: embedding.numpy() for name, embedding in bundle.speakers().items()}
        library = VoiceStore(voices, bundle.version.value) if voices else None
        known = BundleVoices(speakers, _encoder_of(bundle), bundle.languages, library)
        return cls(bundle.version, tokenizer, known, bundle.sampling, policy)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """Every clause at once, each read in its language; the model keeps the sentence together.

        Raises BadRequest for a language that is not read here.
        """
        if request.speech_ids is not None:
            return NoText()
        return GenerationSegmenter(clauses=self._languages.clauses(request.delivery.language))

    def order(self, request: SlotRequest) -> Order:
        """What the networks have to know; raises BadRequest for what the voice or the model cannot do."""
        return Order(self._manner(request), request.seed)

    def close(self) -> None:
        """Let go of the voices on file."""
        self.voices.close()

    def _manner(self, request: SlotRequest) -> Manner:
        speaker = request.speaker or self.voices.speaker(request.voice)
        assert isinstance(speaker, Speaker)
        prompt = self._prompt(speaker, request.delivery)
        self._check_memory(prompt)
        return Manner(
            timbre=_timbre(speaker).last(self._policy.prompt_ids),
            prompt=prompt,
            sampling=_sampling(self._sampling, request.delivery),
            speed=request.speed,
            source_ids=request.speech_ids,
        )

    def _prompt(self, speaker: Speaker, delivery: Delivery) -> Prompt:
        recording, mode = speaker.prompt, delivery.mode
        if mode is None:
            mode = (
                Mode.INSTRUCT if delivery.instruction else Mode.ZERO_SHOT if recording else Mode.CROSS_LINGUAL
            )
        if bool(delivery.instruction) != (mode is Mode.INSTRUCT):
            raise BadRequest(f"mode {mode}: an instruction goes with {Mode.INSTRUCT}, and with nothing else")
        match mode:
            case Mode.INSTRUCT:
                return self._instructed(delivery.instruction)
            case Mode.CROSS_LINGUAL:
                return prompts.without_words(self._tokenizer, self._version)
            case Mode.ZERO_SHOT:
                if recording is None:
                    raise BadRequest(f"mode {mode} needs a voice with a recording; this one is the bundle's")
                return prompts.zero_shot(self._tokenizer, recording)
            case _:
                assert_never(mode)

    def _instructed(self, instruction: str) -> Prompt:
        if len(instruction) > _LONGEST_INSTRUCTION:
            raise BadRequest(
                f"the instruction has {len(instruction):,} characters; at most {_LONGEST_INSTRUCTION} may be"
            )
        return prompts.instructed(self._tokenizer, self._version, instruction)

    def _check_memory(self, prompt: Prompt) -> None:
        policy, prompted = self._policy, len(prompt.text_ids)
        # What is spoken of a prompt without speech is bounded by its text as well.
        voiced = policy.most_text_ids + (0 if prompt.speech_ids else prompted)
        needed = prompted + len(prompt.speech_ids) + policy.most_text_ids + round(policy.length.most * voiced)
        if needed > policy.memory_ids:
            raise BadRequest(
                f"the prompt has {prompted} text ids and {len(prompt.speech_ids)} speech ids, and might need "
                f"{needed}; the model remembers {policy.memory_ids}. Give a shorter transcript or instruction"
            )


def _sampling(bundle: SamplingParameters, delivery: Delivery) -> SamplingParameters:
    """The bundle's, but for what the delivery says."""
    names = ("temperature", "top_p", "top_k", "repetition_window", "repetition_threshold")
    wanted = {name: value for name in names if (value := getattr(delivery, name)) is not None}
    try:
        return replace(bundle, **wanted)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _timbre(speaker: Speaker) -> Timbre:
    prompt = speaker.prompt
    if prompt is None:
        return Timbre(
            speaker.content, speaker.embedding, np.zeros(0, np.int32), np.zeros((80, 0), np.float32)
        )
    return Timbre(speaker.content, speaker.embedding, prompt.flow_ids, prompt.mel)


def _encoder_of(bundle: Bundle) -> Callable[[], VoiceEncoder]:
    return lambda: VoiceEncoder.load(
        bundle.speaker_encoder,
        bundle.speech_tokenizer,
        bundle.version,
        bundle.recipe.mel_highest_hz,
        bundle.geometry.lm.speech_codes,
    )
