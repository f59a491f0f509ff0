"""The CosyVoice backend and the engine, on small random weights that render noise."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the CosyVoice networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.unreadable_texts import UNREADABLE_TEXTS
from shared.voices.tiny_cosyvoice import (
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
    words_of,
)
from vivavoce.models.bundle_files import BundleSize
from vivavoce.models.cosyvoice.checkpoint.bundle import open_bundle
from vivavoce.models.cosyvoice.checkpoint.random_bundle import write_random_bundle
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.tts_engine.backends.base import SlotTurn, StepResult
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.policy import Interleave
from vivavoce.tts_engine.cosyvoice.session import CosyVoiceSession
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import (
    BadRequest,
    SynthesisFailed,
    UnreadableText,
)
from vivavoce.tts_engine.stream_request import Delivery

SHORT = "Well, it is me."
TEXT = "Well, who is it, at night? It is me."


@pytest.fixture(scope="module")
def backend(folder: Path) -> CosyVoiceBackend:
    return CosyVoiceBackend.load(folder, BRIEF)


@pytest.fixture(scope="module")
def v2_backend(v2_folder: Path) -> CosyVoiceBackend:
    """For tests that do not depend on the version."""
    return CosyVoiceBackend.load(v2_folder, BRIEF)


def test_every_speech_id_is_40_ms_of_audio(backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            chunks = await speak(engine, [TEXT])
            ranges = [chunk.provenance.speech_ids for chunk in chunks[:-1]]
            assert all(ranges)
            assert [start for start, _ in ranges] == [0, *(stop for _, stop in ranges[:-1])]
            assert chunks[-1].samples[1] == SAMPLES_PER_ID * spoken_ids(chunks) + FINAL_SILENCE
            assert max(abs(np.frombuffer(pcm(chunks), "<i2"))) > 300

    run(test())


def test_a_sentence_has_2_to_20_speech_ids_for_each_of_its_text_ids(folder: Path) -> None:
    backend = CosyVoiceBackend.load(folder)
    text_ids = len(open_bundle(folder).text_tokenizer().encode_plain(SHORT))

    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            assert 2 * text_ids <= spoken_ids(await speak(engine, [SHORT])) <= 20 * text_ids

    run(test())


@pytest.fixture(scope="module")
def whole(backend: CosyVoiceBackend) -> list[object]:
    """The chunks of a text that was pushed at once."""

    async def spoken() -> list[object]:
        async with await Engine.open(backend=backend) as engine:
            return content(await speak(engine, [TEXT], seed=3))

    return asyncio.run(spoken())


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.sets(st.integers(1, len(TEXT) - 1)))
def test_any_split_of_the_text_gives_the_same_chunks(
    backend: CosyVoiceBackend, whole: list[object], cuts: set[int]
) -> None:
    edges = [0, *sorted(cuts), len(TEXT)]
    pieces = [TEXT[start:stop] for start, stop in pairwise(edges)]

    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            assert content(await speak(engine, pieces, seed=3)) == whole

    run(test())


def test_text_pushed_while_chunks_are_read_gives_the_same_chunks(
    backend: CosyVoiceBackend, whole: list[object]
) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine, engine.stream(seed=3) as stream:
            reading = asyncio.create_task(collect(stream))
            for character in TEXT:
                stream.push_text(character)
                await asyncio.sleep(0.005)
            stream.end_input()
            assert content(await reading) == whole

    run(test())


def test_audio_begins_before_the_sentence_is_complete(v2_backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine, engine.stream() as stream:
            stream.push_text("Once upon a time, in a land beyond the sea, ")
            chunk = await anext(stream)
            assert chunk.words[0].text == "Once"
            assert not chunk.final

    run(test())


def test_a_flush_renders_the_words_that_the_model_held_back(v2_backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine, engine.stream() as stream:
            stream.push_text("Once upon a time, ")
            stream.flush()
            reported = []
            while reported[-1:] != ["time"]:
                reported += [word.text for word in (await anext(stream)).words]
            stream.push_text("and then")
            stream.end_input()
            reported += [word.text for word in words_of(await collect(stream))]
            assert reported == ["Once", "upon", "a", "time", "and", "then"]

    run(test())


@pytest.mark.parametrize("version", CosyVoiceVersion)
def test_hops_do_not_change_the_samples(tmp_path: Path, version: CosyVoiceVersion) -> None:
    write_random_bundle(tmp_path / "bundle", version, BundleSize.TINY, seed=1)
    whole = CosyVoiceBackend.load(tmp_path / "bundle", replace(BRIEF, first_hop=10_000, max_hop=10_000))
    hopping = CosyVoiceBackend.load(tmp_path / "bundle", BRIEF)

    async def samples(backend: CosyVoiceBackend) -> np.ndarray:
        async with await Engine.open(backend=backend) as engine:
            voice = engine.voices.enroll(recording(), 16_000, "a tone").id
            spoken = [
                *await speak(engine, [TEXT], voice=voice),
                *await speak(engine, [TEXT]),
                *await speak(engine, [TEXT], speed=1.5),
            ]
            return np.frombuffer(pcm(spoken), "<i2").astype(np.int32)

    async def test() -> None:
        at_once, in_hops = await samples(whole), await samples(hopping)
        assert len(at_once) == len(in_hops)
        assert np.abs(at_once - in_hops).max() < 33  # of 32767; a phase adds up rounding errors

    run(test())


@pytest.mark.parametrize("cloned", [False, True], ids=["bare", "cloned"])
def test_the_first_sound_needs_few_ids_and_the_second_chunk_a_block(
    backend: CosyVoiceBackend, cloned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, decoded_at, answer, result = 0, [], CosyVoiceSession.answer, CosyVoiceSession.render_result

    def count(session: CosyVoiceSession, id: int) -> None:
        nonlocal decoded
        decoded += 1
        answer(session, id)

    def note(session: CosyVoiceSession, samples: np.ndarray) -> StepResult:
        decoded_at.append(decoded)
        return result(session, samples)

    async def test() -> None:
        nonlocal decoded
        async with await Engine.open(backend=backend) as engine:
            voice = engine.voices.enroll(recording(), 16_000, "a tone").id if cloned else None
            for speed in (1.0, 1.5) if cloned else (1.0, 0.7, 1.5):
                decoded, decoded_at[:] = 0, ()
                text = "Once upon a time there was a small voice, and it spoke for a while."
                chunks = [
                    chunk
                    for chunk in await speak(engine, [text], voice=voice, speed=speed)
                    if chunk.provenance.speech_ids
                ]
                first = 25 if speed > 1 else {11: 17, 20: 8}[backend.chunk_policy["prompt_tail"]]
                assert decoded_at[:3] == [first, first + 25, first + 75]
                assert [chunk.provenance.speech_ids_needed for chunk in chunks[:3]] == decoded_at[:3]
                assert chunks[0].seconds > 0.1

    monkeypatch.setattr(CosyVoiceSession, "answer", count)
    monkeypatch.setattr(CosyVoiceSession, "render_result", note)
    run(test())


def test_a_session_chooses_its_first_hop(v2_backend: CosyVoiceBackend) -> None:
    async def first_chunk(engine: Engine, text: str, first_hop: int | None) -> AudioChunk:
        async with engine.stream(delivery=Delivery(first_hop=first_hop)) as stream:
            stream.push_text(text)
            stream.end_input()
            return await anext(stream)

    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine:
            text = "Once upon a time there was a small voice, and it spoke for a while."
            first = [await first_chunk(engine, text, hop) for hop in (None, 1, 26, 10_000)]
            first_ids = [chunk.provenance.speech_ids for chunk in first]
            # Blocks, of which the first has 14 ids of the sentence; at most the longest chunk.
            assert first_ids == [(0, 14), (0, 14), (0, 39), (0, 39)]
            with pytest.raises(BadRequest, match="first_hop"):
                engine.stream(delivery=Delivery(first_hop=0))

    run(test())


def test_concurrent_sessions_render_what_each_renders_alone(backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            alone = [await speak(engine, [SHORT], seed=seed) for seed in range(3)]
            together = await asyncio.gather(*(speak(engine, [SHORT], seed=seed) for seed in range(3)))
            assert len({pcm(chunks) for chunks in alone}) == 3
            for one, among in zip(alone, together, strict=True):
                assert [chunk.samples for chunk in among] == [chunk.samples for chunk in one]
                assert [word.text for word in words_of(among)] == [word.text for word in words_of(one)]
                here, there = (np.frombuffer(pcm(chunks), "<i2").astype(int) for chunks in (one, among))
                assert np.abs(here - there).max() <= 4  # 1e-4 of full scale, and rounding

    run(test())


def test_every_word_is_reported_once_in_order_and_within_the_audio(v2_backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine:
            chunks = await speak(engine, [TEXT])
            words = words_of(chunks)
            assert [word.text for word in words] == TEXT.replace(",", "").replace("?", "").replace(
                ".", ""
            ).split()
            starts = [word.start_s for word in words]
            assert starts == sorted(starts)
            assert all(word.start_s <= word.stop_s for word in words)
            assert words[-1].stop_s <= chunks[-1].samples[1] / SAMPLE_RATE
            for chunk in chunks:
                assert all(word.start_s <= chunk.samples[1] / SAMPLE_RATE + 0.001 for word in chunk.words)

    run(test())


@pytest.mark.parametrize("speed", [0.5, 1.7, 2.0])
def test_speed_scales_the_duration(backend: CosyVoiceBackend, speed: float) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            chunks = await speak(engine, [SHORT], speed=speed)
            length = chunks[-1].samples[1] - FINAL_SILENCE
            assert length == pytest.approx(SAMPLES_PER_ID * spoken_ids(chunks) / speed, abs=SAMPLES_PER_ID)
            assert words_of(chunks)[-1].stop_s <= chunks[-1].samples[1] / SAMPLE_RATE

    run(test())


def test_a_pause_follows_every_sentence_but_the_last(folder: Path) -> None:
    backend = CosyVoiceBackend.load(folder, replace(BRIEF, pause_share=0.5))

    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            chunks = await speak(engine, ["It is me. It is me."])
            silence = chunks[-1].samples[1] - SAMPLES_PER_ID * spoken_ids(chunks) - FINAL_SILENCE
            assert silence == round(0.5 * 0.32 * SAMPLE_RATE)

    run(test())


def test_a_cancelled_session_ends_within_a_step(v2_backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine:
            rendered = 0
            step = v2_backend.step

            def counted(worker: int, turns: Sequence[SlotTurn]) -> Any:
                nonlocal rendered
                rendered += 1
                return step(worker, turns)

            v2_backend.step = counted  # type: ignore[method-assign]
            try:
                for chunks in range(3):
                    async with engine.stream() as stream:
                        stream.push_text(TEXT * 20)
                        for _ in range(chunks):
                            await anext(stream)
                        with engine._sessions.lock:  # no step is begun between the two
                            before = rendered
                            stream.cancel()
                    while v2_backend.open_slots:
                        await asyncio.sleep(0.001)
                    assert rendered <= before + 2  # the one under way, and one that was begun meanwhile
            finally:
                v2_backend.step = step  # type: ignore[method-assign]
            assert engine.active_streams == 0

    run(test())


def test_a_reused_slot_renders_what_a_new_one_renders(folder: Path) -> None:
    policy = replace(BRIEF, slots=1)

    async def test() -> None:
        async with await Engine.open(backend=CosyVoiceBackend.load(folder, policy)) as engine:
            first = await speak(engine, [SHORT])
            await speak(engine, [TEXT], seed=9)
            async with engine.stream() as stream:
                stream.push_text(TEXT)
                await anext(stream)
            while engine.active_streams:
                await asyncio.sleep(0.001)
            assert content(await speak(engine, [SHORT])) == content(first)

    run(test())


def test_a_failure_ends_its_own_session_only(v2_backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine:
            bad = engine.voices.enroll(recording(317.0), 16_000)
            begin = v2_backend._render_stage.runner.begin_sentence

            def failing(flow_prompt: Any, *arguments: Any) -> Any:
                if flow_prompt.id == bad.id:
                    raise RuntimeError("bad voice")
                return begin(flow_prompt, *arguments)

            v2_backend._render_stage.runner.begin_sentence = failing  # type: ignore[method-assign]
            try:
                good = asyncio.create_task(speak(engine, [TEXT]))
                with pytest.raises(SynthesisFailed, match="bad voice"):
                    await speak(engine, [SHORT], voice=bad.id)
                assert (await good)[-1].final
            finally:
                v2_backend._render_stage.runner.begin_sentence = begin  # type: ignore[method-assign]
            assert v2_backend.open_slots == 0
            assert (await speak(engine, [SHORT], voice=bad.id))[-1].final
            engine.voices.remove(bad.id)

    run(test())


@pytest.mark.parametrize("text", [UNREADABLE_TEXTS[name] for name in ("Hindi", "Hebrew", "Thai")] + ["ᚠᛇᚻ"])
def test_a_script_of_no_language_of_the_model_is_an_error(v2_backend: CosyVoiceBackend, text: str) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine:
            with pytest.raises(UnreadableText, match="can read no word"):
                await speak(engine, [text])
            assert v2_backend.open_slots == 0
            async with engine.stream() as stream:
                stream.push_text(f"{text} {SHORT}")
                stream.end_input()
                assert stream.unread_characters > 0
                assert any(chunk.words for chunk in [chunk async for chunk in stream])

    run(test())


@pytest.mark.parametrize("language", ["Chinese", "Japanese", "Korean"])
def test_the_scripts_of_the_models_languages_are_read(v2_backend: CosyVoiceBackend, language: str) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine, engine.stream() as stream:
            stream.push_text(UNREADABLE_TEXTS[language])
            stream.flush()
            assert stream.unread_characters == 0
            assert (await anext(stream)).pcm

    run(test())


def test_text_without_a_full_stop_is_rendered_in_sentences_of_bounded_length(
    v2_folder: Path, v2_backend: CosyVoiceBackend
) -> None:
    text = "and on and on " * 15
    text_ids = len(open_bundle(v2_folder).text_tokenizer().encode_plain(text))

    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine:
            chunks = await speak(engine, [text])
            assert [word.text for word in words_of(chunks)] == text.split()
            assert 2 * text_ids <= spoken_ids(chunks) <= 3 * text_ids

    run(test())


UNUSUAL_TEXT = {"endless": "x" * 120, "kana": "ツ" * 20, "smiles": "\U0001f642" * 9 + "a"}


@pytest.mark.parametrize("text", UNUSUAL_TEXT.values(), ids=UNUSUAL_TEXT)
def test_unusual_text_is_rendered(v2_backend: CosyVoiceBackend, text: str) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine:
            assert (await speak(engine, [text]))[-1].final
            assert v2_backend.open_slots == 0

    run(test())


def test_50_000_characters_are_accepted_and_not_rendered_ahead(v2_backend: CosyVoiceBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=v2_backend) as engine, engine.stream() as stream:
            stream.push_text("Nobody writes this much. " * 2000)
            stream.end_input()
            assert not (await anext(stream)).final
            await asyncio.sleep(0.2)
            assert stream._session.unread_s < 1.0 + 0.04 * BRIEF.max_hop
            assert v2_backend.open_slots == 1

    run(test())


@pytest.mark.parametrize("interleave", Interleave)
def test_every_interleave_renders(v2_folder: Path, interleave: Interleave) -> None:
    policy = replace(BRIEF, interleave=interleave, slots=2, lm_context_ids=450)
    backend = CosyVoiceBackend.load(v2_folder, policy)

    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            assert (await speak(engine, [SHORT]))[-1].final
        assert backend.open_slots == 0

    run(test())


def test_memory_does_not_grow_over_many_utterances(v2_folder: Path) -> None:
    def resident_mb() -> float:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

    async def test() -> None:
        backend = CosyVoiceBackend.load(v2_folder, replace(BRIEF, slots=2))
        async with await Engine.open(backend=backend) as engine:
            for seed in range(6):
                await speak(engine, [SHORT], seed=seed)
            before = resident_mb()
            for seed in range(12):
                async with engine.stream(seed=seed) as stream:
                    stream.push_text(SHORT)
                    stream.end_input()
                    if seed % 3:
                        await collect(stream)
                    else:
                        await anext(stream)
            assert resident_mb() - before < 15
            assert backend.open_slots == 0

    run(test())
