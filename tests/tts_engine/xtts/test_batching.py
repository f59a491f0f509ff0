"""Common steps of XTTS sessions: equal ids and samples alone, in company and in any chunks; long prefills."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.engine.cosyvoice_sessions import SessionDriver
from shared.voices.tiny_cosyvoice import recording
from vivavoce.models.devices.execution import Precision
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn
from vivavoce.tts_engine.segmenter import Segment
from vivavoce.tts_engine.stream_request import Delivery
from vivavoce.tts_engine.xtts.backend import XttsBackend
from vivavoce.tts_engine.xtts.policy import SpeechLengthBound, XttsPolicy
from vivavoce.tts_engine.xtts.session import XttsSession

VOICE = "Random"
TEXTS = (
    "Well, who is it, at night? It is me.",
    "It is me.",
    "Nobody said so, and so I went home.",
    "And then? Then it was late.",
)
DELIVERIES = (
    Delivery(),
    Delivery(language="de", temperature=0.4),
    Delivery(top_k=3, repetition_penalty=1.5),
    Delivery(top_p=0.3, language="Spanish"),
)
SHORT = XttsPolicy(length=SpeechLengthBound(0.2, 0.2))  # random weights seldom end a sentence themselves


@pytest.fixture(scope="module", params=[Precision.FP32, Precision.INT8])
def backend(xtts_folder: Path, request: pytest.FixtureRequest) -> Iterator[XttsBackend]:
    policy = replace(SHORT, max_render_rows=4, prefill_chunk=16, precision=request.param)
    with closing(XttsBackend.load(xtts_folder, policy)) as loaded:
        yield loaded


class IdRecorder:
    """Keeps the speech ids of each session of a backend, by its place in the order of opening."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions: list[XttsSession] = []
        self.ids: dict[XttsSession, list[int]] = {}
        choose = XttsSession.choose

        def recorded(session: XttsSession, decoded: object) -> None:
            sentence = session.sentence
            assert sentence is not None
            choose(session, decoded)  # type: ignore[arg-type]
            self.ids.setdefault(session, []).append(sentence.ids[-1])

        monkeypatch.setattr(XttsSession, "choose", recorded)


def render(
    backend: XttsBackend, sessions: list[dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[list[int], np.ndarray]]:
    """Speech ids and samples of sessions that share steps."""
    with monkeypatch.context() as patch:
        recorder = IdRecorder(patch)
        driver = SessionDriver(backend)
        slots = [driver.add(**session) for session in sessions]  # type: ignore[arg-type]
        opened = [backend._sessions[slot] for slot in slots]
        driver.speak()
    assert driver.failures == {}
    assert backend.open_slots == 0
    return [
        (recorder.ids[session], np.concatenate(driver.samples[slot]))
        for session, slot in zip(opened, slots, strict=True)
    ]


def test_a_session_renders_alone_what_it_renders_among_seven_others(
    backend: XttsBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloned = backend.voices.enroll(recording(), 16_000).id
    sessions: list[dict[str, object]] = [
        {
            "text": TEXTS[index % 4],
            "voice": (VOICE, cloned)[index % 2],
            "seed": index,
            "delay": 3 * index,
            "delivery": DELIVERIES[index % 4],
        }
        for index in range(8)
    ]
    together = render(backend, sessions, monkeypatch)
    for session, (ids, samples) in zip(sessions, together, strict=True):
        [(ids_alone, samples_alone)] = render(backend, [session | {"delay": 0}], monkeypatch)
        assert ids == ids_alone
        assert samples.shape == samples_alone.shape
        assert np.abs(samples - samples_alone).max() < 1e-4


def test_chunks_do_not_change_the_samples(xtts_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered = []
    for first_hop, max_hop in ((1, 2), (10, 24), (10_000, 10_000)):
        with closing(
            XttsBackend.load(xtts_folder, replace(SHORT, first_hop=first_hop, max_hop=max_hop))
        ) as backend:
            rendered += render(backend, [{"text": TEXTS[0], "voice": VOICE, "seed": 3}], monkeypatch)
    for ids, samples in rendered[1:]:
        assert ids == rendered[0][0]
        assert np.abs(samples - rendered[0][1]).max() < 1e-4


def segment_of(backend: XttsBackend, text: str) -> Segment:
    segmenter = backend.segmenter(SlotRequest(VOICE, 1.0, 0))
    [segment] = [*segmenter.push(text), *segmenter.flush()]
    return segment


def test_a_session_continues_decoding_while_a_long_text_is_prefilled(xtts_folder: Path) -> None:
    policy = replace(SHORT, first_hop=100, prefill_chunk=16, length=SpeechLengthBound(10.0, 10.0))
    with closing(XttsBackend.load(xtts_folder, policy)) as backend:
        # The highest scores decide, and id 129 ends a sentence: it is never the highest here.
        request = SlotRequest(VOICE, 1.0, 0, Delivery(top_k=1))
        speaking, new = backend.open_slot(request), backend.open_slot(request)
        backend.step(0, [SlotTurn(speaking, segment_of(backend, TEXTS[1]))])
        while backend._sessions[speaking].needs_prefill:
            backend.step(0, [SlotTurn(speaking, None)])
        ids: list[int] = []
        turn = SlotTurn(new, segment_of(backend, "nobodysaidso andsoiwenthome " * 4))
        while turn.segment is not None or backend._sessions[new].needs_prefill:
            backend.step(0, [SlotTurn(speaking, None), turn])
            turn = SlotTurn(new, None)
            ids.append(len(backend._sessions[speaking].sentence.ids))  # type: ignore[union-attr]
        assert len(ids) > 4  # the voice, then 16 columns of text at a time
        assert np.diff(ids).tolist() == [policy.ids_per_decode_step] * (len(ids) - 1)


def test_a_cancelled_session_leaves_its_row_to_the_next(backend: XttsBackend) -> None:
    request = SlotRequest(VOICE, 1.0, 0)
    for _ in range(3):
        slot = backend.open_slot(request)
        backend.step(0, [SlotTurn(slot, segment_of(backend, TEXTS[1]))])
        assert backend._rows == {slot: 0}
        assert backend._gpt.rows.state.lengths[0] > 0
        backend.close_slot(slot)
        assert backend._gpt.rows.state.lengths[0] == 0


def test_scores_that_are_not_numbers_end_only_their_session(
    backend: XttsBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = SessionDriver(backend)
    first, second = (driver.add(TEXTS[1], voice=VOICE, seed=seed) for seed in (1, 2))
    choose, failing = XttsSession.choose, backend._sessions[second]

    def choose_or_fail(session: XttsSession, decoded: object) -> None:
        if session is failing:
            raise ValueError("the logits are not numbers")
        choose(session, decoded)  # type: ignore[arg-type]

    monkeypatch.setattr(XttsSession, "choose", choose_or_fail)
    driver.speak()
    assert list(driver.failures) == [second]
    assert len(np.concatenate(driver.samples[first]))
