"""One step of the language model for all sessions that have a request: feed, then sample.

    turns = [DecodeTurn(generation, seeded_uniforms(7)), None, ...]    one turn a row of the state; None: free
    state, chosen = choose(lm, state, turns)                           one id for each generation that asked
    turns[row].generation.answer(chosen[row])

The caller decides which session has which row. The ids of a session depend on its own text, voice, seed and
parameters, never on the other rows.

Source: the loop of FunAudioLLM/CosyVoice@ace7c47 cosyvoice/llm/llm.py:506-549, turned inside out for a batch.
"""

from collections.abc import Sequence

import torch

from ...decoding.kv_memory import SpeechLmState, last_valid_hidden
from ...devices.torch_devices import to_device, to_host
from .decode_turn import DecodeTurn as DecodeTurn
from .decode_turn import RowRequest as RowRequest
from .decode_turn import collect_requests as collect_requests
from .generation import LmInput
from .sampling import sample_ids
from .speech_lm import LmNetwork, embed_inputs


@torch.inference_mode()
def choose(
    lm: LmNetwork, state: SpeechLmState, turns: Sequence[DecodeTurn | None]
) -> tuple[SpeechLmState, dict[int, int]]:
    """Sample an id for every generation that has a request; returns the new state and the ids by row.

    Raises ValueError if a row would outgrow its memory or has no id to choose from. Then no generation,
    random number or length has changed, so the row can be tried again.
    """
    requests = collect_requests(enumerate(turns))
    if not requests:
        return state, {}
    inputs = {each.row: each.inputs for each in requests}
    x, valid = embed_inputs(lm, [inputs.get(row, ()) for row in range(len(turns))])
    hidden, state = lm.step(x, state, valid)
    return state, _sample(lm, last_valid_hidden(hidden, valid), requests)


def _sample(lm: LmNetwork, hidden: torch.Tensor, requests: Sequence[RowRequest]) -> dict[int, int]:
    rows = to_device(torch.tensor([each.row for each in requests]), hidden.device)
    logits = to_host(lm.logits(hidden[rows]).float()).numpy()
    sampled = sample_ids(logits, [each.sampling_context for each in requests])
    return {each.row: one.id for each, one in zip(requests, sampled, strict=True)}


class LmSteps:
    """Steps of a network on tensors, as ``LmRunner`` takes them."""

    def __init__(self, lm: LmNetwork) -> None:
        self._lm = lm

    def init_state(self, rows: int, capacity: int) -> SpeechLmState:
        """As ``SpeechLm.init_state``."""
        return self._lm.init_state(rows, capacity)

    @torch.inference_mode()
    def prefill(self, state: SpeechLmState, inputs: Sequence[LmInput]) -> SpeechLmState:
        """Feed inputs to a state of one row. Raises ValueError if it has no room."""
        x, valid = embed_inputs(self._lm, [inputs])
        return self._lm.step(x, state, valid)[1]

    def choose(
        self, state: SpeechLmState, turns: Sequence[DecodeTurn | None]
    ) -> tuple[SpeechLmState, dict[int, int]]:
        """The function ``choose``."""
        return choose(self._lm, state, turns)
