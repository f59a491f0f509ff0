"""CosyVoice 2 or 3 as a backend: many sessions' rows and sentences, two kinds of work.

    step    DECODE   a few speech ids for each session whose next chunk lacks some
            RENDER   flow and vocoder for each session whose next chunk is complete

A step is one small quantum of one kind for each turn, so that a cancelled session is gone soon. Sessions are
on the host (``utterance``), tensors with the runners. One worker does both kinds, or one each:

    worker 0    decode a b c |decode a b c |decode   c |       a session is at one place at a time; the two
    worker 1        render d     |  render a b    |            share no tensor, only what a session has said
"""

import heapq
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ...models.cosyvoice.bistream import (
    Bistream,
    CompatBistream,
    CompatOneShot,
    Generation,
    OneShot,
    Prompt,
    SpeechIds,
)
from ...models.cosyvoice.devices import find_device, work_queue
from ...models.cosyvoice.front_end.text_tokenizer import TextTokenizer
from ...models.cosyvoice.geometry import Version
from ...models.cosyvoice.networks import Networks, load_networks
from ...models.cosyvoice.release.bundle import open_bundle
from ...models.cosyvoice.silent_ids import SilentFilter
from ..backend import EVERY_STAGE, Rendered, SlotRequest, Stage, Stages, Turn
from ..bundles import bundle_errors
from ..process_child import Hosted
from ..text import Segmenter
from .company import Company
from .front import CosyVoiceFront, Order
from .lm_runner import MOST_TOGETHER, LmRunner
from .memory import sessions_that_fit
from .policy import CosyVoicePolicy, Interleave
from .render_runner import Part, RenderRunner
from .utterance import FRAMES_PER_ID, Making, Utterance


class CosyVoiceRenderer:
    """The networks of a bundle, and the sessions that they speak in. Built by ``hosted``."""

    def __init__(
        self, version: Version, networks: Networks, tokenizer: TextTokenizer, policy: CosyVoicePolicy
    ) -> None:
        ids = SpeechIds(version, networks.lm.config.speech_codes, tokenizer.end_of_prompt)
        start = _starter(ids, policy)
        self.slots = policy.slots
        one_each = tuple(frozenset({stage}) for stage in Stage)
        self.workers: Sequence[Stages] = one_each if policy.overlap else (EVERY_STAGE,)
        self._queues = [work_queue(networks.lm.device) for _ in self.workers]
        self._tokenizer = tokenizer
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
        # A cancelled session keeps its row until its rendering ends, and another may decode in its place.
        rows = policy.slots + (policy.most_render_rows if policy.overlap else 0)
        self._lm = LmRunner(
            networks.lm,
            start,
            rows=rows,
            memory_ids=policy.memory_ids,
            openings=policy.prepared_voices,
            prefill_chunk=policy.prefill_chunk,
            ahead=policy.decode_ids,
        )
        self._renderer = RenderRunner(networks, policy)
        self._free = list(range(rows))
        self._open: dict[int, Utterance] = {}
        self._rows: dict[int, int] = {}  # of the slots that have been stepped
        self._last_slot = 0
        self._memory_ids = self._renderer.memory_ids
        self._most = policy.slots  # fewer after memory ran out, until nobody is there
        self.room = self._reckoned()

    @property
    def open_slots(self) -> int:
        """Slots that are taken."""
        return len(self._open)

    def open(self, order: Order) -> int:
        """Take a slot; a row with its first step, when those who were cancelled in the last have left."""
        self._last_slot += 1
        self._open[self._last_slot] = Utterance(self._making, order.manner, order.seed)
        self.room = self._reckoned()
        return self._last_slot

    def close_slot(self, slot: int) -> None:
        """Give a slot back, and drop what was remembered of it."""
        del self._open[slot]
        if slot in self._rows:
            row = self._rows.pop(slot)
            self._lm.end(row)
            heapq.heappush(self._free, row)
        if not self._open:
            self._most = self._policy.slots
        self.room = self._reckoned()

    def _reckoned(self) -> int:
        """Sessions that memory has room for now."""
        policy, sessions = self._policy, [*self._open.values()]
        window = policy.flow.window_frames
        most = window // FRAMES_PER_ID if window else sys.maxsize
        voices = [self._renderer.copied_ids(session.manner.timbre) for session in sessions]
        held = [
            min(most, voice + max(policy.likely_ids, session.sentence_ids))
            for voice, session in zip(voices, sessions, strict=True)
        ]
        newcomer = min(most, max(voices, default=0) + policy.likely_ids)
        fit = sessions_that_fit(self._memory_ids, self._renderer.kept_ids, held, newcomer)
        return min(self.slots, self._most, fit)

    def batch(self, stage: Stage) -> int:
        """As the policy has it."""
        policy = self._policy
        return policy.most_decode_rows if stage is Stage.DECODE else policy.most_render_rows

    def stage(self, slot: int) -> Stage:
        """RENDER when the next chunk's ids are there."""
        return Stage.RENDER if self._open[slot].is_due else Stage.DECODE

    def step(self, worker: int, turns: Sequence[Turn]) -> Sequence[Rendered | Exception]:
        """One quantum of each turn's session."""
        with self._queues[worker]:
            return self._step(turns)

    def _step(self, turns: Sequence[Turn]) -> Sequence[Rendered | Exception]:
        stage = self.stage(turns[0].slot)
        seated = {self._seat(turn.slot): turn for turn in turns}
        seniority = {row: turn.slot for row, turn in seated.items()}  # the newest has the highest slot
        company = Company(seniority, vacate=lambda row: self._vacate(self._open[seniority[row]]))
        company.each(seated, self._begin)
        utterances = {row: self._open[turn.slot] for row, turn in seated.items() if row not in company.failed}
        rendered: dict[int, Rendered] = {}
        if stage is Stage.RENDER:
            rendered = self._render(utterances, company)
        else:
            self._decode(utterances, company)
        results: dict[int, Rendered | Exception] = {
            **{row: utterance.nothing_rendered() for row, utterance in utterances.items()},
            **rendered,
            **company.failed,
        }
        if company.memory_ran_out:
            self._most = max(1, len(self._rows) - len(company.failed))
        self.room = self._reckoned()
        return [results[row] for row in seated]

    def _seat(self, slot: int) -> int:
        if slot not in self._rows:
            # The lowest, so that the rows in use are neighbours, which a step takes where they lie.
            self._rows[slot] = heapq.heappop(self._free)
        return self._rows[slot]

    def _begin(self, row: int, turn: Turn) -> None:
        if turn.segment is not None:
            self._open[turn.slot].begin(turn.segment, turn.pause_s)

    def _decode(self, rows: dict[int, Utterance], company: Company) -> None:
        """Feed a part of what is long, for the first that has it; and a few ids for all that are so far."""
        company.each(rows, self._take_foreseen)
        company.each(rows, self._copy_opening)
        hungry = {row: each for row, each in rows.items() if _has_much_to_hear(each)}
        company.each(dict([*hungry.items()][:1]), self._feed)
        company.each(rows, self._copy_opening)
        for _ in range(0, self._policy.decode_ids, self._lm.ahead):
            ready = {
                row: each
                for row, each in rows.items()
                if row not in company.failed and not _has_much_to_hear(each)
            }
            turns = {row: turn for row, each in ready.items() if (turn := each.turn())}
            if not turns:
                return
            chosen = company.together(turns, self._lm.choose)
            company.each(chosen, lambda row, id: rows[row].answer(id))
            company.each(chosen, lambda row, _: self._take_foreseen(row, rows[row]))

    def _take_foreseen(self, row: int, utterance: Utterance) -> None:
        while (id := self._lm.foreseen(row, utterance.ask())) is not None:
            utterance.answer(id)

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

    def _render(self, due: dict[int, Utterance], company: Company) -> dict[int, Rendered]:
        renderer = self._renderer
        parts = company.each(due, self._part)
        mels = company.alike(parts, renderer.shares_flow, renderer.flow)
        voicings = company.each(mels, lambda row, mel: renderer.voicing(parts[row], mel))
        samples = company.alike(voicings, renderer.shares_vocoder, renderer.vocode)
        return company.each(samples, lambda row, samples: due[row].rendered(samples))

    def _vacate(self, utterance: Utterance) -> None:
        if utterance.sentence is not None and utterance.sentence.rendering is not None:
            self._renderer.vacate(utterance.sentence.rendering)

    def _part(self, row: int, utterance: Utterance) -> Part:
        sentence, manner = utterance.sentence, utterance.manner
        if sentence is not None and sentence.rendering is None:
            sentence.rendering = self._renderer.begin(manner.timbre, manner.speed, utterance.noise)
        part = utterance.part()
        assert part is not None
        return part


class CosyVoiceBackend(CosyVoiceRenderer):
    """A bundle that speaks in this process. Built by ``load``."""

    warm_up = CosyVoiceFront.warm_up

    def __init__(
        self,
        front: CosyVoiceFront,
        version: Version,
        networks: Networks,
        tokenizer: TextTokenizer,
        policy: CosyVoicePolicy,
    ) -> None:
        super().__init__(version, networks, tokenizer, policy)
        self._front = front
        self.voices = front.voices

    @classmethod
    def load(
        cls, folder: Path, policy: CosyVoicePolicy | None = None, voices: Path | None = None
    ) -> "CosyVoiceBackend":
        """Check a checkpoint folder and load it; raises BundleError. voices: folder of a ``VoiceStore``."""
        policy = policy or CosyVoicePolicy()
        with bundle_errors():
            bundle = open_bundle(folder)
            tokenizer = bundle.text_tokenizer()
            front = CosyVoiceFront.of(bundle, tokenizer, policy, voices)
            networks = load_networks(bundle, policy.flow, policy.precision, find_device(policy.device))
            return cls(front, bundle.version, networks, tokenizer, policy)

    def segmenter(self, request: SlotRequest) -> Segmenter:
        """As the front has it."""
        return self._front.segmenter(request)

    def open_slot(self, request: SlotRequest) -> int:
        """Take a slot; raises BadRequest for what the voice or the model cannot do."""
        return self.open(self._front.order(request))

    def close(self) -> None:
        """Forget every slot, and let go of the voices on file."""
        self._open.clear()
        self._front.close()


def hosted(folder: Path, policy: CosyVoicePolicy) -> Hosted:
    """What renders a bundle in a process of its own, beside a front; raises BundleError."""
    with bundle_errors():
        bundle = open_bundle(folder)
        networks = load_networks(bundle, policy.flow, policy.precision, find_device(policy.device))
        renderer = CosyVoiceRenderer(bundle.version, networks, bundle.text_tokenizer(), policy)
    return Hosted(renderer, renderer.open, Stage.DECODE)


def _has_much_to_hear(utterance: Utterance) -> bool:
    """Whether its next id cannot be asked for together with those of others yet."""
    sentence = utterance.sentence
    if sentence is None or sentence.ask() is None:
        return False
    return sentence.fed is None or len(sentence.unfed) > MOST_TOGETHER


def _starter(ids: SpeechIds, policy: CosyVoicePolicy) -> Callable[[Prompt], Generation]:
    kinds: dict[Interleave, type[Generation]] = {
        Interleave.BISTREAM: Bistream,
        Interleave.ONE_SHOT: OneShot,
        Interleave.COMPAT_BISTREAM: CompatBistream,
        Interleave.COMPAT_ONE_SHOT: CompatOneShot,
    }
    kind = kinds[policy.interleave]
    return lambda prompt: kind(ids, prompt, policy.length)
