"""What of a CosyVoice bundle needs no networks: its voices, how a session is to sound, how text is cut.

It may live in another process than the networks; between them goes an ``PreparedRequest``.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

import numpy as np

from ...models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from ...models.cosyvoice.config import CosyVoiceVersion
from ...models.cosyvoice.front_end import lm_prompts
from ...models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ...models.cosyvoice.lm.generation import LmPrompt
from ...models.cosyvoice.lm.sampling import SamplingParameters
from ..backends.base import Delivery, DeliveryMode, SlotRequest
from ..bundles import bundle_errors
from ..errors import BadRequest
from ..generation_segmenter import GenerationSegmenter
from ..reading.multilingual.clause_normalizer import LanguageGrammars
from ..segmenter import Segmenter
from ..voices.store import VoiceStore
from .bundle_voices import BundleVoices, SpeakerProfile
from .conditioning import FlowPrompt, VoiceConditioning
from .policy import CosyVoicePolicy
from .voice_conversion import VoiceConversionSegmenter

_MAX_INSTRUCTION_CHARACTERS = 500  # characters; the released ones have under 60


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRequest:
    """A session that was asked for, as far as the networks have to know."""

    conditioning: VoiceConditioning
    seed: int


class CosyVoiceFrontEnd:
    """The side of a bundle that callers meet."""

    # Short: on a small machine a second of speech takes several.
    warm_up_text = "Hello."

    def __init__(
        self,
        version: CosyVoiceVersion,
        tokenizer: TextTokenizer,
        voices: BundleVoices,
        sampling: SamplingParameters,
        policy: CosyVoicePolicy,
    ) -> None:
        self.voices = voices
        self._version, self._tokenizer = version, tokenizer
        self._languages = LanguageGrammars.load()
        self._sampling, self._policy = sampling, policy

    @classmethod
    def load(cls, folder: Path, policy: CosyVoicePolicy, voices: Path | None = None) -> "CosyVoiceFrontEnd":
        """Check a checkpoint folder and load this of it; raises BundleError."""
        with bundle_errors():
            bundle = open_bundle(folder)
            return cls.from_bundle(bundle, bundle.text_tokenizer(), policy, voices)

    @classmethod
    def from_bundle(
        cls, bundle: CosyVoiceBundle, tokenizer: TextTokenizer, policy: CosyVoicePolicy, voices: Path | None
    ) -> "CosyVoiceFrontEnd":
        """Of a bundle that was checked. voices: folder of a ``VoiceStore``."""
        speakers = {name: embedding.numpy() for name, embedding in bundle.speakers().items()}
        store = VoiceStore(voices, bundle.version.value) if voices else None
        bundle_voices = BundleVoices(speakers, _encoder_loader(bundle), bundle.languages, store)
        return cls(bundle.version, tokenizer, bundle_voices, bundle.sampling, policy)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """Every clause at once, each read in its language; the model keeps the sentence together.

        Raises BadRequest for a language that is not read here.
        """
        if request.source_speech_ids is not None:
            return VoiceConversionSegmenter()
        return GenerationSegmenter(clauses=self._languages.clause_normalizer(request.delivery.language))

    def prepare_request(self, request: SlotRequest) -> PreparedRequest:
        """What the networks have to know; raises BadRequest for what the voice or the model cannot do."""
        return PreparedRequest(self._conditioning(request), request.seed)

    def close(self) -> None:
        """Let go of the voices on file."""
        self.voices.close()

    def _conditioning(self, request: SlotRequest) -> VoiceConditioning:
        profile = request.speaker_profile or self.voices.speaker_profile(request.voice)
        assert isinstance(profile, SpeakerProfile)
        prompt = self._prompt(profile, request.delivery)
        self._check_memory(prompt)
        return VoiceConditioning(
            flow_prompt=_flow_prompt(profile).truncated_to_last(self._policy.max_prompt_ids),
            prompt=prompt,
            sampling=_sampling(self._sampling, request.delivery),
            speed=request.speed,
            source_speech_ids=request.source_speech_ids,
        )

    def _prompt(self, profile: SpeakerProfile, delivery: Delivery) -> LmPrompt:
        recording, mode = profile.prompt, delivery.mode
        if mode is None:
            mode = (
                DeliveryMode.INSTRUCT
                if delivery.instruction
                else DeliveryMode.ZERO_SHOT
                if recording
                else DeliveryMode.CROSS_LINGUAL
            )
        if bool(delivery.instruction) != (mode is DeliveryMode.INSTRUCT):
            raise BadRequest(
                f"mode {mode}: an instruction goes with {DeliveryMode.INSTRUCT}, and with nothing else"
            )
        match mode:
            case DeliveryMode.INSTRUCT:
                return self._instructed(delivery.instruction)
            case DeliveryMode.CROSS_LINGUAL:
                return lm_prompts.cross_lingual_prompt(self._tokenizer, self._version)
            case DeliveryMode.ZERO_SHOT:
                if recording is None:
                    raise BadRequest(f"mode {mode} needs a voice with a recording; this one is the bundle's")
                return lm_prompts.zero_shot_prompt(self._tokenizer, recording)
            case _:
                assert_never(mode)

    def _instructed(self, instruction: str) -> LmPrompt:
        if len(instruction) > _MAX_INSTRUCTION_CHARACTERS:
            raise BadRequest(
                f"the instruction has {len(instruction):,} characters; at most {_MAX_INSTRUCTION_CHARACTERS} may be"
            )
        return lm_prompts.instruct_prompt(self._tokenizer, self._version, instruction)

    def _check_memory(self, prompt: LmPrompt) -> None:
        policy, prompt_text_ids = self._policy, len(prompt.text_ids)
        # What is spoken of a prompt without speech is bounded by its text as well.
        spoken_text_ids = policy.max_text_ids + (0 if prompt.speech_ids else prompt_text_ids)
        needed = (
            prompt_text_ids
            + len(prompt.speech_ids)
            + policy.max_text_ids
            + round(policy.length.max_ratio * spoken_text_ids)
        )
        if needed > policy.lm_context_ids:
            raise BadRequest(
                f"the prompt has {prompt_text_ids} text ids and {len(prompt.speech_ids)} speech ids, and might need "
                f"{needed}; the model remembers {policy.lm_context_ids}. Give a shorter transcript or instruction"
            )


def _sampling(bundle: SamplingParameters, delivery: Delivery) -> SamplingParameters:
    """The bundle's, but for what the delivery says."""
    names = ("temperature", "top_p", "top_k", "repetition_window", "repetition_threshold")
    wanted = {name: value for name in names if (value := getattr(delivery, name)) is not None}
    try:
        return replace(bundle, **wanted)
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _flow_prompt(profile: SpeakerProfile) -> FlowPrompt:
    prompt = profile.prompt
    if prompt is None:
        return FlowPrompt(
            profile.content_hash, profile.embedding, np.zeros(0, np.int32), np.zeros((80, 0), np.float32)
        )
    return FlowPrompt(profile.content_hash, profile.embedding, prompt.flow_ids, prompt.mel)


def _encoder_loader(bundle: CosyVoiceBundle) -> Callable[[], VoiceEncoder]:
    return lambda: VoiceEncoder.load(
        bundle.speaker_encoder,
        bundle.speech_tokenizer,
        bundle.version,
        bundle.yaml_config.mel_max_hz,
        bundle.network_config.lm.codebook_size,
    )
