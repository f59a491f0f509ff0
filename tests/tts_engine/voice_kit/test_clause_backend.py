"""The backend of voices that render clause by clause: the pauses between the clauses."""

from collections.abc import Iterator

import numpy as np
import pytest

from vivavoce.models.signal.room_tone import RoomTone
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment, Segmenter, SpokenWord
from vivavoce.tts_engine.voice_kit.clause_backend import ClauseBackend, RenderedPiece
from vivavoce.tts_engine.voices.voices import Voice, Voices

LINE = Segment((SpokenWord("one", ",", 0, 3),), 0, 4, BoundaryKind.CLAUSE)
NOISE = RoomTone.like(np.random.default_rng(0).normal(0, 1e-4, 24_000).astype(np.float32))


class ToneVoice:
    """Renders each segment as 0.1 s that begins and ends softly, in two pieces."""

    voices = Voices((Voice("tone", "en-US", "a tone"),))
    warm_up_text = "one"

    def __init__(self, room_tone: RoomTone | None) -> None:
        self._room_tone = room_tone

    def segmenter(self, request: SlotRequest) -> Segmenter:
        return Segmenter()

    def render(
        self, segment: Segment, request: SlotRequest, noise: np.random.Generator
    ) -> Iterator[RenderedPiece]:
        samples = (0.1 * np.sin(np.arange(2_400) / 20) * np.hanning(2_400)).astype(np.float32)
        yield RenderedPiece(samples[:1_000], (), last=False)
        yield RenderedPiece(samples[1_000:], (), last=True)

    def room_tone(self, voice: str) -> RoomTone | None:
        return self._room_tone

    def close(self) -> None:
        pass


def spoken(room_tone: RoomTone | None, pauses_s: tuple[float, ...]) -> np.ndarray:
    """The samples of one segment for each pause."""
    backend = ClauseBackend(ToneVoice(room_tone))
    slot = backend.open_slot(SlotRequest("tone", speed=1.0, seed=0))
    parts: list[np.ndarray] = []
    for pause_s in pauses_s:
        turns = (SlotTurn(slot, LINE, pause_s), SlotTurn(slot, None))
        for turn in turns:
            (result,) = backend.step(0, [turn])
            assert not isinstance(result, Exception)
            parts.append(result.samples)
    return np.concatenate(parts)


def test_the_pauses_between_clauses_have_the_room_tone_of_the_voice_and_no_step_at_the_joints() -> None:
    samples = spoken(NOISE, (0.3, 0.25))
    assert len(samples) == 2 * 2_400 + round(0.55 * SAMPLE_RATE)
    pause = samples[2_400:9_600]
    assert 20 * np.log10(np.std(pause[120:-120])) == pytest.approx(-80.0, abs=1.0)
    assert np.abs(np.diff(samples[2_300:2_600])).max() < 2e-3  # the tone itself has steps of 6e-4
    assert np.abs(np.diff(samples[9_500:9_700])).max() < 2e-3
    # It is one tone all along, not the same pause twice.
    assert not np.array_equal(samples[12_200:12_300], samples[2_600:2_700])


def test_a_voice_without_room_tone_has_digital_silence_between_its_clauses() -> None:
    samples = spoken(None, (0.3, 0.0))
    assert not samples[2_400:9_600].any()
    assert len(samples) == 2 * 2_400 + 7_200
