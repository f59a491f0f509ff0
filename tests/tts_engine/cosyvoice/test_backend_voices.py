"""Tests of voices, deliveries and voice conversion of the CosyVoice backend, on small random weights."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip(
    "torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice"
)

from shared.voices.tiny_cosyvoice import (  # noqa: E402
    BRIEF,
    FINAL_SILENCE,
    SAMPLES_PER_ID,
    collect,
    content,
    pcm,
    recording,
    run,
    speak,
    spoken_ids,
)
from vivavoce.tts_engine.backends.base import SlotRequest  # noqa: E402
from vivavoce.tts_engine.chunk import AudioChunk  # noqa: E402
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend  # noqa: E402
from vivavoce.tts_engine.engine import Engine  # noqa: E402
from vivavoce.tts_engine.errors import BadRequest, UnknownVoice  # noqa: E402
from vivavoce.tts_engine.stream_request import Delivery, DeliveryMode  # noqa: E402
from vivavoce.tts_engine.voices.store import VoiceMetadata, VoiceStore  # noqa: E402

SHORT = "Well, it is me."


@pytest.fixture(scope="module")
def backend(folder: Path) -> CosyVoiceBackend:
    return CosyVoiceBackend.load(folder, BRIEF)


@pytest.fixture(scope="module")
def v2_backend(v2_folder: Path) -> CosyVoiceBackend:
    """For tests that do not depend on the version."""
    return CosyVoiceBackend.load(v2_folder, BRIEF)


def chunks_are_whole(chunks: Sequence[AudioChunk]) -> bool:
    """Whether every speech id is 40 ms of the audio."""
    return chunks[-1].samples[1] == SAMPLES_PER_ID * spoken_ids(chunks) + FINAL_SILENCE


def test_the_first_speaker_of_the_bundle_is_the_default_voice(v2_backend: CosyVoiceBackend) -> None:
    assert v2_backend.voices.default.id == "nobody"
    assert "nobody" in v2_backend.voices
    assert "unknown" not in v2_backend.voices
    with pytest.raises(UnknownVoice, match="loaded: nobody"):
        v2_backend.voices.get("unknown")


def test_an_enrolled_voice_renders_and_is_unknown_once_removed(backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            voice = engine.voices.enroll(recording(), 16_000, "a tone that wobbles")
            assert engine.voices.enroll(recording(), 16_000, "a tone that wobbles") == voice
            assert [each.id for each in engine.voices] == ["nobody", voice.id]
            mine = await speak(engine, [SHORT], voice=voice.id)
            assert chunks_are_whole(mine)
            assert pcm(mine) != pcm(await speak(engine, [SHORT]))
            engine.voices.remove(voice.id)
            assert [each.id for each in engine.voices] == ["nobody"]
            with pytest.raises(UnknownVoice):
                engine.stream(voice=voice.id)
            with pytest.raises(UnknownVoice):
                engine.voices.remove("nobody")

    run(test())


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.zeros(80_000, np.float32), 16_000, "silent"),
        (recording(seconds=1.0), 16_000, "1.0 s long; 3 to 30 s"),
        (recording(seconds=40.0), 16_000, "40.0 s long; 3 to 30 s"),
        (recording(), 4_000, "4,000 Hz; 8,000 to 192,000 Hz"),
        (np.stack([recording()] * 2, 1), 16_000, "one channel"),
        (recording() + np.float32(np.nan), 16_000, "NaN"),
    ],
)
def test_an_unusable_recording_is_refused_with_the_limit(
    v2_backend: CosyVoiceBackend, samples: np.ndarray, rate: int, message: str
) -> None:
    before = len(v2_backend.voices)
    with pytest.raises(BadRequest, match=message):
        v2_backend.voices.enroll(samples, rate)
    assert len(v2_backend.voices) == before


def test_modes_and_sampling_change_the_samples(backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            voice = engine.voices.enroll(recording(), 16_000, "a tone that wobbles").id
            ways = [
                Delivery(),
                Delivery(mode=DeliveryMode.CROSS_LINGUAL),
                Delivery(instruction="softly"),
                Delivery(temperature=3.0, top_k=200, top_p=1.0),
                Delivery(repetition_window=0),
            ]
            spoken = [pcm(await speak(engine, [SHORT], voice=voice, delivery=way)) for way in ways]
            assert len(set(spoken)) == len(ways)
            zero_shot = Delivery(mode=DeliveryMode.ZERO_SHOT)
            assert pcm(await speak(engine, [SHORT], voice=voice, delivery=zero_shot)) == spoken[0]
            engine.voices.remove(voice)

    run(test())


@pytest.mark.parametrize(
    ("delivery", "message"),
    [
        (Delivery(mode=DeliveryMode.ZERO_SHOT), "needs a voice with a recording"),
        (Delivery(mode=DeliveryMode.INSTRUCT), "an instruction goes with instruct"),
        (
            Delivery(mode=DeliveryMode.CROSS_LINGUAL, instruction="softly"),
            "an instruction goes with instruct",
        ),
        (Delivery(instruction="softly " * 100), "700 characters; at most 500"),
        (Delivery(temperature=0.0), "temperature"),
        (Delivery(top_p=1.5), "top_p"),
        (Delivery(top_k=0), "top_k"),
    ],
)
def test_an_unsupported_delivery_is_refused(
    v2_backend: CosyVoiceBackend, delivery: Delivery, message: str
) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine:
            with pytest.raises(BadRequest, match=message):
                engine.stream(delivery=delivery)
            assert (engine.active_streams, v2_backend.open_slots) == (0, 0)

    run(test())


def test_a_prompt_that_exceeds_the_context_is_refused(v2_folder: Path) -> None:
    backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, lm_context_ids=450))
    voice = backend.voices.enroll(recording(), 16_000, "a tone " * 50)
    with pytest.raises(BadRequest, match="the model has room for 450"):
        backend.open_slot(SlotRequest(voice.id, 1.0, 0))
    assert backend.open_slots == 0


def test_a_recording_is_converted_to_another_voice(backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            async with await engine.convert(recording(500.0, 4.0), 16_000) as stream:
                chunks = await collect(stream)
            assert spoken_ids(chunks) == 100
            assert chunks_are_whole(chunks)
            with pytest.raises(BadRequest, match="3 to 30 s"):
                await engine.convert(recording(500.0, 1.0), 16_000)
            assert backend.open_slots == 0

    run(test())


def test_a_stored_voice_renders_as_the_enrolled_one(folder: Path, tmp_path: Path) -> None:
    async def test() -> None:
        backend = CosyVoiceBackend.load(folder, BRIEF, voices=tmp_path)
        async with await Engine.open(backend=backend) as engine:
            assert isinstance(backend.voices.store, VoiceStore)
            stored = backend.voices.store.add(
                backend.voices.encode_prompt(recording(), 16_000, "a tone"), name="Anna"
            )
            enrolled = engine.voices.enroll(recording(), 16_000, "a tone")
            assert engine.voices.get(stored.id).description == "Anna"
            on_file = await speak(engine, [SHORT], voice=stored.id)
            assert content(on_file) == content(await speak(engine, [SHORT], voice=enrolled.id))
            backend.voices.store.remove(stored.id)
            with pytest.raises(UnknownVoice):
                engine.stream(voice=stored.id)

    run(test())


@pytest.mark.parametrize(
    ("enrolled", "requested", "expected"),
    [("de-AT", None, "de"), ("de-AT", "fr", "fr"), ("sv", None, "en"), ("", None, "en")],
)
def test_text_without_a_language_is_read_in_the_language_of_the_voice(
    v2_folder: Path, tmp_path: Path, enrolled: str, requested: str | None, expected: str
) -> None:
    async def test() -> None:
        backend = CosyVoiceBackend.load(v2_folder, BRIEF, voices=tmp_path)
        async with await Engine.open(backend=backend) as engine:
            assert isinstance(backend.voices.store, VoiceStore)
            prompt = backend.voices.encode_prompt(recording(), 16_000, "a tone")
            voice = backend.voices.store.add(prompt, name="Anna", about=VoiceMetadata(enrolled)).id
            found = await speak(engine, ["21 x"], voice=voice, delivery=Delivery(language=requested))
            assert content(found) == content(
                await speak(engine, ["21 x"], voice=voice, delivery=Delivery(language=expected))
            )
            other = Delivery(language="it")
            assert content(found) != content(await speak(engine, ["21 x"], voice=voice, delivery=other))

    run(test())


def test_a_stored_voice_is_read_before_the_lock_is_taken(
    v2_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        backend = CosyVoiceBackend.load(v2_folder, BRIEF, voices=tmp_path)
        async with await Engine.open(backend=backend) as engine:
            store = backend.voices.store
            assert isinstance(store, VoiceStore)
            voice = store.add(backend.voices.encode_prompt(recording(), 16_000, "a tone"), name="Anna").id
            locked: list[bool] = []
            for name in ("find", "get"):
                monkeypatch.setattr(store, name, _watched(getattr(store, name), engine, locked))
            engine.stream(voice=voice).cancel()
            assert locked == [False, False]

    run(test())


def _watched(lookup: Callable[[str], object], engine: Engine, locked: list[bool]) -> Callable[[str], object]:
    """Record at each lookup whether the engine's lock is held."""

    def watched(voice_id: str) -> object:
        locked.append(engine._sessions.lock._is_owned())  # type: ignore[attr-defined]
        return lookup(voice_id)

    return watched
