"""CosyVoice 2 or 3 as a backend: many sessions' rows and sentences, two kinds of work.

    step    DECODE   a few speech ids for each session whose next chunk lacks some
            RENDER   flow and vocoder for each session whose next chunk is complete

A step is one small quantum of either kind for each turn, so that a cancelled session is gone soon. Sessions
are on the host (``utterance``), tensors with the runners; one worker.
"""

import heapq
import itertools
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
from .company import Company
from .lm_runner import MOST_TOGETHER, LmRunner
from .policy import CosyVoicePolicy, Interleave
from .render_runner import RenderRunner, Timbre
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
            prefill_chunk=policy.prefill_chunk,
        )
        self._renderer = RenderRunner(networks, timbres=policy.prepared_voices)
        self._free = list(range(policy.slots))
        self._open: dict[int, Utterance] = {}
        self._opened = itertools.count()
        self._seniority: dict[int, int] = {}

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
        # The lowest, so that the rows in use are neighbours, which a step takes where they lie.
        row = heapq.heappop(self._free)
        self._open[row] = Utterance(self._making, manner, row, request.seed)
        self._seniority[row] = next(self._opened)
        return row

    def close_slot(self, slot: int) -> None:
        """Give a slot back, and drop what was remembered of it."""
        del self._open[slot]
        self._lm.end(slot)
        heapq.heappush(self._free, slot)

    def close(self) -> None:
        """Forget every slot, and let go of the voices on file."""
        self._open.clear()
        self.voices.close()

    def batch(self, stage: Stage) -> int:
        """As the policy has it for ids; one chunk of sound."""
        return self._policy.most_decode_rows if stage is Stage.DECODE else 1

    def stage(self, slot: int) -> Stage:
        """RENDER when the next chunk's ids are there."""
        return Stage.RENDER if self._open[slot].is_due else Stage.DECODE

    def step(self, worker: int, turns: Sequence[Turn]) -> Sequence[Rendered | Exception]:
        """One quantum of each turn's session."""
        company = Company(self._seniority)
        company.each({turn.slot: turn for turn in turns}, self._begin)
        utterances = {turn.slot: self._open[turn.slot] for turn in turns if turn.slot not in company.failed}
        due = {row: utterance for row, utterance in utterances.items() if utterance.is_due}
        self._decode([utterance for row, utterance in utterances.items() if row not in due], company)
        results: dict[int, Rendered | Exception] = {
            **{row: utterance.nothing_rendered() for row, utterance in utterances.items()},
            **company.each(due, self._render),
            **company.failed,
        }
        return [results[turn.slot] for turn in turns]

    def _begin(self, slot: int, turn: Turn) -> None:
        if turn.segment is not None:
            self._open[slot].begin(turn.segment, turn.pause_s)

    def _decode(self, utterances: Sequence[Utterance], company: Company) -> None:
        """Feed a part of what is long, for the first that has it; and a few ids for all that are so far."""
        rows = {each.row: each for each in utterances}
        company.each(rows, self._copy_opening)
        hungry = {row: each for row, each in rows.items() if _has_much_to_hear(each)}
        company.each(dict([*hungry.items()][:1]), self._feed)
        company.each(rows, self._copy_opening)
        for _ in range(self._policy.decode_ids):
            ready = [
                each
                for row, each in rows.items()
                if row not in company.failed and not _has_much_to_hear(each)
            ]
            turns = {each.row: turn for each in ready if (turn := each.turn())}
            if not turns:
                return
            chosen = company.together(turns, self._lm.choose)
            company.each(chosen, lambda row, id: _take(rows[row], id))

    def _copy_opening(self, row: int, utterance: Utterance) -> None:
        """Begin a sentence's row where all that it needs is a copy."""
        sentence = utterance.sentence
        if sentence is None or sentence.fed is not None or sentence.ask() is None:
            return
        opening = sentence.opening = sentence.opening or self._lm.opening(utterance.manner.prompt)
        if opening.is_heard:
            sentence.fed, sentence.opening = self._lm.begin(row, opening), None

    def _feed(self, row: int, utterance: Utterance) -> None:
        """Feed a part of what a sentence needs before its next id."""
        sentence = utterance.sentence
        assert sentence is not None
        if sentence.opening is not None:
            self._lm.hear(sentence.opening)
        else:
            sentence.fed = (sentence.fed or 0) + self._lm.feed(row, sentence.unfed)

    def _render(self, row: int, utterance: Utterance) -> Rendered:
        sentence, manner = utterance.sentence, utterance.manner
        if sentence is not None and sentence.rendering is None:
            sentence.rendering = self._renderer.begin(manner.timbre, manner.speed, utterance.noise)
        part = utterance.part()
        assert part is not None
        return utterance.rendered(self._renderer.render([part])[0])

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


def _has_much_to_hear(utterance: Utterance) -> bool:
    """Whether its next id cannot be asked for together with those of others yet."""
    sentence = utterance.sentence
    if sentence is None or sentence.ask() is None:
        return False
    return sentence.fed is None or len(sentence.unfed) > MOST_TOGETHER


def _take(utterance: Utterance, id: int) -> None:
    assert utterance.sentence is not None
    utterance.sentence.generation.answer(id)
    utterance.settle()


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
