"""Kokoro in the engine: word times, mixtures, languages, and faults of the folder."""

import asyncio
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from shared.audio.sounds_in_place import TEXT as TEXT_WITH_HISSES
from shared.audio.sounds_in_place import check_sounds_in_place, words_of
from shared.engine.engine_streams import pcm, speak
from shared.engine.kept_noise import wait_until_written
from shared.voices.installed_voices import kokoro_folder
from shared.voices.tiny_kokoro import write_tiny_kokoro
from shared.voices.voice_registry_setup import SPEAKER
from vivavoce.gateway.voice_registry import VoicePolicy, VoiceRegistry
from vivavoce.tts_engine.backends.voice_kind import KeptSpeechConfig
from vivavoce.tts_engine.chunk import SAMPLE_RATE
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest, BundleError, UnknownVoice, UnreadableText
from vivavoce.tts_engine.kokoro import backend as kokoro
from vivavoce.tts_engine.kokoro.backend import parse_mixture
from vivavoce.tts_engine.reading.languages.mul.rules import LanguageGrammars
from vivavoce.tts_engine.reading.normalizer import SpokenWord
from vivavoce.tts_engine.stream_request import Delivery
from vivavoce.tts_engine.voice_kit import clause_backend
from vivavoce.tts_engine.voice_kit.espeak import PhonemeWord

TEXT = "Good morning, and thank you for waiting. Your PIN is 0417."


def test_words_have_times_and_any_split_gives_the_same_chunks(tmp_path: Path) -> None:
    async def test() -> None:
        async with await Engine.open(str(write_tiny_kokoro(tmp_path))) as engine:
            chunks = await speak(engine, TEXT)
            again = await speak(engine, TEXT, split=1)
            assert [(chunk.pcm, chunk.words) for chunk in chunks] == [
                (chunk.pcm, chunk.words) for chunk in again
            ]
            words = [word for chunk in chunks for word in chunk.words]
            assert [word.text for word in words] == [word.strip(".,") for word in TEXT.split()]
            starts = [word.start_s for word in words]
            assert starts == sorted(starts)
            assert all(0 <= word.start_s < word.stop_s for word in words)
            assert words[-1].stop_s <= chunks[-1].samples[1] / SAMPLE_RATE

    asyncio.run(asyncio.wait_for(test(), 60))


def test_speech_on_file_is_that_of_the_same_weights(tmp_path: Path) -> None:
    config = KeptSpeechConfig(10_000_000, tmp_path / "kept")

    async def spoken(bundle: Path) -> tuple[list[object], float]:
        """The chunks, and the part of their seconds that was read from files."""
        async with await Engine.open(str(bundle), kept_speech=config, warm_up=False) as engine:
            chunks = await speak(engine, TEXT)
            (filed,) = engine.metrics.filed_audio_seconds.collect()
            part = filed.samples[0].value / engine.metrics.rendered_s
        wait_until_written()
        return [(chunk.pcm, chunk.words) for chunk in chunks], part

    async def test() -> None:
        bundle = write_tiny_kokoro(tmp_path / "one", ("af_one", "am_two"))
        first, filed = await spoken(bundle)
        assert filed == 0 and await spoken(bundle) == (first, pytest.approx(1))
        other = write_tiny_kokoro(tmp_path / "other", ("af_one", "am_two", "jm_three"))
        assert (await spoken(other))[1] == 0

    asyncio.run(asyncio.wait_for(test(), 120))


def test_a_mixture_of_voices_speaks_and_is_found_by_name(tmp_path: Path) -> None:
    async def test() -> None:
        async with await Engine.open(str(write_tiny_kokoro(tmp_path))) as engine:
            assert [voice.id for voice in engine.voices] == ["af_one", "am_two", "jm_three"]
            for voice in ("am_two", "af_one(2)+am_two", "af_one + am_two(0.5)"):
                assert sum(chunk.seconds for chunk in await speak(engine, TEXT, voice=voice)) > 1
            with pytest.raises(UnknownVoice, match=r"mixtures as af_one\(2\)\+jm_three\(1\)"):
                engine.stream(voice="af_one+nobody")
            registry = VoiceRegistry(engine.voices, VoicePolicy(aliases={"duo": "af_one+am_two"}))
            assert registry.resolve("af_one(2)+am_two", SPEAKER) == "af_one(2)+am_two"
            assert registry.resolve("duo", SPEAKER) == "af_one+am_two"
            with pytest.raises(UnknownVoice):
                registry.resolve("af_one+nobody", SPEAKER)
            registry.close()

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("a", {"a": 1}),
        ("a(2)+b(0.5)", {"a": 2, "b": 0.5}),
        ("a+a(2)", {"a": 3}),
        ("a(0)", None),
        ("a+", None),
        ("a(-1)+b", None),
        ("a(nan)", None),
        ("+".join(["a"] * 50), None),
    ],
)
def test_names_of_mixtures(name: str, weights: dict[str, float] | None) -> None:
    mixture = parse_mixture(name, {"a": None, "b": None})
    assert (mixture and dict(mixture.weights)) == weights


def test_text_in_a_language_that_it_lacks_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with await Engine.open(str(write_tiny_kokoro(tmp_path))) as engine:
            with pytest.raises(
                BadRequest, match=r"speaks en-US, en-GB, .*; the language of the text is 'de'"
            ):
                engine.stream(delivery=Delivery(language="de"))
            with pytest.raises(UnreadableText):
                await speak(engine, "你好", voice="jm_three")

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.parametrize("voice", ["af_one", "bf_two"])
def test_phonemes_of_a_word_are_spoken_and_those_it_lacks_are_named_once(
    tmp_path: Path, voice: str, caplog: pytest.LogCaptureFixture
) -> None:
    if voice.startswith("b") and shutil.which("espeak-ng") is None:
        pytest.skip("needs espeak-ng: apt-get install espeak-ng")

    async def test() -> None:
        async with await Engine.open(str(write_tiny_kokoro(tmp_path, ("af_one", "bf_two")))) as engine:
            texts = ("a cat", "a [dog](/kæt/)", "a [dog](/kǂæt/)", "a dog")
            with caplog.at_level(logging.WARNING):
                cat, *same, dog = [await speak(engine, text, voice=voice) for text in texts]
                await speak(engine, texts[2], voice=voice)
            # The packaged voice's rules have the same phonemes for "cat"; espeak-ng has others.
            assert [pcm(chunks) == pcm(cat) for chunks in same] == [voice.startswith("a")] * 2
            assert pcm(same[0]) == pcm(same[1]) != pcm(dog)
            assert [word.text for chunk in same[0] for word in chunk.words] == ["a", "dog"]

    asyncio.run(asyncio.wait_for(test(), 60))
    assert [record.getMessage() for record in caplog.records] == [
        "Kokoro has no sound for ǂ, which is left out"
    ]


def test_a_part_of_a_text_in_another_language_has_the_phonemes_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phonemized: list[tuple[str, list[str]]] = []

    class RecordingPhonemizer:
        def __init__(self, name: str) -> None:
            self.name = name

        def phonemize_phrases(self, words: Sequence[SpokenWord]) -> list[PhonemeWord]:
            phonemized.append((self.name, [word.text for word in words]))
            return [PhonemeWord("a") for _ in words]

        def close(self) -> None: ...

    monkeypatch.setattr(kokoro, "EspeakPhonemizer", RecordingPhonemizer)

    async def test() -> None:
        async with await Engine.open(str(write_tiny_kokoro(tmp_path))) as engine:
            async with engine.stream(voice="af_one") as stream:
                for text, language in (("Take 2 ", None), ("billets 21 ", "fr"), ("now", None)):
                    stream.set_language(language)
                    stream.push_text(text)
                stream.end_input()
                words = [word.text async for chunk in stream for word in chunk.words]
            assert words == ["Take", "2", "billets", "21", "now"]
        assert phonemized == [("fr-fr", ["billets", "vingt-et-un"])]

    asyncio.run(asyncio.wait_for(test(), 60))


def test_no_text_waits_for_the_tables_of_its_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(*_: object) -> None:
        raise AssertionError("tables are loaded after the voice")

    async def test() -> None:
        async with await Engine.open(str(write_tiny_kokoro(tmp_path))) as engine:
            monkeypatch.setattr(LanguageGrammars, "load", load)
            for language in ("en-GB", "es", "fr", "hi", "it", "pt"):
                engine.stream(delivery=Delivery(language=language)).cancel()

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_voice_that_cannot_keep_up_says_so_at_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clause_backend, "_MAX_RTF", 0.0)

    async def test() -> None:
        with caplog.at_level(logging.WARNING):
            async with await Engine.open(str(write_tiny_kokoro(tmp_path))) as engine:
                await speak(engine, "One.", voice="am_two")

    asyncio.run(asyncio.wait_for(test(), 60))
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the voice of the Kokoro bundle cannot keep up with one call on this machine"
    ]


def test_faults_of_a_folder_are_one_sentence(tmp_path: Path) -> None:
    async def opening(folder: Path) -> None:
        async with await Engine.open(str(folder)):
            pass

    def fault(name: str, file: str, content: bytes | None) -> Path:
        folder = write_tiny_kokoro(tmp_path / name)
        (folder / file).unlink()
        if content is not None:
            (folder / file).write_bytes(content)
        return folder

    model, voices = "kokoro-v1.0.onnx", "voices-v1.0.bin"
    with pytest.raises(BundleError, match="has no voices"):
        asyncio.run(opening(fault("a", voices, None)))
    with pytest.raises(BundleError, match=f"{voices}: is no npz archive"):
        asyncio.run(opening(fault("b", voices, b"\x80\x04junk")))
    with pytest.raises(BundleError, match=model):
        asyncio.run(opening(fault("c", model, b"junk")))
    folder = write_tiny_kokoro(tmp_path / "d")
    with (folder / voices).open("wb") as file:
        np.savez(file, af_one=np.zeros((3, 7), np.float32))
    with pytest.raises(BundleError, match=r"af_one has the shape \(3, 7\)"):
        asyncio.run(opening(folder))


@pytest.mark.slow
def test_the_real_model_speaks_english_with_word_times(tmp_path: Path) -> None:
    folder = kokoro_folder(tmp_path)

    async def test() -> None:
        async with await Engine.open(str(folder)) as engine:
            chunks = await speak(engine, "Good morning.", voice="jm_kumo")
            assert [word.text for chunk in chunks for word in chunk.words] == ["Good", "morning"]
            assert 0.4 < chunks[-1].samples[1] / SAMPLE_RATE < 2.0

    asyncio.run(asyncio.wait_for(test(), 120))


@pytest.mark.slow
def test_sounds_of_a_real_voice_are_heard_in_the_times_of_their_phonemes(tmp_path: Path) -> None:
    async def test() -> None:
        async with await Engine.open(str(kokoro_folder(tmp_path))) as engine:
            chunks = await speak(engine, TEXT_WITH_HISSES)
        check_sounds_in_place(chunks, 0.75)
        sounds = {word.text: [phoneme.ipa for phoneme in word.phonemes] for word in words_of(chunks)}
        assert sounds["shells"] == ["ʃ", "ɛ", "l", "z"]

    asyncio.run(asyncio.wait_for(test(), 120))
