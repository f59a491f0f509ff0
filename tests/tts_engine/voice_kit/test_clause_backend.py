"""The backend of voices that render clause by clause: the pauses between the clauses, and what is kept."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.engine.kept_noise import wait_until_written
from vivavoce.models.signal.room_tone import RoomTone
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn, StepResult
from vivavoce.tts_engine.backends.voice_kind import KeptSpeechConfig
from vivavoce.tts_engine.chunk import SAMPLE_RATE, Phoneme, Word
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

    def identity(self) -> str:
        return "a tone"

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


class NoisyVoice(ToneVoice):
    """Renders noise, and says when the first word of the segment is. renderings: how many it began."""

    def __init__(self) -> None:
        super().__init__(None)
        self.renderings = 0

    def render(
        self, segment: Segment, request: SlotRequest, noise: np.random.Generator
    ) -> Iterator[RenderedPiece]:
        self.renderings += 1
        word = segment.words[0]
        first = noise.normal(0, 0.1, 1_000).astype(np.float32)
        sounds = (Phoneme("w", 0.0, 0.01), Phoneme("ʌ", 0.01, 0.02))
        yield RenderedPiece(first, (Word("", 0.0, 0.02, word.start, word.stop, sounds),), last=False)
        yield RenderedPiece(noise.normal(0, 0.1, 1_400).astype(np.float32), (), last=True)


def said(backend: ClauseBackend, segments: list[Segment], **request: Any) -> list[StepResult]:
    slot = backend.open_slot(SlotRequest("tone", speed=1.0, **request))
    results = []
    for segment in segments:
        for turn in (SlotTurn(slot, segment, 0.1), SlotTurn(slot, None)):
            (result,) = backend.step(0, [turn])
            assert not isinstance(result, Exception)
            results.append(result)
    backend.close_slot(slot)
    return results


def at(start: int, *texts: str) -> list[Segment]:
    """One segment of a word for each text, from a character of the stream on."""
    segments = []
    for text in texts:
        words = (SpokenWord(text, ",", start, start + len(text)),)
        segments.append(Segment(words, start, start + len(text) + 1, BoundaryKind.CLAUSE))
        start += len(text) + 1
    return segments


def test_a_clause_that_is_said_again_is_not_rendered_again_and_sounds_the_same() -> None:
    voice = NoisyVoice()
    backend = ClauseBackend(voice, kept_speech=KeptSpeechConfig(10_000_000))
    first = said(backend, at(0, "one", "two", "one"), seed=0)
    assert voice.renderings == 3 and not any(result.repeated for result in first)
    again = said(backend, at(7, "one", "two", "four"), seed=0)
    assert voice.renderings == 4
    assert [result.repeated for result in again] == [True] * 4 + [False] * 2
    fresh = said(ClauseBackend(NoisyVoice()), at(7, "one", "two", "four"), seed=0)
    for result, expected in zip(again, fresh, strict=True):
        np.testing.assert_array_equal(result.samples, expected.samples)
        assert result.words == expected.words


def test_a_clause_is_on_file_after_a_restart_and_sounds_the_same(tmp_path: Path) -> None:
    config = KeptSpeechConfig(10_000_000, tmp_path)
    first = said(backend := ClauseBackend(NoisyVoice(), kept_speech=config), at(0, "one", "two"), seed=0)
    backend.close()
    wait_until_written()
    again = said(ClauseBackend(voice := NoisyVoice(), kept_speech=config), at(0, "one", "two"), seed=0)
    assert voice.renderings == 0 and all(result.repeated and result.from_file for result in again)
    for result, expected in zip(again, first, strict=True):
        np.testing.assert_array_equal(result.samples, expected.samples)
        assert result.words == expected.words
    said(ClauseBackend(voice, kept_speech=config), at(0, "one"), seed=1, keeps_speech=False)
    assert voice.renderings == 1


def test_another_seed_voice_or_a_stream_that_is_not_kept_is_rendered() -> None:
    voice = NoisyVoice()
    backend = ClauseBackend(voice, kept_speech=KeptSpeechConfig(10_000_000))
    for request in ({"seed": 0}, {"seed": 1}, {"seed": 0, "keeps_speech": False}):
        assert not any(result.repeated for result in said(backend, at(0, "one"), **request))
    assert voice.renderings == 3
