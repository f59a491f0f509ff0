"""Steps the sessions of an XTTS bundle through its networks: the language model, then the vocoder."""

from collections.abc import Mapping

from ...models.devices.torch_devices import separate_stream
from ...models.xtts.networks import XttsNetworks
from ..backends.base import SlotTurn
from ..voice_kit.fault_isolation import FaultIsolation
from ..voice_kit.session_renderer import Samples, SessionRenderer, row_count
from .gpt_runner import DecodedColumn, XttsGptRunner, XttsGptTurn
from .policy import XttsPolicy
from .render_runner import XttsRenderInput, XttsRenderRunner
from .session import XttsConditioning, XttsSession
from .text_encoder import XttsTextEncoder


class XttsRenderer(SessionRenderer[XttsSession]):
    """The networks of one bundle and the sessions that use them."""

    def __init__(self, networks: XttsNetworks, encoder: XttsTextEncoder, policy: XttsPolicy) -> None:
        device = networks.gpt.device
        super().__init__(policy, lambda: separate_stream(device))
        self._policy, self._encoder, self._config = policy, encoder, networks.gpt.config
        self._gpt = XttsGptRunner(
            networks.gpt,
            rows=row_count(policy),
            max_voices=policy.max_prepared_voices,
            prefill_chunk=policy.prefill_chunk,
        )
        self._render_runner = XttsRenderRunner(networks.vocoder, device)

    def open_prepared(self, conditioning: XttsConditioning, seed: int) -> int:
        """Open a slot."""
        return self.open_session(XttsSession(conditioning, seed, self._policy, self._config, self._encoder))

    def _begin_decoding(self, row: int, session: XttsSession) -> bool:
        return session.needs_prefill

    def _prefill_part(self, row: int, session: XttsSession) -> None:
        assert session.sentence is not None
        decoded = self._gpt.prefill_part(row, session.sentence.gpt_input)
        if decoded is not None:
            session.choose(decoded)

    def _decode_turn(self, row: int, session: XttsSession) -> XttsGptTurn | None:
        return session.decode_turn

    def _decode_rows(self, turns: Mapping[int, XttsGptTurn]) -> dict[int, DecodedColumn]:
        return self._gpt.decode(turns)

    def _take_decoded(self, row: int, session: XttsSession, decoded: DecodedColumn) -> None:
        session.choose(decoded)

    def _begin_rendering(self, session: XttsSession, turn: SlotTurn) -> XttsRenderInput:
        sentence, runner = session.sentence, self._render_runner
        assert sentence is not None
        if sentence.render_state is None:
            sentence.render_state = runner.begin(session.conditioning.voice.speaker, sentence.speed)
        return runner.render_input(sentence.render_state, session.take_latents(), final=sentence.finished)

    def _render_rows(
        self, inputs: Mapping[int, XttsRenderInput], isolation: FaultIsolation
    ) -> dict[int, Samples]:
        runner = self._render_runner
        return isolation.run_batches(inputs, runner.batch_key, runner.run)

    def _clear_row(self, row: int) -> None:
        self._gpt.rows.clear_row(row)

    def _free_render_memory(self, session: XttsSession) -> None:
        if session.sentence is not None:
            session.sentence.render_state = None
