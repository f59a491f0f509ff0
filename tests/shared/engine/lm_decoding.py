"""Drives sessions of the language model step by step, for tests."""

from collections.abc import Sequence

from vivavoce.models.cosyvoice.lm.decoding import DecodeTurn, choose
from vivavoce.models.cosyvoice.lm.speech_lm import SpeechLm
from vivavoce.models.decoding.kv_memory import SpeechLmState


def advance(lm: SpeechLm, state: SpeechLmState, turns: Sequence[DecodeTurn | None]) -> SpeechLmState:
    """Sample an id for every generation that has a request, and answer it."""
    state, chosen = choose(lm, state, turns)
    for row, id in chosen.items():
        turn = turns[row]
        assert turn is not None
        turn.generation.answer(id)
    return state
