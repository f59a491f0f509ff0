"""The front end of a CosyVoice bundle: voices, checked requests and segmenters. It loads no network weights.

It may run in another process than the renderer, which receives a ``PreparedRequest`` for each session.
Reading a bundle imports torch if it is installed.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import numpy as np

from ...models.cosyvoice.checkpoint.bundle import CosyVoiceBundle, open_bundle
from ...models.cosyvoice.config import BLOCK_IDS, CosyVoiceVersion
from ...models.cosyvoice.flow.hop_schedule import prompt_tail_ids
from ...models.cosyvoice.front_end import lm_prompts
from ...models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ...models.cosyvoice.front_end.voice_prompt import VoicePrompt
from ...models.cosyvoice.lm.generation import LmPrompt
from ...models.cosyvoice.lm.sampling import SamplingParameters
from ..backends.base import SlotRequest
from ..errors import BadRequest
from ..reading.languages.multilingual import MULTILINGUAL_VOICE_SCRIPTS, LanguageGrammars
from ..segmenter import Segmenter
from ..stream_request import Delivery, DeliveryMode
from ..voice_kit.policy import requested_sampling
from ..voices.store import VoiceStore
from .bundle_voices import BundleVoices, SpeakerProfile
from .checkpoints import bundle_errors
from .conditioning import FlowPrompt, VoiceConditioning
from .enrolment import digest_voice_encoder, load_voice_encoder
from .generation_segmenter import GenerationSegmenter, VoiceConversionSegmenter
from .policy import CosyVoicePolicy

_MAX_INSTRUCTION_CHARACTERS = 500  # upstream's examples have under 60


@dataclass(frozen=True, slots=True, eq=False)
class PreparedRequest:
    """What the renderer opens a session with."""

    conditioning: VoiceConditioning
    seed: int
    trace_id: str = "-"  # of the stream, for logs


class CosyVoiceFrontEnd:
    """The voices of a bundle, and its requests and segmenters. ``load`` or ``from_bundle`` builds one."""

    # Short, because one second of speech takes several seconds on a small machine.
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
        """Check a checkpoint folder and load its front end; see ``from_bundle``. Raises BundleError."""
        with bundle_errors():
            bundle = open_bundle(folder)
            return cls.from_bundle(bundle, bundle.text_tokenizer(), policy, voices)

    @classmethod
    def from_bundle(
        cls, bundle: CosyVoiceBundle, tokenizer: TextTokenizer, policy: CosyVoicePolicy, voices: Path | None
    ) -> "CosyVoiceFrontEnd":
        """The front end of a checked bundle. voices: folder of a ``VoiceStore``; None for no store."""
        speakers = {
            name: speaker.voice_prompt(tokenizer, bundle.network_config.lm) or speaker.embedding
            for name, speaker in bundle.speakers().items()
        }
        version = bundle.version.value
        store = VoiceStore(voices, version, read_prompt=VoicePrompt.load) if voices else None
        bundle_voices = BundleVoices(
            speakers,
            functools.partial(load_voice_encoder, bundle, policy),
            bundle.languages,
            store,
            functools.partial(digest_voice_encoder, bundle),
            bundle.version,
        )
        return cls(bundle.version, tokenizer, bundle_voices, bundle.sampling, policy)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """A segmenter for the request: clauses for text, a single empty segment for voice conversion.

        Raises BadRequest if text in the request's language cannot be normalized.
        """
        if request.source_speech_ids is not None:
            return VoiceConversionSegmenter()
        clauses = self._languages.clause_normalizer(request.delivery.language, self._tokenizer.marks)
        return GenerationSegmenter(clauses=clauses, scripts=MULTILINGUAL_VOICE_SCRIPTS)

    def prepare_request(self, request: SlotRequest) -> PreparedRequest:
        """Check a request and look up its voice. Raises BadRequest if the voice or the model cannot do it."""
        return PreparedRequest(self._conditioning(request), request.seed, request.trace_id)

    def close(self) -> None:
        """Close the voice store."""
        self.voices.close()

    def _conditioning(self, request: SlotRequest) -> VoiceConditioning:
        profile = request.speaker_profile or self.voices.speaker_profile(request.voice)
        assert isinstance(profile, SpeakerProfile)
        prompt = self._prompt(profile, request.delivery)
        self._check_memory(prompt)
        return VoiceConditioning(
            flow_prompt=_flow_prompt(profile).truncated_to_last(
                self._policy.max_prompt_ids, prompt_tail_ids(self._version, request.speed)
            ),
            prompt=prompt,
            sampling=requested_sampling(self._sampling, request.delivery),
            speed=request.speed,
            source_speech_ids=request.source_speech_ids,
            first_hop=self._first_hop(request.delivery.first_hop),
            expected_pace=profile.pace,
        )

    def _first_hop(self, speech_ids: int | None) -> int | None:
        """Round up to whole blocks, on which chunks must end. Raises BadRequest below 1."""
        if speech_ids is None:
            return None
        if speech_ids < 1:
            raise BadRequest(f"first_hop is {speech_ids}; it must be at least 1")
        return min(-(-speech_ids // BLOCK_IDS) * BLOCK_IDS, self._policy.max_hop)

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
                f"mode {mode}: an instruction goes with {DeliveryMode.INSTRUCT} and no other mode"
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
                f"the instruction has {len(instruction):,} characters; "
                f"at most {_MAX_INSTRUCTION_CHARACTERS} are allowed"
            )
        return lm_prompts.instruct_prompt(self._tokenizer, self._version, instruction)

    def _check_memory(self, prompt: LmPrompt) -> None:
        policy, prompt_text_ids = self._policy, len(prompt.text_ids)
        # A prompt without speech may be spoken itself, so its text counts towards the maximum length.
        spoken_text_ids = policy.max_text_ids + (0 if prompt.speech_ids else prompt_text_ids)
        needed = (
            prompt_text_ids
            + len(prompt.speech_ids)
            + policy.max_text_ids
            + round(policy.length.max_ratio * spoken_text_ids)
        )
        if needed > policy.lm_context_ids:
            raise BadRequest(
                f"the prompt has {prompt_text_ids} text ids and {len(prompt.speech_ids)} speech ids, and a "
                f"sentence with it may need {needed} ids; the model has room for {policy.lm_context_ids}. "
                "Give a shorter transcript or instruction"
            )


def _flow_prompt(profile: SpeakerProfile) -> FlowPrompt:
    prompt = profile.prompt
    if prompt is None:
        return FlowPrompt(
            profile.content_hash, profile.embedding, np.zeros(0, np.int32), np.zeros((80, 0), np.float32)
        )
    return FlowPrompt(profile.content_hash, profile.embedding, prompt.flow_ids, prompt.mel)
