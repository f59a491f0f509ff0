"""Many sessions of CosyVoice in a step: nobody hears the others, waits for them, or fails with them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: pip install 'vivavoce[cosyvoice]'"
)

from vivavoce.models.cosyvoice.bistream import LengthRule  # noqa: E402
from vivavoce.models.cosyvoice.geometry import Version  # noqa: E402
from vivavoce.models.cosyvoice.release.random_bundle import Size, write_random_bundle  # noqa: E402
from vivavoce.tts_engine.backend import Rendered, SlotRequest, Stage, Turn  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.cosyvoice.policy import CosyVoicePolicy  # noqa: E402
from vivavoce.tts_engine.text import Segment  # noqa: E402

BRIEF = CosyVoicePolicy(length=LengthRule(2, 2), pause_share=0.0)
TEXTS = (
    "Well, who is it, at night? It is me.",
    "It is me.",
    "Nobody said so, and so I went home.",
    "And then? Then it was late.",
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=Version, ids=lambda version: version.name)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / request.param.name
    write_random_bundle(path, request.param, Size.TINY, seed=1)
    return path


@pytest.fixture(scope="module")
def v2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundles") / "V2"
    write_random_bundle(path, Version.V2, Size.TINY, seed=1)
    return path


def recording(pitch_hz: float = 200.0) -> np.ndarray:
    time_s = np.arange(51_200) / 16_000
    return (0.3 * np.sin(2 * np.pi * pitch_hz * time_s * (1 + 0.2 * np.sin(7 * time_s)))).astype(np.float32)


class Sitting:
    """Sessions of a backend, stepped by hand: each speaks a text, ``late`` rounds after the first."""

    def __init__(self, backend: CosyVoiceBackend) -> None:
        self.backend = backend
        self.segments: dict[int, list[Segment]] = {}
        self.late: dict[int, int] = {}
        self.ids: dict[int, list[int]] = {}
        self.samples: dict[int, list[np.ndarray]] = {}
        self.failures: dict[int, Exception] = {}
        self._open: list[int] = []
        self._current: dict[int, Segment] = {}

    def join(self, text: str, voice: str = "nobody", seed: int = 0, late: int = 0) -> int:
        request = SlotRequest(voice, 1.0, seed)
        slot = self.backend.open_slot(request)
        segmenter = self.backend.segmenter(request)
        self.segments[slot] = [*segmenter.push(text), *segmenter.flush()]
        self.ids[slot], self.samples[slot], self.late[slot] = [], [], late
        self._open.append(slot)
        return slot

    def leave(self, slot: int) -> None:
        self._open.remove(slot)
        self._current.pop(slot, None)
        self.backend.close_slot(slot)

    def round(self) -> None:
        """One step of each stage, for as many as it takes."""
        for slot in self._open:
            self.late[slot] -= 1
        for stage in Stage:
            ready = [slot for slot in self._open if self.late[slot] < 0]
            these = [slot for slot in ready if self.backend.stage(slot) is stage]
            these = these[: self.backend.batch(stage)]
            if these:
                self._step(these)

    def speak(self) -> None:
        while self._open:
            self.round()

    def _step(self, slots: Sequence[int]) -> None:
        turns = [self._turn(slot) for slot in slots]
        for slot, result in zip(slots, self.backend.step(0, turns), strict=True):
            if isinstance(result, Exception):
                self.failures[slot] = result
                self.leave(slot)
            else:
                self._note(slot, result)
        # Who waits longest is first.
        self._open = [slot for slot in self._open if slot not in slots] + [
            slot for slot in slots if slot in self._open
        ]

    def _turn(self, slot: int) -> Turn:
        if slot in self._current:
            return Turn(slot, None)
        self._current[slot] = self.segments[slot].pop(0)
        return Turn(slot, self._current[slot])

    def _note(self, slot: int, result: Rendered) -> None:
        self.samples[slot].append(result.samples)
        if result.segment_done:
            del self._current[slot]
            if not self.segments[slot]:
                self.leave(slot)


@dataclass(frozen=True)
class Spoken:
    """What a session said."""

    ids: list[int]
    samples: np.ndarray


def said(backend: CosyVoiceBackend, sessions: Sequence[Mapping[str, Any]]) -> list[Spoken]:
    """What sessions say together, in their order."""
    sitting = Sitting(backend)
    choose = backend._lm.choose

    def noted(turns: Mapping[int, Any]) -> dict[int, int]:
        chosen = choose(turns)
        for row, id in chosen.items():
            sitting.ids[row].append(id)
        return chosen

    backend._lm.choose = noted  # type: ignore[method-assign]
    try:
        slots = [sitting.join(**session) for session in sessions]
        sitting.speak()
    finally:
        backend._lm.choose = choose  # type: ignore[method-assign]
    assert sitting.failures == {}
    assert backend.open_slots == 0
    return [Spoken(sitting.ids[slot], np.concatenate(sitting.samples[slot])) for slot in slots]


def test_a_session_says_alone_what_it_says_among_seven_others(folder: Path) -> None:
    backend = CosyVoiceBackend.load(folder, replace(BRIEF, prefill_chunk=40))
    mine = backend.voices.enroll(recording(), 16_000, "a tone that wobbles, and goes on and on").id
    other = backend.voices.enroll(recording(317.0), 16_000, "another").id
    sessions = [
        {
            "text": TEXTS[index % len(TEXTS)],
            "voice": ("nobody", mine, other)[index % 3],
            "seed": index,
            "late": 3 * index,
        }
        for index in range(8)
    ]
    together = said(backend, sessions)
    for session, among in zip(sessions, together, strict=True):
        [alone] = said(backend, [session])
        assert among.ids == alone.ids
        assert among.samples.shape == alone.samples.shape
        assert np.abs(among.samples - alone.samples).max() < 1e-4


def test_who_speaks_does_not_wait_for_a_long_prompt(v2_folder: Path) -> None:
    policy = replace(BRIEF, prefill_chunk=16, length=LengthRule(20, 20))
    backend = CosyVoiceBackend.load(v2_folder, policy)
    wordy = backend.voices.enroll(recording(), 16_000, "a tone that wobbles " * 10).id
    sitting = Sitting(backend)
    lengths = backend._lm._state.lengths
    speaker = sitting.join(TEXTS[0])
    while not lengths[speaker]:
        sitting.round()
    newcomer = sitting.join(TEXTS[1], voice=wordy)
    before, waited = int(lengths[speaker]), 0
    while not lengths[newcomer]:
        sitting.round()
        waited += 1
    # A round in which it was rendered for has no ids for it.
    assert int(lengths[speaker]) >= before + policy.decode_ids * (waited - 2)
    assert waited > 3  # 16 ids of the prompt at a time
    heard = backend._lm.opening(backend._open[newcomer].manner.prompt)
    assert heard.is_heard
    assert len(heard.units) > 3 * policy.prefill_chunk


def test_sessions_of_more_voices_than_are_kept_all_begin(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, prepared_voices=1, prefill_chunk=8))
    voices = [backend.voices.enroll(recording(200.0 + 30 * index), 16_000, "a tone").id for index in range(3)]
    together = said(backend, [{"text": TEXTS[1], "voice": voice} for voice in voices])
    assert all(len(spoken.samples) for spoken in together)
