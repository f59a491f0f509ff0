"""Common steps of CosyVoice sessions: equal samples, decoding during a prefill, and memory slots."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.engine.cosyvoice_sessions import TEXTS, SessionDriver, render_together
from shared.voices.tiny_cosyvoice import BRIEF, recording
from vivavoce.models.cosyvoice.lm.generation import SpeechLengthRule
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend


def test_a_session_renders_alone_what_it_renders_among_seven_others(folder: Path) -> None:
    backend = CosyVoiceBackend.load(folder, replace(BRIEF, prefill_chunk=40, max_render_rows=4))
    mine = backend.voices.enroll(recording(), 16_000, "a tone that wobbles, and goes on and on").id
    other = backend.voices.enroll(recording(317.0), 16_000, "another").id
    sessions = [
        {
            "text": TEXTS[index % len(TEXTS)],
            "voice": ("nobody", mine, other)[index % 3],
            "seed": index,
            "delay": 3 * index,
        }
        for index in range(8)
    ]
    together = render_together(backend, sessions)
    for session, batched in zip(sessions[:5], together[:5], strict=True):  # all voices and texts
        [rendered_alone] = render_together(backend, [session])
        assert batched.ids == rendered_alone.ids
        assert batched.samples.shape == rendered_alone.samples.shape
        assert np.abs(batched.samples - rendered_alone.samples).max() < 1e-4


def test_a_session_continues_decoding_while_a_long_prompt_is_prefilled(v2_folder: Path) -> None:
    policy = replace(BRIEF, prefill_chunk=16, length=SpeechLengthRule(20, 20))
    backend = CosyVoiceBackend.load(v2_folder, policy)
    long_prompt_voice = backend.voices.enroll(recording(), 16_000, "a tone that wobbles " * 10).id
    driver = SessionDriver(backend)
    lengths = backend._lm.rows.state.lengths

    def ids_in_context(slot: int) -> int:
        return int(lengths[backend._rows[slot]]) if slot in backend._rows else 0

    speaker = driver.add(TEXTS[0])
    while not ids_in_context(speaker):
        driver.round()
    new_session = driver.add(TEXTS[1], voice=long_prompt_voice)
    before, waited = ids_in_context(speaker), 0
    while not ids_in_context(new_session):
        driver.round()
        waited += 1
    # A session decodes no ids in a round that renders a chunk of it.
    assert ids_in_context(speaker) >= before + policy.ids_per_decode_step * (waited - 2)
    assert waited > 3  # the prompt is prefilled 16 ids at a time
    prefix = backend._lm.prompt_prefix(backend._sessions[new_session].conditioning.prompt, "")
    assert prefix.is_prefilled
    assert len(prefix.units) > 3 * policy.prefill_chunk


def test_voices_beyond_max_prepared_voices_are_rendered(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, max_prepared_voices=1, prefill_chunk=8))
    voices = [backend.voices.enroll(recording(200.0 + 30 * index), 16_000, "a tone").id for index in range(3)]
    together = render_together(backend, [{"text": TEXTS[1], "voice": voice} for voice in voices])
    assert all(len(spoken.samples) for spoken in together)


def test_memory_slots_count_sessions_with_their_expected_size(
    v2_folder: Path,
) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, slots=6, expected_ids=100))
    backend._render_stage.memory_ids = 480
    driver = SessionDriver(backend)
    driver.add(TEXTS[1])
    assert backend.memory_slots == 4
    tone = backend.voices.enroll(recording(), 16_000, "a tone").id  # of 3 s
    driver.add(TEXTS[1], voice=tone)
    assert backend.memory_slots == 3  # a new session is expected to have a voice of the same length
    voiced = len(backend._sessions[2].conditioning.flow_prompt.ids)
    assert 2 * (100 + voiced) + 100 <= 480 < 3 * (100 + voiced) + 100
    driver.speak()
    backend._render_stage.memory_ids = 300  # prepared voices use some of them
    backend.close_slot(backend.open_slot(SlotRequest("nobody", 1.0, 0)))
    assert backend.memory_slots == 2


def test_a_sentence_longer_than_expected_reduces_the_memory_slots(v2_folder: Path) -> None:
    policy = replace(BRIEF, slots=6, expected_ids=10, length=SpeechLengthRule(20, 20))
    backend = CosyVoiceBackend.load(v2_folder, policy)
    backend._render_stage.memory_ids = 85
    driver = SessionDriver(backend)
    driver.add(TEXTS[1])
    memory_slots = [backend.memory_slots]
    while driver._open:
        driver.round()
        memory_slots.append(backend.memory_slots)
    assert memory_slots[0] == 6
    assert min(memory_slots) == 1  # the open session is rendered to its end
    assert memory_slots[-1] == 6
    assert not driver.failures
