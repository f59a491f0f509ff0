"""CosyVoice 2 or 3 as a backend: many sessions' rows and sentences, two kinds of work.

    step    DECODE   a few speech ids for each session whose next chunk lacks some
            RENDER   flow and vocoder for each session whose next chunk is complete

A step is one small quantum of either kind for each turn, so that a cancelled session is gone soon. Sessions
are on the host (``utterance``), tensors with the runners; one worker.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import assert_never

import numpy as np

from ...models.cosyvoice.bistream import (
    Bistream,
    CompatBistream,
    CompatOneShot,
    Generation,
    OneShot,
    Prompt,
    SpeechIds,
)
from ...models.cosyvoice.decoding import Turn as LmTurn
from ...models.cosyvoice.front_end import prompts
from ...models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ...models.cosyvoice.front_end.voice_encoder import VoiceEncoder
from ...models.cosyvoice.geometry import Version
from ...models.cosyvoice.networks import Networks, load_networks
from ...models.cosyvoice.release.bundle import Bundle, BundleFault, open_bundle
from ...models.cosyvoice.sampling import SamplingParameters
from ...models.cosyvoice.silent_ids import SilentFilter
from ..backend import Delivery, Mode, Rendered, SlotRequest, Stage, Turn
from ..errors import BadRequest, BundleError
from ..reading.polyglot import Languages, canonical
from ..text import GenerationSegmenter, Segmenter
from ..voice_store import VoiceStore
from .lm_runner import LmRunner
from .policy import CosyVoicePolicy, Interleave
from .render_runner import RenderRunner, Samples, Timbre
from .utterance import Making, Manner, NoText, Utterance
from .voices import BundleVoices, Speaker

_LONGEST_INSTRUCTION = 500  # characters; the released ones have under 60


class CosyVoiceBackend:
    """A bundle that speaks. Built by ``load``."""

    workers = 1
    # Short: on a small machine a second of speech takes several.
    warm_up = "Hello."

    def __init__(
        self,
        version: Version,
        networks: Networks,
        tokenizer: TextTokenizer,
        voices: BundleVoices,
        sampling: SamplingParameters,
        policy: CosyVoicePolicy,
    ) -> None:
        ids = SpeechIds(version, networks.lm.config.speech_codes, tokenizer.end_of_prompt)
        start = _starter(ids, policy)
        self.voices = voices
        self.slots = policy.slots
        self._version, self._tokenizer = version, tokenizer
        self._languages = Languages.load()
        self._sampling = sampling
        self._policy = policy
        self._making = Making(
            encode=tokenizer.encode_plain,
            start=start,
            new_filter=SilentFilter if version is Version.V3 else None,
            ids=ids,
            first_hop=policy.first_hop,
            longest_hop=policy.longest_hop,
            most_text_ids=policy.most_text_ids,
            pause_share=policy.pause_share,
        )
        self._lm = LmRunner(
            networks.lm,
            start,
            rows=policy.slots,
            memory_ids=policy.memory_ids,
            openings=policy.prepared_voices,
        )
        self._renderer = RenderRunner(networks, timbres=policy.prepared_voices)
        self._free = list(range(policy.slots))
        self._open: dict[int, Utterance] = {}

    @classmethod
    def load(
        cls, folder: Path, policy: CosyVoicePolicy | None = None, voices: Path | None = None
    ) -> "CosyVoiceBackend":
        """Check a checkpoint folder and load it; raises BundleError. voices: folder of a ``VoiceStore``."""
        policy = policy or CosyVoicePolicy()
        try:
            bundle = open_bundle(folder)
            speakers = {name: embedding.numpy() for name, embedding in bundle.speakers().items()}
            library = VoiceStore(voices, bundle.version.value) if voices else None
            loaded = BundleVoices(speakers, _encoder_of(bundle), bundle.languages, library)
            networks = load_networks(bundle, policy.flow)
        except BundleFault as fault:
            raise BundleError(str(fault)) from fault
        return cls(bundle.version, networks, bundle.text_tokenizer(), loaded, bundle.sampling, policy)

    @property
    def open_slots(self) -> int:
        """Slots that are taken."""
        return len(self._open)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """Every clause at once, each read in its language; the model keeps the sentence together."""
        if request.speech_ids is not None:
            return NoText()
        return GenerationSegmenter(clauses=self._languages.clauses(request.delivery.language))

    def open_slot(self, request: SlotRequest) -> int:
        """Take a slot; raises BadRequest for what the voice or the model cannot do."""
        canonical(request.delivery.language or "en")
        manner = self._manner(request)
        row = self._free.pop()
        self._open[row] = Utterance(self._making, manner, row, request.seed)
        return row

    def close_slot(self, slot: int) -> None:
        """Give a slot back, and drop what was remembered of it."""
        del self._open[slot]
        self._free.append(slot)

    def close(self) -> None:
        """Forget every slot, and let go of the voices on file."""
        self._open.clear()
        self.voices.close()

    def batch(self, stage: Stage) -> int:
        """One."""
        return 1

    def stage(self, slot: int) -> Stage:
        """RENDER when the next chunk's ids are there."""
        return Stage.RENDER if self._open[slot].is_due else Stage.DECODE

    def step(self, worker: int, turns: Sequence[Turn]) -> Sequence[Rendered | Exception]:
        """One quantum of each turn's session."""
        utterances = [self._begun(turn) for turn in turns]
        due = [utterance for utterance in utterances if utterance.is_due]
        self._decode([utterance for utterance in utterances if not utterance.is_due])
        samples = dict(zip((utterance.row for utterance in due), self._render(due), strict=True))
        return [
            utterance.rendered(samples[utterance.row])
            if utterance.row in samples
            else utterance.nothing_rendered()
            for utterance in utterances
        ]

    def _begun(self, turn: Turn) -> Utterance:
        utterance = self._open[turn.slot]
        if turn.segment is not None:
            utterance.begin(turn.segment, turn.pause_s)
        return utterance

    def _decode(self, utterances: Sequence[Utterance]) -> None:
        for _ in range(self._policy.decode_ids):
            turns = {each.row: turn for each in utterances if (turn := self._lm_turn(each))}
            if not turns:
                return
            self._lm.advance(turns)
            for each in utterances:
                each.settle()

    def _lm_turn(self, utterance: Utterance) -> LmTurn | None:
        sentence = utterance.sentence
        if sentence is None or sentence.ask() is None:
            return None
        if sentence.fed is None:
            sentence.fed = self._lm.begin(utterance.row, utterance.manner.prompt)
        return utterance.turn()

    def _render(self, utterances: Sequence[Utterance]) -> list[Samples]:
        for each in utterances:
            sentence, manner = each.sentence, each.manner
            if sentence is not None and sentence.rendering is None:
                sentence.rendering = self._renderer.begin(manner.timbre, manner.speed, each.noise)
        return self._renderer.render([part for each in utterances if (part := each.part())])

    def _manner(self, request: SlotRequest) -> Manner:
        speaker = self.voices.speaker(request.voice)
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


def _starter(ids: SpeechIds, policy: CosyVoicePolicy) -> Callable[[Prompt], Generation]:
    kinds: dict[Interleave, type[Generation]] = {
        Interleave.BISTREAM: Bistream,
        Interleave.ONE_SHOT: OneShot,
        Interleave.COMPAT_BISTREAM: CompatBistream,
        Interleave.COMPAT_ONE_SHOT: CompatOneShot,
    }
    kind = kinds[policy.interleave]
    return lambda prompt: kind(ids, prompt, policy.length)


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
