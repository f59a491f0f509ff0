"""The packaged voice: split graph, streaming, trimming, level and word times."""

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import hibari
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from shared.audio.speech_level import active_speech_level
from shared.process_footprint import allocated_mb
from vivavoce.models.hibari.harmonic_vocoder import SAMPLE_RATE, SAMPLE_RATES, Band
from vivavoce.models.hibari.phonemizer import MAX_PHONEMES, PhonemeLine
from vivavoce.models.hibari.voice import (
    EncodedLine,
    HibariRenderState,
    HibariVoice,
    is_finished,
    word_times,
)
from vivavoce.models.phonemes.english_ipa import SpelledWord

SENTENCES = (
    "Thank you for calling, how can I help you today?",
    "Your order has shipped and should arrive on Tuesday morning.",
    "The technician will be there between nine and noon on Friday.",
    "Yes, exactly!",
    "I am sorry to hear that. Would you like a refund, or shall we send a replacement?",
    "Please hold while I transfer you to our billing department.",
)
GRAPH_FILE = Path(hibari.__file__).parent / "assets" / "hibari.onnx"


@pytest.fixture(scope="module")
def voice() -> HibariVoice:
    (loaded,) = HibariVoice.load()
    return loaded


def spelled_words(sentence: str) -> list[SpelledWord]:
    bare = [(word.rstrip(",.?!"), word) for word in sentence.split()]
    return [SpelledWord(text, word[len(text) :]) for text, word in bare]


def render(
    voice: HibariVoice,
    line: PhonemeLine,
    frames: tuple[int, ...],
    seed: int = 0,
    speed: float = 1.0,
    sample_rate: int = SAMPLE_RATE,
) -> tuple[NDArray[np.float32], EncodedLine, HibariRenderState]:
    encoded = voice.encode(line, speed)
    state, parts = voice.init_state(encoded, seed, Band.heard_at(sample_rate)), []
    plan = itertools.chain(frames, itertools.repeat(frames[-1]))
    while not is_finished(encoded, state):
        samples, state = voice.step(encoded, state, next(plan))
        parts.append(samples)
    return np.concatenate(parts), encoded, state


def speak(
    voice: HibariVoice,
    sentence: str,
    frames: tuple[int, ...] = (16, 32, 64),
    sample_rate: int = SAMPLE_RATE,
) -> NDArray:
    (line,) = voice.phonemizer.phonemize(spelled_words(sentence))
    return render(voice, line, frames, sample_rate=sample_rate)[0]


def signal_to_difference_db(signal: NDArray, other: NDArray) -> float:
    with np.errstate(divide="ignore"):  # infinite, if they are equal
        return float(10 * np.log10(np.sum(signal**2) / np.sum((signal - other) ** 2)))


@pytest.mark.parametrize("sentence", SENTENCES[:3])
def test_the_split_graph_gives_the_spectrum_of_the_shipped_one(voice: HibariVoice, sentence: str) -> None:
    (line,) = voice.phonemizer.phonemize(spelled_words(sentence))
    shipped = onnxruntime.InferenceSession(str(GRAPH_FILE), providers=["CPUExecutionProvider"])
    feed = {"ids": line.ids[None], "speed": np.ones(1, np.float32)}
    expected = np.concatenate([part[0] for part in shipped.run(["lh", "theta", "ln", "lr", "phi"], feed)])
    encoded = voice.encode(line)
    state = voice.init_state(replace(encoded, onset=0), 0)  # with the leading silence
    spectrum, _ = state.decoder.decode(encoded.hidden, state.contexts, at_edge=True)
    assert spectrum.T.shape == expected.shape
    # Both quantize to 8 bits with different ranges: each is near 43 dB from the float32 weights.
    assert signal_to_difference_db(expected, spectrum.T) > 36


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_long_line_leaves_the_encoder_no_more_memory(voice: HibariVoice) -> None:
    ids = np.concatenate([[0], np.arange(MAX_PHONEMES) % 40 + 20, [0]])
    short, long = (PhonemeLine(ids[:count], ()) for count in (20, len(ids)))
    voice.encode(short)
    before = allocated_mb()
    voice.encode(long)
    kept = allocated_mb() - before
    voice._encoder.run(None, {"ids": long.ids[None], "speed": np.ones(1, np.float32)})
    assert kept < 0.5 * (allocated_mb() - before)


@pytest.mark.parametrize("onset", [2, 3, 14, 27, 40])
def test_what_is_not_decoded_before_the_onset_changes_nothing_after_it(
    voice: HibariVoice, onset: int
) -> None:
    encoded = replace(voice.encode(line_of(voice, SENTENCES[1])), onset=onset)
    padded = replace(encoded, onset=0)
    decoder = voice.init_state(encoded, 0).decoder
    (some, some_next), (every, all_next) = (
        decoder.decode(line.hidden[:, :, :120], decoder.start(line.onset).contexts, at_edge=False)
        for line in (encoded, padded)
    )
    assert len(every) - len(some) == min(27, onset - onset % 3)
    difference = np.linalg.norm(every[-len(some) :] - some)
    assert difference < 0.01 * np.linalg.norm(some)  # 0 on most processors, else 8-bit roundings
    assert [state.shape for state in some_next] == [state.shape for state in all_next]


@pytest.mark.parametrize("frames", [(1000,), (5, 7, 9), (1,), (33,)])
@pytest.mark.parametrize("sample_rate", SAMPLE_RATES)
def test_any_split_into_steps_gives_nearly_the_same_samples(
    voice: HibariVoice, frames: tuple[int, ...], sample_rate: int
) -> None:
    """They differ by 8-bit roundings."""
    usual, other = (speak(voice, SENTENCES[1], each, sample_rate) for each in ((16, 32, 64), frames))
    assert abs(len(usual) - len(other)) <= sample_rate // 1000
    size = min(len(usual), len(other))
    assert signal_to_difference_db(usual[:size], other[:size]) > 25


def test_the_same_steps_give_bit_equal_samples(voice: HibariVoice) -> None:
    assert np.array_equal(speak(voice, SENTENCES[0]), speak(voice, SENTENCES[0]))
    voices = HibariVoice.load(2)
    with ThreadPoolExecutor(2) as threads:  # which share the encoder's session
        spoken = list(threads.map(speak, voices * 3, SENTENCES[:2] * 3))
    for samples, sentence in zip(spoken, SENTENCES[:2] * 3, strict=True):
        assert np.array_equal(samples, speak(voice, sentence))


@pytest.mark.parametrize("sentence", SENTENCES)
def test_speech_starts_within_5_ms_and_ends_within_15_ms(voice: HibariVoice, sentence: str) -> None:
    samples = speak(voice, sentence)
    audible = np.flatnonzero(np.abs(samples) > 10 ** (-50 / 20))
    assert audible[0] <= 0.005 * SAMPLE_RATE
    assert len(samples) - audible[-1] <= 0.015 * SAMPLE_RATE


def test_speech_has_a_level_of_minus_20_dbfs_and_never_clips(voice: HibariVoice) -> None:
    spoken = [speak(voice, sentence) for sentence in SENTENCES]
    levels = [active_speech_level(samples, SAMPLE_RATE) for samples in spoken]
    assert np.median(levels) == pytest.approx(-20, abs=0.7)
    assert max(np.abs(samples).max() for samples in spoken) < 1.0


def test_word_times_are_in_order_and_within_the_speech(voice: HibariVoice) -> None:
    (line,) = voice.phonemizer.phonemize(spelled_words(SENTENCES[1]))
    samples, encoded, state = render(voice, line, (16, 32, 64))
    times = word_times(encoded, state)
    assert len(times) == len(SENTENCES[1].split())
    assert all(start < stop for start, stop in times)
    assert all(before[1] <= after[0] + 1e-9 for before, after in itertools.pairwise(times))
    assert times[0][0] < 0.08
    assert times[-1][1] < len(samples) / SAMPLE_RATE + 0.5


def test_word_times_do_not_depend_on_the_steps(voice: HibariVoice) -> None:
    (line,) = voice.phonemizer.phonemize(spelled_words(SENTENCES[3]))
    in_steps, at_once = (word_times(*render(voice, line, frames)[1:]) for frames in ((16, 32), (512,)))
    assert at_once == in_steps


def test_word_times_enclose_the_pause_between_sentences(voice: HibariVoice) -> None:
    """The voice is silent at the full stop inside the line."""
    (line,) = voice.phonemizer.phonemize(spelled_words(SENTENCES[4]))
    samples, encoded, state = render(voice, line, (16, 32, 64))
    times = word_times(encoded, state)
    before, after = times[5], times[6]
    envelope = np.sqrt(np.convolve(samples**2, np.ones(960) / 960, "same"))
    quietest = (
        np.argmin(envelope[round(before[0] * SAMPLE_RATE) : round(after[1] * SAMPLE_RATE)]) / SAMPLE_RATE
        + before[0]
    )
    assert before[1] < quietest < after[0]
    assert after[0] - before[1] > 0.2


@pytest.mark.parametrize("speed", [0.7, 0.85, 1.2, 1.4, 1.7, 2.0])
def test_the_speed_is_the_speed_asked_for(voice: HibariVoice, speed: float) -> None:
    lines = [line_of(voice, sentence) for sentence in SENTENCES[:3]]
    usual, changed = (
        sum(len(render(voice, line, (64,), speed=each)[0]) for line in lines) for each in (1.0, speed)
    )
    assert usual / changed == pytest.approx(speed, rel=0.012)


def test_every_phoneme_keeps_some_time_at_the_highest_speed(voice: HibariVoice) -> None:
    words = voice.encode(line_of(voice, SENTENCES[0]), 2.0).words
    assert all(stop - first >= 2 for first, stop in words)


def test_a_long_line_is_split_between_words(voice: HibariVoice) -> None:
    words = spelled_words(" ".join(["understanding"] * 120))
    lines = voice.phonemizer.phonemize(words)
    assert len(lines) > 1
    assert sum(len(line.words) for line in lines) == len(words)
    assert all(len(line.ids) <= MAX_PHONEMES + 2 for line in lines)


def test_words_without_phonemes_are_kept_as_empty_ranges(voice: HibariVoice) -> None:
    (line,) = voice.phonemizer.phonemize([SpelledWord("你好"), SpelledWord("hello", ".")])
    assert len(line.words) == 2
    assert line.words[0][0] == line.words[0][1]
    assert line.has_phonemes
    (silent,) = voice.phonemizer.phonemize([SpelledWord("你好")])
    assert not silent.has_phonemes


CLAUSES = (
    ("When you arrive at the office,", "ask for the key at the desk."),
    ("The blue one is sold out,", "but the green one is in stock."),
    ("I have sent you an email,", "so please check your inbox."),
    ("If it still does not work,", "turn the device off and on again."),
    ("For your safety,", "this call may be recorded."),
    ("Most people choose the small plan,", "because it is cheap and simple."),
    ("She lives in Chicago,", "near the river and the old station."),
    ("On the other hand,", "the larger model lasts for years."),
    ("The technician came yesterday,", "but he could not find the fault."),
    ("While I look that up,", "may I ask for your birthday?"),
    ("It rains a lot in April,", "so bring an umbrella with you."),
    ("We can ship it tomorrow,", "or you can pick it up today."),
    ("Your balance is low,", "which means the transfer will fail."),
    ("Of the three rooms,", "only one has a view of the sea."),
    ("Press one for sales,", "two for support, and three for billing."),
    ("The meeting has moved,", "and the new time is half past ten."),
    ("According to my notes,", "you ordered twelve boxes of paper."),
    ("Unless you cancel by Friday,", "the plan renews for another year."),
    ("I would like to help,", "but the system is down at the moment."),
    ("Take the second exit,", "then turn left at the bakery."),
)


def line_of(voice: HibariVoice, text: str) -> PhonemeLine:
    (line,) = voice.phonemizer.phonemize(spelled_words(text))
    return line


def pitch(f0: NDArray[np.float32]) -> float:
    """Median pitch of voiced frames in semitones."""
    return float(12 * np.log2(np.median(f0)))


def end_pitch(line: EncodedLine, word: int) -> float:
    f0 = line.f0[: line.words[word][1]]
    return pitch(f0[f0 > 60][-12:])


def test_a_clause_has_the_melody_that_it_has_in_its_sentence(voice: HibariVoice) -> None:
    continuation = line_of(voice, "which is what we want.")
    ends = []
    for first, second in CLAUSES:
        words = len(first.split())
        sentence = voice.encode(line_of(voice, f"{first} {second}"))
        before = voice.encode_between(line_of(voice, first), None, continuation)
        after = voice.encode_between(line_of(voice, second), line_of(voice, first), None)
        assert len(before.words) == words and len(after.words) == len(second.split())
        ends.append(end_pitch(before, -1) - end_pitch(sentence, words - 1))
        start, offset = sentence.words[words][0], sentence.words[words][0] - after.words[0][0]
        np.testing.assert_array_equal(after.f0[start - offset :], sentence.f0[start:])
    assert abs(float(np.median(ends))) < 0.7  # alone, 4 semitones lower


@pytest.mark.parametrize("frames", [(16, 32, 64), (5,), (1000,)])
def test_any_split_into_steps_renders_only_the_clause(voice: HibariVoice, frames: tuple[int, ...]) -> None:
    before, line, after = (line_of(voice, text) for text in ("In that case,", "he will call,", "and wait."))
    encoded = voice.encode_between(line, before, after)
    state, parts = voice.init_state(encoded, 0), []
    for count in itertools.chain(frames, itertools.repeat(frames[-1])):
        if is_finished(encoded, state):
            break
        samples, state = voice.step(encoded, state, count)
        parts.append(samples)
    spoken_s = len(np.concatenate(parts)) / SAMPLE_RATE
    times = word_times(encoded, state)
    assert times[0][0] < 0.15
    assert times[-1][1] <= spoken_s + 0.02 < times[-1][1] + 0.2  # the next word begins later
    whole, _, _ = render(voice, line, (16, 32, 64))
    assert 0.6 < spoken_s / (len(whole) / SAMPLE_RATE) < 1.4


def test_a_clause_after_long_text_is_encoded_with_the_end_of_it(voice: HibariVoice) -> None:
    long = line_of(voice, "word " * 60 + "again,")
    encoded = voice.encode_between(line_of(voice, "so we stop here."), long, None)
    alone = voice.encode(line_of(voice, "so we stop here."))
    assert encoded.frames < 1.5 * alone.frames
    assert len(encoded.words) == 4


OCTAVES_HZ = (125, 250, 500, 1_000, 2_000, 4_000, 8_000)


def octave_levels_db(samples: NDArray[np.float32]) -> NDArray[np.float64]:
    window = np.hanning(len(samples))
    power = 2 * np.abs(np.fft.rfft(samples * window)) ** 2 / np.sum(window**2) / len(samples)
    places = [round(edge / SAMPLE_RATE * len(samples)) for edge in OCTAVES_HZ]
    return 10 * np.log10([power[low:high].sum() for low, high in itertools.pairwise(places)])


@pytest.mark.parametrize(
    "sentence",
    [
        "She lives in Chicago, near the river and the old station.",
        "The blue one is sold out, but the green one is in stock.",
    ],
)
def test_the_room_tone_is_that_of_the_pauses_inside_a_line(voice: HibariVoice, sentence: str) -> None:
    samples = speak(voice, sentence)
    loud = np.flatnonzero(np.abs(samples) > 10 ** (-50 / 20))
    at = int(np.diff(loud).argmax())
    pause = samples[loud[at] + 1_200 : loud[at + 1] - 1_200]
    assert len(pause) > 2_400
    tone = voice.room_tone().period
    np.testing.assert_allclose(octave_levels_db(tone), octave_levels_db(pause), atol=5.0)
    assert 10 * np.log10(np.mean(tone**2)) == pytest.approx(10 * np.log10(np.mean(pause**2)), abs=3.0)
