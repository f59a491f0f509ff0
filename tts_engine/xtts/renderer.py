"""Steps the sessions of an XTTS bundle through its networks, many sessions at once.

    step    DECODE   a few speech ids for each session whose next chunk needs more of them
            RENDER   the vocoder for each session whose next chunk has all its latents

Host state is in ``session``, device state in the runners. One worker runs both kinds of step, or two workers
run one kind each; a session is in one step at a time, and the workers share no tensor.
"""

import heapq
from collections.abc import Mapping, Sequence

from ...models.cosyvoice.devices import separate_stream
from ...models.xtts.networks import XttsNetworks
from ..backends.base import ALL_STAGES, SlotTurn, Stage, Stages, StepResult
from ..fault_isolation import FaultIsolation
from .gpt_runner import XttsGptRunner
from .policy import XttsPolicy
from .render_runner import XttsRenderInput, XttsRenderRunner
from .session import XttsConditioning, XttsSession
from .text_encoder import XttsTextEncoder


class XttsRenderer:
    """The networks of one bundle and the sessions that use them. Implements ``SlotRenderer``.

    A slot is one session; a row is a session's place in the language model's memory, taken with its first
    step.
    """

    def __init__(self, networks: XttsNetworks, encoder: XttsTextEncoder, policy: XttsPolicy) -> None:
        self.slots = self.memory_slots = policy.slots
        one_each = tuple(frozenset({stage}) for stage in Stage)
        self.workers: Sequence[Stages] = one_each if policy.overlap else (ALL_STAGES,)
        self._device_streams = [separate_stream(networks.gpt.device) for _ in self.workers]
        self._policy, self._encoder, self._config = policy, encoder, networks.gpt.config
        # A cancelled session keeps its row until its step ends, while a new one decodes in its slot.
        rows = policy.slots + (policy.max_render_rows if policy.overlap else 0)
        self._gpt = XttsGptRunner(
            networks.gpt, rows=rows, max_voices=policy.max_prepared_voices, prefill_chunk=policy.prefill_chunk
        )
        self._render_runner = XttsRenderRunner(networks.vocoder, networks.gpt.device)
        self._free_rows = list(range(rows))
        self._sessions: dict[int, XttsSession] = {}
        self._rows: dict[int, int] = {}  # row by slot, for slots that have been stepped
        self._last_slot = 0

    @property
    def open_slots(self) -> int:
        """Number of open slots."""
        return len(self._sessions)

    def open_prepared(self, conditioning: XttsConditioning, seed: int) -> int:
        """Open a slot."""
        self._last_slot += 1
        self._sessions[self._last_slot] = XttsSession(conditioning, seed, self._policy, self._config)
        return self._last_slot

    def close_slot(self, slot: int) -> None:
        """Close a slot and discard its state."""
        del self._sessions[slot]
        if slot in self._rows:
            row = self._rows.pop(slot)
            self._gpt.clear_row(row)
            heapq.heappush(self._free_rows, row)
        if not self._sessions:
            self.memory_slots = self.slots

    def max_batch_size(self, stage: Stage) -> int:
        """The policy's number of rows for that stage."""
        return self._policy.max_decode_rows if stage is Stage.DECODE else self._policy.max_render_rows

    def stage(self, slot: int) -> Stage:
        """RENDER if the latents of the next chunk are complete, else DECODE."""
        return Stage.RENDER if self._sessions[slot].is_chunk_ready else Stage.DECODE

    def step(self, worker: int, turns: Sequence[SlotTurn]) -> Sequence[StepResult | Exception]:
        """Run one step for every turn's session; all of them are in the same stage."""
        with self._device_streams[worker]:
            stage = self.stage(turns[0].slot)
            turns_by_row = {self._row_of(turn.slot): turn for turn in turns}
            sessions = {row: self._sessions[turn.slot] for row, turn in turns_by_row.items()}
            isolation = FaultIsolation(
                {row: turn.slot for row, turn in turns_by_row.items()},  # slot numbers only grow
                free_memory=lambda row: _free_render_memory(sessions[row]),
            )
            isolation.run_each(turns_by_row, lambda row, turn: self._begin(sessions[row], turn))
            rendered: dict[int, StepResult] = {}
            if stage is Stage.RENDER:
                rendered = self._render(sessions, isolation)
            else:
                self._decode(sessions, isolation)
            results = isolation.run_each(
                sessions, lambda row, session: rendered.get(row) or session.empty_result()
            )
            if isolation.out_of_memory:
                self.memory_slots = max(1, len(self._rows) - len(isolation.failed))
            return [isolation.failed.get(row) or results[row] for row in turns_by_row]

    def _begin(self, session: XttsSession, turn: SlotTurn) -> None:
        if turn.segment is not None:
            session.begin(turn.segment, turn.pause_s, self._encoder)

    def _decode(self, sessions: Mapping[int, XttsSession], isolation: FaultIsolation) -> None:
        """Prefill one part of one sentence, then decode a few ids for every session that has its input."""
        waiting = [row for row, session in sessions.items() if session.needs_prefill][:1]
        isolation.run_each({row: sessions[row] for row in waiting}, self._prefill_part)
        for _ in range(self._policy.ids_per_decode_step):
            turns = {
                row: session.sentence.decode_turn
                for row, session in sessions.items()
                if session.can_decode and session.sentence is not None
            }
            decoded = isolation.run_batch(turns, self._gpt.decode)
            if not decoded:
                return
            isolation.run_each(decoded, lambda row, column: sessions[row].choose(column))

    def _prefill_part(self, row: int, session: XttsSession) -> None:
        assert session.sentence is not None
        self._gpt.prefill_part(row, session.sentence.gpt_input)

    def _render(
        self, sessions: Mapping[int, XttsSession], isolation: FaultIsolation
    ) -> dict[int, StepResult]:
        """Render one chunk for every session."""
        runner = self._render_runner
        inputs = isolation.run_each(sessions, self._render_input)
        samples = isolation.run_batches(inputs, runner.batch_key, runner.run)
        return isolation.run_each(samples, lambda row, made: sessions[row].render_result(made))

    def _render_input(self, row: int, session: XttsSession) -> XttsRenderInput:
        sentence, runner = session.sentence, self._render_runner
        assert sentence is not None
        if sentence.render_state is None:
            sentence.render_state = runner.begin(session.conditioning.voice.speaker, sentence.speed)
        return runner.render_input(sentence.render_state, session.take_latents(), final=sentence.finished)

    def _row_of(self, slot: int) -> int:
        if slot not in self._rows:
            # The lowest free row: rows in use stay adjacent, and a step reads them in place.
            self._rows[slot] = heapq.heappop(self._free_rows)
        return self._rows[slot]


def _free_render_memory(session: XttsSession) -> None:
    if session.sentence is not None:
        session.sentence.render_state = None
