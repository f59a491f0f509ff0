"""Piper voices in the engine: word times, rates, several speakers, and faults of the folder."""

import asyncio
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest

from shared.audio.sounds_in_place import TEXT as TEXT_WITH_HISSES
from shared.audio.sounds_in_place import check_sounds_in_place, words_of
from shared.audio.speech_level import active_speech_level
from shared.engine.engine_streams import speak
from shared.voices.installed_voices import joe_folder
from shared.voices.tiny_piper import write_tiny_piper
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk
from vivavoce.tts_engine.engine import Engine
from vivavoce.tts_engine.errors import BadRequest, BundleError, UnreadableText
from vivavoce.tts_engine.piper.backend import PIECE_S
from vivavoce.tts_engine.stream_request import Delivery
from vivavoce.tts_engine.voice_kit.espeak import EspeakPhonemizer

TEXT = "Good morning, and thank you for waiting. Your order of the day arrives on March 3rd."


def samples_of(chunks: list[AudioChunk]) -> np.ndarray:
    return np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2") / 32768


def check_words(text: str, chunks: list[AudioChunk]) -> None:
    words = [word for chunk in chunks for word in chunk.words]
    assert [word.text for word in words] == [word.strip(".,?") for word in text.split()]
    starts = [word.start_s for word in words]
    assert starts == sorted(starts)
    total_s = chunks[-1].samples[1] / SAMPLE_RATE
    assert all(0 <= word.start_s < word.stop_s <= total_s + 0.05 for word in words)


@pytest.mark.parametrize("sample_rate", [8_000, 16_000, 22_050, 44_100])
def test_a_voice_of_any_rate_speaks_at_the_rate_of_the_engine(tmp_path: Path, sample_rate: int) -> None:
    folder = write_tiny_piper(tmp_path, sample_rate=sample_rate).parent

    async def test() -> None:
        async with await Engine.open(str(folder)) as engine:
            chunks = await speak(engine, TEXT, seed=3)
            again = await speak(engine, TEXT, split=3, seed=3)
            assert [(chunk.pcm, chunk.words) for chunk in chunks] == [
                (chunk.pcm, chunk.words) for chunk in again
            ]
            check_words(TEXT, chunks)
            ids = 2 * len("^ good morning, $")
            expected_s = ids * 6 * 64 / sample_rate  # of the first clause
            first = [chunk for chunk in chunks if chunk.text[0] == 0]
            assert sum(chunk.seconds for chunk in first) == pytest.approx(expected_s + 0.25, rel=0.2)

    asyncio.run(asyncio.wait_for(test(), 60))


def test_each_speaker_of_each_file_is_a_voice(tmp_path: Path) -> None:
    write_tiny_piper(tmp_path, name="de_DE-many-low", speakers=3, config={"language": {"code": "de_DE"}})
    write_tiny_piper(tmp_path, name="en_US-one-low")

    async def test() -> None:
        async with await Engine.open(str(tmp_path)) as engine:
            assert [(voice.id, voice.language) for voice in engine.voices] == [
                ("de_DE-many-low/s0", "de-DE"),
                ("de_DE-many-low/s1", "de-DE"),
                ("de_DE-many-low/s2", "de-DE"),
                ("en_US-one-low", "en-US"),
            ]
            spoken = [samples_of(await speak(engine, "eins", voice=voice.id)) for voice in engine.voices]
            assert not any(np.array_equal(spoken[0], other) for other in spoken[1:])
            with pytest.raises(UnreadableText):
                await speak(engine, "你好", voice="en_US-one-low")
            with pytest.raises(BadRequest, match=r"many-low/s0 speaks de-DE; .* 'en'"):
                engine.stream(voice="de_DE-many-low/s0", delivery=Delivery(language="en"))
            assert await speak(engine, "eins", delivery=Delivery(language="de-AT"))

    asyncio.run(asyncio.wait_for(test(), 60))


def test_a_missing_phoneme_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ids = {letter: [index] for index, letter in enumerate("_^$ abcdefghijklmnopqrstuvwxy")}
    folder = write_tiny_piper(tmp_path, config={"phoneme_id_map": ids}).parent

    async def test() -> None:
        async with await Engine.open(str(folder)) as engine:
            with caplog.at_level(logging.WARNING):
                for _ in range(3):
                    assert len(await speak(engine, "a lazy zebra"))
            with pytest.raises(UnreadableText):
                await speak(engine, "zzz")

    asyncio.run(asyncio.wait_for(test(), 60))
    assert [record.getMessage() for record in caplog.records] == [
        "the voice xx_XX-tiny-low has no sound for z, which is left out"
    ]


def test_a_voice_that_reads_letters_says_once_that_phonemes_are_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with await Engine.open(str(write_tiny_piper(tmp_path).parent)) as engine:
            plain = await speak(engine, "a cat", seed=1)
            with caplog.at_level(logging.WARNING):
                for _ in range(2):
                    given = await speak(engine, "a [cat](/dɔːɡ/)", seed=1)
            assert np.array_equal(samples_of(given), samples_of(plain))

    asyncio.run(asyncio.wait_for(test(), 60))
    assert [record.getMessage() for record in caplog.records] == [
        "the voice xx_XX-tiny-low reads letters; phonemes of words are not used"
    ]


@pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="needs espeak-ng: apt-get install espeak-ng")
def test_phonemes_of_a_word_are_spoken_in_place_of_those_of_espeak(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    phoneme_ids = {sign: [index] for index, sign in enumerate("_^$ ðədɔɡkætˈːɑ")}
    voice = {"phoneme_type": "espeak", "espeak": {"voice": "en-us"}, "phoneme_id_map": phoneme_ids}
    folder = write_tiny_piper(tmp_path, config=voice).parent
    phonemizer = EspeakPhonemizer("en-us")
    _, dog = phonemizer.phonemize(["the", "dog"])
    phonemizer.close()

    async def test() -> None:
        async with await Engine.open(str(folder)) as engine:
            dogs = await speak(engine, "the dog", seed=1)
            cats = await speak(engine, "the cat", seed=1)
            given = await speak(engine, f"the [cat](/{dog.phonemes}/)", seed=1)
            assert np.array_equal(samples_of(given), samples_of(dogs))
            assert not np.array_equal(samples_of(given), samples_of(cats))
            assert [word.text for chunk in given for word in chunk.words] == ["the", "cat"]
            caplog.clear()
            with caplog.at_level(logging.WARNING):
                await speak(engine, "the [cat](/kǂæt/)")

    asyncio.run(asyncio.wait_for(test(), 60))
    assert [record.getMessage() for record in caplog.records] == [
        "the voice xx_XX-tiny-low has no sound for ǂ, which is left out"
    ]


def test_faults_of_a_folder_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = write_tiny_piper(
        tmp_path / "espeak", config={"phoneme_type": "espeak", "espeak": {"voice": "en-us"}}
    )
    orphan = write_tiny_piper(tmp_path / "orphan")
    orphan.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))

    async def opening(folder: Path, **how: str) -> None:
        async with await Engine.open(str(folder), **how):
            pass

    with pytest.raises(BundleError, match="apt-get install espeak-ng"):
        asyncio.run(opening(model.parent))
    with pytest.raises(BundleError, match=r"tiny-low.onnx: cannot be read: No such file"):
        asyncio.run(opening(orphan.parent))
    with pytest.raises(BadRequest, match="only a CosyVoice bundle"):
        asyncio.run(opening(model.parent, precision="int8"))


@pytest.mark.slow
def test_a_real_voice_starts_soon_at_level_with_the_times_of_its_words(tmp_path: Path) -> None:
    folder = joe_folder(tmp_path)

    async def test() -> None:
        async with await Engine.open(str(folder)) as engine:
            assert [voice.id for voice in engine.voices] == ["en_US-joe-medium"]
            chunks = await speak(engine, TEXT)
            check_words(TEXT, chunks)
            assert chunks[0].seconds <= PIECE_S[0] + 0.1
            samples = samples_of(chunks)
            assert active_speech_level(samples.astype(np.float32), SAMPLE_RATE) == pytest.approx(-20, abs=2)
            audible = np.flatnonzero(np.abs(samples) > 10 ** (-50 / 20))
            assert audible[0] <= 0.005 * SAMPLE_RATE
            # Its own pauses are some 90 dB below full scale, about one step of 16 bits.
            at = int(np.diff(audible).argmax())
            pause = samples[audible[at] + 1_200 : audible[at + 1] - 1_200]
            assert 0 < np.abs(pause).max() <= 4 / 32_768

    asyncio.run(asyncio.wait_for(test(), 60))


@pytest.mark.slow
def test_sounds_of_a_real_voice_are_heard_in_the_times_of_their_phonemes(tmp_path: Path) -> None:
    async def test() -> None:
        async with await Engine.open(str(joe_folder(tmp_path))) as engine:
            chunks = await speak(engine, TEXT_WITH_HISSES)
        check_sounds_in_place(chunks, 0.8)
        sounds = {word.text: [phoneme.ipa for phoneme in word.phonemes] for word in words_of(chunks)}
        assert sounds["sea"] == ["s", "iː"]

    asyncio.run(asyncio.wait_for(test(), 60))


def test_voices_that_read_letters_have_no_phonemes(tmp_path: Path) -> None:
    folder = write_tiny_piper(tmp_path).parent

    async def test() -> None:
        async with await Engine.open(str(folder)) as engine:
            words = words_of(await speak(engine, "one two"))
        assert [word.phonemes for word in words] == [(), ()]

    asyncio.run(asyncio.wait_for(test(), 60))
