"""The XTTS backend behind the engine, on small random weights that render noise."""

import asyncio
import logging
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.voices.tiny_cosyvoice import FINAL_SILENCE, content, pcm, run, speak, spoken_ids, words_of
from vivavoce.models.devices.execution import Precision
from vivavoce.models.xtts.checkpoint.bundle import open_bundle
from vivavoce.models.xtts.config import XTTS_IDS_PER_S
from vivavoce.models.xtts.gpt import XttsPrompt
from vivavoce.models.xtts.networks import load_networks
from vivavoce.models.xtts.text.romanizer import _japanese
from vivavoce.tts_engine.backends.loading import load_backend
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest, LanguageNotSpoken, SynthesisFailed, UnreadableText
from vivavoce.tts_engine.stream_request import Delivery
from vivavoce.tts_engine.xtts.backend import XttsBackend
from vivavoce.tts_engine.xtts.policy import SpeechLengthBound, XttsPolicy

TEXT = "Well, who is it, at night? It is me."
BRIEF = XttsPolicy(length=SpeechLengthBound(0.2, 0.2), pause_share=0.0)


@pytest.fixture(scope="module")
def backend(xtts_folder: Path) -> Iterator[XttsBackend]:
    with closing(XttsBackend.load(xtts_folder, BRIEF)) as loaded:
        yield loaded


def test_a_folder_is_loaded_as_xtts_and_its_licence_is_logged(
    xtts_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), closing(load_backend(str(xtts_folder))) as backend:
        assert isinstance(backend, XttsBackend)
    assert "Coqui Public Model License" in caplog.text
    assert "non-commercial use only" in caplog.text


def test_every_word_is_spoken(backend: XttsBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            words = words_of(await speak(engine, [TEXT]))
            assert [word.text for word in words] == "Well who is it at night It is me".split()
            assert all(before.start_s <= after.start_s for before, after in pairwise(words))

    run(test())


def test_the_speech_ids_of_the_chunks_are_those_of_the_audio(backend: XttsBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            chunks = await speak(engine, [TEXT])
            ranges = [chunk.provenance.speech_ids for chunk in chunks[:-1]]
            assert [each and each[0] for each in ranges] == [
                0,
                *(each[1] for each in ranges[:-1] if each),
            ]
            samples = chunks[-1].samples[1] - FINAL_SILENCE
            assert samples / 24_000 == pytest.approx(spoken_ids(chunks) / XTTS_IDS_PER_S, abs=0.06)
            assert max(abs(np.frombuffer(pcm(chunks), "<i2"))) > 300

    run(test())


def test_any_split_of_the_text_gives_the_same_chunks(backend: XttsBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            whole = await speak(engine, [TEXT], seed=3)
            for parts in ([*TEXT], [TEXT[:20], TEXT[20:]]):
                assert content(await speak(engine, parts, seed=3)) == content(whole)

    run(test())


def test_a_higher_speed_makes_the_same_ids_shorter(backend: XttsBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            usual, fast = [await speak(engine, [TEXT], speed=speed) for speed in (1.0, 2.0)]
            assert spoken_ids(usual) == spoken_ids(fast)
            assert fast[-1].samples[0] == pytest.approx(usual[-1].samples[0] / 2, rel=0.15)

    run(test())


def test_a_short_text_that_the_model_does_not_end_is_cut_and_faded(
    xtts_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling never draws the id that ends a sentence here, as the model often does after one word."""

    async def test() -> None:
        monkeypatch.setattr(
            "vivavoce.tts_engine.xtts.session.sample_speech_ids", lambda logits, inputs: [5] * len(inputs)
        )
        backend = XttsBackend.load(xtts_folder)
        async with await Engine.open(backend=backend) as engine:
            chunks = await speak(engine, ["Yes."])
            speech = np.frombuffer(pcm(chunks), "<i2")[:-FINAL_SILENCE]
            assert 0.5 < len(speech) / 24_000 < 2.0
            assert speech[-1] == 0
            assert np.abs(speech[-600:]).max() > 0

    run(test())


@pytest.mark.parametrize("bad", [{"temperature": 0.0}, {"repetition_penalty": 0.0}, {"first_hop": 0}])
def test_sampling_outside_its_range_is_refused(backend: XttsBackend, bad: dict[str, float]) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            with pytest.raises(BadRequest, match=next(iter(bad))):
                engine.stream(delivery=Delivery(**bad))  # type: ignore[arg-type]

    run(test())


def test_an_unknown_language_is_refused_with_the_list(backend: XttsBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            with pytest.raises(BadRequest, match=r"'sv'.*Arabic \(ar\).*Chinese \(zh\)"):
                engine.stream(delivery=Delivery(language="sv"))
            for language in ("German", "de-AT", "zh-cn", "pt_BR", "auto"):
                engine.stream(delivery=Delivery(language=language)).cancel()

    run(test())


def test_a_part_in_another_language_is_spoken_as_a_text_in_it(backend: XttsBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            spoken = []
            for whole, part in (("en", None), ("de", None), ("en", "de-AT")):
                async with engine.stream(delivery=Delivery(language=whole)) as stream:
                    stream.set_language(part)
                    stream.push_text("Um 10 Uhr.")
                    stream.end_input()
                    spoken.append(b"".join([chunk.pcm async for chunk in stream]))
            assert spoken[2] == spoken[1] != spoken[0]
            with pytest.raises(LanguageNotSpoken, match="'xx'"):
                engine.stream().set_language("xx")

    run(test())


def test_text_over_the_limit_of_its_language_is_spoken_in_parts(backend: XttsBackend) -> None:
    text = " ".join(f"człowiek numer {index}" for index in range(30))  # 570 letters without a stop

    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            words = words_of(await speak(engine, [text], delivery=Delivery(language="pl")))
            assert len(words) == 90

    run(test())


@pytest.mark.parametrize("language", ["zh", None])
def test_chinese_script_and_pinyin_are_the_same_speech(backend: XttsBackend, language: str | None) -> None:
    pytest.importorskip("pypinyin", reason="Chinese needs pypinyin: make test EXTRAS=dev,stt,cosyvoice")

    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            script = await speak(engine, ["你好。"], delivery=Delivery(language=language))
            assert [word.text for word in words_of(script)] == ["你", "好"]
            pinyin = await speak(engine, ["ni3hao3,"], delivery=Delivery(language="zh"))
            assert min(spoken_ids(script), spoken_ids(pinyin)) > 3
            with pytest.raises(UnreadableText):
                await speak(engine, ["안녕."], delivery=Delivery(language="zh"))

    run(test())


@pytest.mark.parametrize(
    ("text", "language", "package", "sentence"),
    [
        ("你好。", "zh", "pypinyin", r"Chinese script needs the extra 'cosyvoice'"),
        ("はい。", "ja", "cutlet", r"Japanese script needs the extra 'japanese'"),
    ],
)
def test_a_script_without_its_library_is_one_sentence(
    backend: XttsBackend,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    language: str,
    package: str,
    sentence: str,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    _japanese.cache_clear()

    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            with pytest.raises(SynthesisFailed, match=sentence):
                await speak(engine, [text], delivery=Delivery(language=language))

    run(test())

    run(test())


def test_a_cancelled_stream_frees_its_slot(xtts_folder: Path) -> None:
    async def test() -> None:
        backend = XttsBackend.load(xtts_folder, replace(BRIEF, length=SpeechLengthBound(100.0, 1.0)))
        async with await Engine.open(backend=backend) as engine:
            stream = engine.stream(delivery=Delivery(top_k=1))
            stream.push_text(TEXT)
            await anext(stream)
            stream.cancel()
            async with asyncio.timeout(60):
                while backend.open_slots:
                    await asyncio.sleep(0.01)
            assert engine.active_streams == 0

    run(test())


@pytest.mark.parametrize("reduced", [Precision.BF16, Precision.INT8])
def test_a_reduced_language_model_has_nearly_the_same_scores(xtts_folder: Path, reduced: Precision) -> None:
    bundle = open_bundle(xtts_folder)
    prompt = XttsPrompt(next(iter(bundle.voices().values())).latents, range(8, 40))
    scores = []
    for precision in (Precision.FP32, reduced):
        gpt = load_networks(bundle, precision=precision).gpt
        x, valid = gpt.embed_prompts([prompt])
        hidden, _ = gpt.step(x, gpt.init_state(1, 200), valid)
        scores.append(gpt.logits(gpt.latents(hidden))[0])
    assert 0 < (scores[1] - scores[0]).abs().max() < 0.05 * scores[0].abs().max()


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.INT8])
def test_a_bundle_speaks_in_fewer_bits(xtts_folder: Path, precision: Precision) -> None:
    async def test() -> None:
        backend = XttsBackend.load(xtts_folder, replace(BRIEF, precision=precision))
        async with await Engine.open(backend=backend) as engine:
            assert words_of(await speak(engine, ["It is me."]))

    run(test())


def test_settings_of_other_bundles_are_refused(xtts_folder: Path) -> None:
    with pytest.raises(BadRequest, match="XTTS has fp32, bf16, fp16, int8"):
        load_backend(str(xtts_folder), precision="int4")
    with pytest.raises(BadRequest, match="torch only"):
        load_backend(str(xtts_folder), executor="onnxruntime")
