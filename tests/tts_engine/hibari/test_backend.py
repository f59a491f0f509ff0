"""The packaged voice in the engine: determinism, word times, pauses, unusual text."""

import asyncio
import itertools
import unicodedata
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benches.voices.packaged_voice import (
    MAX_CUT_SEMITONES,
    pitch_at_cuts,
    question_end,
    read_phrases,
    read_questions,
)
from shared.audio.speech_level import active_speech_level
from shared.engine.kept_noise import wait_until_written
from shared.unreadable_texts import UNREADABLE_TEXTS
from vivavoce.models.hibari.voice import HibariVoice
from vivavoce.models.phonemes.english_ipa import SpelledWord
from vivavoce.tts_engine.backends.base import SlotRequest, SlotTurn
from vivavoce.tts_engine.backends.voice_kind import KeptSpeechConfig
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk, Word
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import BadRequest, UnreadableText
from vivavoce.tts_engine.hibari.backend import HibariBackend
from vivavoce.tts_engine.hibari.lines import STEP_FRAMES, LinePiece, LineRequest, render_line
from vivavoce.tts_engine.reading.clause_boundaries import BoundaryKind
from vivavoce.tts_engine.reading.language import READING_STYLES
from vivavoce.tts_engine.reading.languages.default import DEFAULT_VOICE_SCRIPTS
from vivavoce.tts_engine.reading.languages.en.rules import normalize
from vivavoce.tts_engine.segmenter import Segment, Segmenter
from vivavoce.tts_engine.stream_request import Delivery

TEXT = (
    "Good morning, and thank you for waiting. Your PIN is 0417, and your order arrives on March 3rd. "
    "Is there anything else?"
)
CLAUSES_AND_SENTENCES = (
    "Thank you for calling, how can I help you today?",
    "Your order, which was placed on Monday, left our warehouse this morning. Is there anything else?",
    "First, unplug the router. Then, wait for thirty seconds, plug it back in, and let me know what you see.",
    "I'm sorry to hear that. Let me look it up for you. One moment, please.",
    "The basic plan costs ten dollars a month, and the premium plan costs thirty.\n\nWhich one do you want?",
    "Please bring your insurance card, a photo ID, and a list of your medications. It is at half past nine.",
)


@pytest.fixture(scope="module")
def backend() -> Iterator[HibariBackend]:
    backend = HibariBackend.load()
    yield backend
    backend.close()


@asynccontextmanager
async def engine_of(backend: HibariBackend) -> AsyncIterator[Engine]:
    async with await Engine.open(backend=backend) as engine:
        yield engine


async def speak(engine: Engine, text: str, *, split: int = 0, **how: Any) -> list[AudioChunk]:
    async with engine.stream(**how) as stream:
        size = split or len(text)
        for start in range(0, len(text), size):
            stream.push_text(text[start : start + size])
            await asyncio.sleep(0)
        stream.end_input()
        return [chunk async for chunk in stream]


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def samples_of(chunks: list[AudioChunk]) -> np.ndarray:
    return np.frombuffer(b"".join(chunk.pcm for chunk in chunks), "<i2")


def words_of(chunks: list[AudioChunk]) -> list[Word]:
    return [word for chunk in chunks for word in chunk.words]


def sound(chunks: list[AudioChunk]) -> list[object]:
    """The chunks without their provenance."""
    return [(chunk.pcm, chunk.samples, chunk.text, chunk.words, chunk.final) for chunk in chunks]


def test_any_split_of_the_text_and_other_streams_give_the_same_chunks(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            alone = await speak(engine, TEXT, seed=7)
            among = await asyncio.gather(
                *(speak(engine, TEXT, split=split, seed=7) for split in (1, 2, 5, 11))
            )
            for chunks in among:
                assert sound(chunks) == sound(alone)

    run(test())


def test_speech_that_is_kept_is_the_same_as_rendered(backend: HibariBackend) -> None:
    keeping = HibariBackend(backend._voices, kept_speech=KeptSpeechConfig(10_000_000))
    texts = (TEXT, f"Hello there. {TEXT}")

    async def test() -> None:
        async with engine_of(backend) as engine:
            rendered = [await speak(engine, text, seed=7) for text in texts]
        async with engine_of(keeping) as engine:
            async with engine.stream(seed=7) as stream:
                stream.push_text(TEXT)
                await anext(aiter(stream))  # it hangs up in the middle of a line
            together = await asyncio.gather(*(speak(engine, text, seed=7) for text in (*texts, *texts)))
            assert list(map(sound, together)) == [*map(sound, rendered), *map(sound, rendered)]
            (repeated,) = engine.metrics.repeated_audio_seconds.collect()
            spoken_s = sum(chunk.seconds for chunks in rendered for chunk in chunks)
            assert repeated.samples[0].value > 0.9 * spoken_s

    run(test())


def files_in(folder: Path) -> int:
    return len(list(folder.rglob("*.speech")))


def test_speech_that_is_on_file_is_the_same_after_a_restart_and_not_rendered(
    backend: HibariBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = KeptSpeechConfig(10_000_000, tmp_path)
    rendered: list[LineRequest] = []

    def render(voice: HibariVoice, request: LineRequest) -> Iterator[LinePiece]:
        rendered.append(request)
        return render_line(voice, request)

    monkeypatch.setattr("vivavoce.tts_engine.hibari.backend.render_line", render)

    async def speak_all(voices: Sequence[HibariVoice]) -> list[list[object]]:
        async with engine_of(HibariBackend(voices, config)) as engine:
            hows = ({"seed": 7}, {"seed": 8, "speed": 1.2}, {"delivery": Delivery(listener_rate=8_000)})
            spoken = [sound(await speak(engine, TEXT, **how)) for how in hows]
            (filed,) = engine.metrics.filed_audio_seconds.collect()
            (audio,) = engine.metrics.audio_seconds.collect()
            assert filed.samples[0].value == (0 if rendered else audio.samples[0].value)
        wait_until_written()
        return spoken

    async def test() -> None:
        before = await speak_all(backend._voices)
        assert len(rendered) > 9 and files_in(tmp_path) == len(rendered)
        rendered.clear()
        assert await speak_all(HibariVoice.load()) == before and not rendered

    run(test())


def band_power(chunks: list[AudioChunk], lowest_hz: float, highest_hz: float) -> float:
    samples = samples_of(chunks) / 32768.0
    power = np.abs(np.fft.rfft(samples, norm="forward")) ** 2
    hz = np.fft.rfftfreq(len(samples), 1 / chunks[0].sample_rate)
    return float(power[(hz >= lowest_hz) & (hz < highest_hz)].sum())


@pytest.mark.parametrize("rate", [8_000, 12_000])
def test_a_listener_at_a_low_rate_gets_the_same_speech_at_that_rate(
    backend: HibariBackend, rate: int
) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            every = await speak(engine, TEXT, seed=7, delivery=Delivery(listener_rate=48_000))
            low = await speak(engine, TEXT, seed=7, delivery=Delivery(listener_rate=rate))
            assert {chunk.sample_rate for chunk in every} == {SAMPLE_RATE}
            assert {chunk.sample_rate for chunk in low} == {rate}
            end = 0.425 * rate
            assert band_power(low, 0, end) == pytest.approx(band_power(every, 0, end), rel=0.02)
            for chunk in low:
                assert chunk.seconds == len(chunk.pcm) // 2 / rate
            # A sound that dies away is cut below -50 dBFS, of the frequencies that are rendered.
            assert low[-1].samples[1] == pytest.approx(every[-1].samples[1], abs=0.03 * SAMPLE_RATE)
            for word, same in zip(words_of(low), words_of(every), strict=True):
                assert word.text == same.text
                assert word.start_s == pytest.approx(same.start_s, abs=0.03)

    run(test())


def test_a_listener_at_16_khz_gets_the_sound_below_8_khz_only(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            every = await speak(engine, TEXT, seed=7, delivery=Delivery(listener_rate=48_000))
            low = await speak(engine, TEXT, seed=7, delivery=Delivery(listener_rate=16_000))
            assert {chunk.sample_rate for chunk in low} == {SAMPLE_RATE}
            assert band_power(low, 0, 7_000) == pytest.approx(band_power(every, 0, 7_000), rel=0.02)
            assert band_power(low, 8_200, 12_000) < 0.01 * band_power(every, 8_200, 12_000)

    run(test())


def test_the_seed_changes_the_samples(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            one, other = (
                await speak(engine, "Hello there.", seed=1),
                await speak(engine, "Hello there.", seed=2),
            )
            assert [chunk.samples for chunk in one] != [] and sound(one) != sound(other)

    run(test())


def test_the_first_chunk_is_short_and_begins_with_speech(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            first, *_ = await speak(engine, TEXT)
            most = (STEP_FRAMES[0] + 12) * 0.0125  # the onset may come 12 frames before its nominal time
            assert first.seconds <= most
            audible = np.flatnonzero(np.abs(samples_of([first])) > 32767 * 10 ** (-50 / 20))
            assert audible[0] <= 0.005 * SAMPLE_RATE

    run(test())


def test_every_word_of_the_text_has_a_time(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            chunks = await speak(engine, TEXT)
            words = [word for chunk in chunks for word in chunk.words]
            assert [word.text for word in words] == [word.strip(".,?") for word in TEXT.split()]
            assert all(TEXT[word.text_start : word.text_stop] == word.text for word in words)
            starts = [word.start_s for word in words]
            assert starts == sorted(starts)
            assert all(0 < word.stop_s - word.start_s < 2.5 for word in words)
            for chunk in chunks:
                begins = [word for word in chunk.words if word.start_s >= chunk.samples[1] / SAMPLE_RATE]
                assert not begins or chunk.final or chunk.words[-1] in begins

    run(test())


def test_a_pause_follows_a_sentence_but_not_the_last_one(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            chunks = await speak(engine, "Hello there. Goodbye now.")
            samples = samples_of(chunks).astype(float)
            loud = np.flatnonzero(np.abs(samples) > 100)
            gaps = np.diff(loud)
            assert 0.2 < gaps.max() / SAMPLE_RATE < 0.5
            assert (len(samples) - loud[-1]) / SAMPLE_RATE < 0.1  # the time of the last word is covered

    run(test())


@pytest.mark.parametrize("speed", [0.8, 1.2, 1.4, 1.7, 2.0])
def test_a_text_takes_the_time_that_its_speed_says_with_its_pauses(
    backend: HibariBackend, speed: float
) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            seconds = {1.0: 0.0, speed: 0.0}
            for text, each in itertools.product(CLAUSES_AND_SENTENCES, seconds):
                seconds[each] += (await speak(engine, text, speed=each))[-1].samples[1]
            assert seconds[1.0] / seconds[speed] == pytest.approx(speed, rel=0.01)

    run(test())


def test_a_pause_has_a_faint_tone_and_a_text_without_words_is_digital_silence(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            samples = samples_of(await speak(engine, "Hello there. Goodbye now.")).astype(float) / 32768
            loud = np.flatnonzero(np.abs(samples) > 10 ** (-50 / 20))
            at = int(np.diff(loud).argmax())
            pause = samples[loud[at] + 720 : loud[at + 1] - 240]  # without the fades
            assert -70 < 10 * np.log10(np.mean(pause**2)) < -60
            assert not samples_of(await speak(engine, "...")).any()

    run(test())


def test_the_speech_level_is_minus_20_dbfs(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            samples = samples_of(await speak(engine, TEXT)).astype(np.float32) / 32768
            assert active_speech_level(samples, SAMPLE_RATE) == pytest.approx(-20, abs=1.0)

    run(test())


@pytest.mark.parametrize(
    "text",
    [
        "\x00\x01\x07\x1b[31mhello\x7f",
        "hello \ud83d there",
        "\u0645\u0631\u062d\u0628\u0627 hello",
        "\U0001f600 hi \U0001f600",
    ],
)
def test_characters_that_cannot_be_spoken_are_skipped(backend: HibariBackend, text: str) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            chunks = await speak(engine, text)
            assert chunks[-1].final
            assert samples_of(chunks).astype(float).std() > 100

    run(test())


def test_a_very_long_word_is_spoken_in_bounded_chunks(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine, engine.stream() as stream:
            stream.push_text("a" * 100_000)
            stream.end_input()
            first = await anext(stream)
            assert first.seconds < 2

    run(test())


@pytest.mark.parametrize("language", UNREADABLE_TEXTS)
def test_a_text_that_the_voice_cannot_read_is_an_error(backend: HibariBackend, language: str) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            with pytest.raises(UnreadableText, match="can read no word"):
                await speak(engine, UNREADABLE_TEXTS[language], split=1)
            assert engine.active_streams == 0
            mixed = await speak(engine, f"{UNREADABLE_TEXTS[language]} Hello there.")
            assert [word.text for chunk in mixed for word in chunk.words] == ["Hello", "there"]

    run(test())


LATIN_LETTERS = [
    chr(code)
    for code in (*range(0x41, 0x250), *range(0x1E00, 0x1F00))
    if unicodedata.normalize("NFD", chr(code))[0].isascii() and chr(code).isalpha()
]


def test_every_accented_latin_letter_is_readable_and_has_a_sound(backend: HibariBackend) -> None:
    assert set("aZéÈßệ") & set(LATIN_LETTERS) == set("aZéÈệ") and len(LATIN_LETTERS) > 500
    phonemizer = backend._voices[0].phonemizer
    for letter in LATIN_LETTERS:
        assert DEFAULT_VOICE_SCRIPTS.can_read(letter)
        lines = phonemizer.phonemize([SpelledWord(word.text) for word in normalize(letter)])
        assert any(line.has_phonemes for line in lines), letter


def test_the_engine_reads_in_the_style_of_its_configuration(backend: HibariBackend) -> None:
    async def test() -> None:
        async with await Engine.open(backend=backend) as engine:
            spelled = await speak(engine, "Come by the third of April.", seed=1)
            month_first = await speak(engine, "Come by 3/4.", seed=1)
        config = EngineConfig(reading=READING_STYLES["en-GB"])
        async with await Engine.open(backend=backend, config=config) as engine:
            day_first = await speak(engine, "Come by 3/4.", seed=1)
        assert np.array_equal(samples_of(day_first), samples_of(spelled))
        assert not np.array_equal(samples_of(month_first), samples_of(spelled))

    run(test())


# Kokoro's alphabet: A, I and O are diphthongs, ʤ and ʧ single sounds.
LETTER_SOUNDS = dict(
    zip(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "A bi si di i ɛf ʤi Aʧ I ʤA kA ɛl ɛm ɛn O pi kju ɑɹ ɛs ti ju vi dʌbᵊlju ɛks wI zi".split(),
        strict=True,
    )
)


@pytest.mark.parametrize("text", ["Photo {}.", "your {} key", "the {}, please", "{} and"])
def test_a_spelled_letter_has_the_sounds_of_its_name(text: str, backend: HibariBackend) -> None:
    phonemizer = backend._voices[0].phonemizer
    for letters in ("ID", "API", "AI", "QWX", *(f"X{letter}Z" for letter in LETTER_SOUNDS)):
        words = normalize(text.format(letters))
        words = [word for word in words if word.start >= text.index("{")][: len(letters)]
        sounds = phonemizer._phonemes(" ".join(word.text for word in words), len(words))
        assert [sound.replace("ˈ", "").replace("ˌ", "") for sound in sounds] == [
            LETTER_SOUNDS[letter] for letter in letters
        ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.text(st.sampled_from("aé Ж你नสש1.,?\N{GRINNING FACE}\u200d\n"), min_size=1, max_size=12),
)
def test_a_text_is_heard_or_refused_unless_it_has_no_word(backend: HibariBackend, text: str) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            try:
                chunks = await speak(engine, text)
            except UnreadableText:
                assert any(character.isalnum() for character in text)
                return
            heard = np.abs(samples_of(chunks)).max() > 0
            assert heard or not any(character.isalnum() for character in text)

    run(test())


@pytest.mark.parametrize("speed", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    "text", [TEXT, "Hello.", "Go", "Stop it", "What a day!", "Yes, please", "A B C.", "Six.", "Bath."]
)
def test_no_word_ends_after_the_audio(backend: HibariBackend, text: str, speed: float) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            chunks = await speak(engine, text, speed=speed)
            last = max(word.stop_s for chunk in chunks for word in chunk.words)
            assert last <= chunks[-1].samples[1] / SAMPLE_RATE

    run(test())


def end_pitch(backend: HibariBackend, segments: list[tuple[Segment, float]]) -> float:
    """Pitch at the end of the last segment in semitones."""
    slot = backend.open_slot(SlotRequest("heart", speed=1.0, seed=1))
    try:
        for segment, pause_s in segments:
            result = backend.step(0, [SlotTurn(slot, segment, pause_s)])[0]
            line = backend._slots[slot].rendering
            while not result.segment_done:
                line = backend._slots[slot].rendering
                result = backend.step(0, [SlotTurn(slot, None)])[0]
        f0 = line.utterance.f0[: line.utterance.words[-1][1]]
        return float(12 * np.log2(np.median(f0[f0 > 60][-10:])))
    finally:
        backend.close_slot(slot)


def segments_of(text: str) -> list[tuple[Segment, float]]:
    segmenter = Segmenter()
    segments = segmenter.push(text) + segmenter.flush()
    return [(segment, 0.25) for segment in segments[:-1]] + [(segments[-1], 0.0)]


def test_a_clause_does_not_end_like_a_sentence(backend: HibariBackend) -> None:
    clause, *_ = segments_of("Your balance is low today, which means the transfer fails.")
    assert clause[0].ending is BoundaryKind.CLAUSE
    assert end_pitch(backend, [clause]) > end_pitch(backend, [(clause[0], 0.0)]) + 2


def test_a_cut_between_phrases_changes_the_pitch_before_it_no_more_than_a_cut_at_a_comma(
    backend: HibariBackend,
) -> None:
    ends, _ = pitch_at_cuts(backend, read_phrases())
    assert np.median(np.abs(ends)) <= MAX_CUT_SEMITONES


def test_the_liveliness_of_a_stream_goes_ahead_of_the_engines(backend: HibariBackend) -> None:
    async def test() -> None:
        text = "The technician will be there on Friday."
        async with await Engine.open(backend=backend, config=EngineConfig(liveliness=1.0)) as engine:
            plain = await speak(engine, text)
            lively = await speak(engine, text, delivery=Delivery(liveliness=1.4))
            with pytest.raises(BadRequest, match="outside"):
                await speak(engine, text, delivery=Delivery(liveliness=1.7))
        async with engine_of(backend) as engine:
            usual = await speak(engine, text)
        assert sound(usual) == sound(lively) != sound(plain)

    run(test())


QUESTIONS = read_questions()


@pytest.mark.parametrize("kind", QUESTIONS["rising"])
def test_a_question_rises_two_semitones_above_its_mean(backend: HibariBackend, kind: str) -> None:
    assert len(QUESTIONS["rising"]) == 10
    for question in QUESTIONS["rising"][kind]:
        assert question_end(backend, question) >= 2.0, question


@pytest.mark.parametrize("kind", QUESTIONS["falling"])
def test_other_questions_fall(backend: HibariBackend, kind: str) -> None:
    for question in QUESTIONS["falling"][kind]:
        assert question_end(backend, question) < 0.0, question


def test_phonemes_in_the_text_are_spoken_in_place_of_the_words_letters(backend: HibariBackend) -> None:
    async def test() -> None:
        async with engine_of(backend) as engine:
            plain = await speak(engine, "Ask your father today.")
            same = await speak(engine, "Ask your [father](/ˈfɑːðɚ/) today.", split=3)
            other = await speak(engine, "Ask your [father](/ˈmʌðɚ/) today.")
            assert np.array_equal(samples_of(plain), samples_of(same))
            assert not np.array_equal(samples_of(plain), samples_of(other))
            words = [word.text for chunk in same for word in chunk.words]
            assert words == ["Ask", "your", "father", "today"]

    run(test())
