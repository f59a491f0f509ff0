"""The decoder for telephones: its steps, its reach, its weights, and how it compares with the voice's own."""

import itertools
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import hibari
import numpy as np
import pytest
from numpy.typing import NDArray

from shared.audio.speech_level import active_speech_level
from vivavoce.models.hibari import prepared_files
from vivavoce.models.hibari.decoder import FullBandDecoder, TelephoneDecoder, TelephoneLayout
from vivavoce.models.hibari.harmonic_vocoder import TELEPHONE_BAND, Band
from vivavoce.models.hibari.prepared_files import PreparedFiles
from vivavoce.models.hibari.telephone_graph import read_weights
from vivavoce.models.hibari.voice import EncodedLine, HibariVoice, is_finished, word_times
from vivavoce.models.phonemes.english_ipa import SpelledWord

ASSETS = Path(hibari.__file__).parent / "assets"
WEIGHTS = Path(prepared_files.__file__).with_name(prepared_files.TELEPHONE_WEIGHTS)
SENTENCES = (
    "Thank you for calling, how can I help you today?",
    "Your order has shipped and should arrive on Tuesday morning.",
    "Yes, exactly!",
)
USUAL_STEPS = (16, 32, 64)


@pytest.fixture(scope="module")
def voice() -> HibariVoice:
    (loaded,) = HibariVoice.load()
    return loaded


@pytest.fixture(scope="module")
def teacher(voice: HibariVoice) -> HibariVoice:
    return HibariVoice(voice._encoder, voice._decoder, voice._decoder, voice.phonemizer)


def encode(voice: HibariVoice, text: str, before: str = "", after: str = "") -> EncodedLine:
    words = [
        [SpelledWord(word.rstrip(",.?!"), word[len(word.rstrip(",.?!")) :]) for word in part.split()]
        for part in (text, before, after)
    ]
    line, *around = (voice.phonemizer.phonemize(part)[0] if part else None for part in words)
    assert line is not None
    return voice.encode_between(line, *around)


def render(
    voice: HibariVoice, line: EncodedLine, steps: Sequence[int] = USUAL_STEPS
) -> list[NDArray[np.float32]]:
    state, parts = voice.init_state(line, 5, TELEPHONE_BAND), []
    for frames in itertools.chain(steps, itertools.repeat(steps[-1])):
        samples, state = voice.step(line, state, frames)
        parts.append(samples)
        if is_finished(line, state):
            return parts
    raise AssertionError


@pytest.mark.parametrize("steps", [(1000,), (1,), (2,), (5, 7, 9), (33,), (24,)])
@pytest.mark.parametrize("around", [("", ""), ("In that case,", "and wait.")])
def test_any_split_into_steps_gives_the_same_samples(
    voice: HibariVoice, steps: tuple[int, ...], around: tuple[str, str]
) -> None:
    line = encode(voice, "he will call on Tuesday morning,", *around)
    usual, other = (np.concatenate(render(voice, line, each)) for each in (USUAL_STEPS, steps))
    assert len(usual) > TELEPHONE_BAND.sample_rate
    np.testing.assert_array_equal(usual, other)


def test_lines_among_others_have_the_samples_that_they_have_alone(voice: HibariVoice) -> None:
    lines = [encode(voice, sentence) for sentence in SENTENCES] * 2
    voices = HibariVoice.load(2)
    with ThreadPoolExecutor(2) as threads:
        spoken = list(threads.map(render, voices * 3, lines, [(7,), (24,)] * 3))
    for parts, line in zip(spoken, lines, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), np.concatenate(render(voice, line)))


def spectrum_from(voice: HibariVoice, line: EncodedLine) -> NDArray[np.float32]:
    """Of all frames from the line's onset on."""
    state = voice.init_state(line, 0, TELEPHONE_BAND)
    hidden = line.hidden[:, :, state.decoded_frames :]
    spectrum, _ = state.decoder.decode(hidden, state.contexts, at_edge=True)
    return spectrum[state.early_frames :]


@pytest.mark.parametrize("onset", [0, 1, 2, 25, 26, 27, 40, 41])
def test_nothing_before_the_onset_is_needed_but_what_the_decoder_reaches(
    voice: HibariVoice, onset: int
) -> None:
    line = encode(voice, SENTENCES[1])
    whole = spectrum_from(voice, replace(line, onset=0))
    assert len(whole) == line.hidden.shape[2]
    np.testing.assert_array_equal(spectrum_from(voice, replace(line, onset=onset)), whole[onset:])


@pytest.mark.parametrize("onset", [12, 13])
@pytest.mark.parametrize("frames", [100, 101])
def test_a_line_may_begin_and_end_at_any_frame(voice: HibariVoice, onset: int, frames: int) -> None:
    line = replace(encode(voice, SENTENCES[1]), onset=onset, frames=frames)
    samples = np.concatenate(render(voice, line))
    np.testing.assert_array_equal(samples, np.concatenate(render(voice, line, (3,))))
    assert len(samples) / TELEPHONE_BAND.hop <= frames + 2 - onset


def test_a_frame_depends_on_14_later_frames_at_most(voice: HibariVoice) -> None:
    line = encode(voice, SENTENCES[1])
    changed = line.hidden.copy()
    changed[:, :, 100:] = 0
    some, other = (spectrum_from(voice, replace(line, onset=0, hidden=h)) for h in (line.hidden, changed))
    equal = (some == other).all(axis=(1, 2))
    lookahead = voice.init_state(line, 0, TELEPHONE_BAND).decoder.lookahead_frames
    assert lookahead <= 14
    assert equal[: 100 - lookahead].all() and not equal[100 - lookahead :].any()


@pytest.mark.parametrize(
    ("sample_rate", "kind"),
    [
        (8_000, TelephoneDecoder),
        (12_000, FullBandDecoder),
        (16_000, FullBandDecoder),
        (24_000, FullBandDecoder),
    ],
)
def test_only_listeners_at_8_khz_hear_the_decoder_for_telephones(
    voice: HibariVoice, sample_rate: int, kind: type
) -> None:
    state = voice.init_state(encode(voice, SENTENCES[2]), 0, Band.heard_at(sample_rate))
    assert type(state.decoder) is kind


def test_length_level_and_word_times_are_those_of_the_own_decoder(
    voice: HibariVoice, teacher: HibariVoice
) -> None:
    louder_db = []
    for sentence in SENTENCES:
        line = encode(voice, sentence)
        spoken, times, levels = [], [], []
        for each in (voice, teacher):
            samples, state = each.step(line, each.init_state(line, 0, TELEPHONE_BAND), 1000)
            spoken.append(samples)
            times.append(word_times(line, state))
            levels.append(active_speech_level(samples, TELEPHONE_BAND.sample_rate))
        assert abs(len(spoken[0]) - len(spoken[1])) <= 0.02 * TELEPHONE_BAND.sample_rate
        np.testing.assert_allclose(times[0], times[1], atol=0.01)
        louder_db.append(levels[0] - levels[1])
    assert np.abs(louder_db).max() < 1.0  # of a single exclamation; of sentences 0.1
    assert abs(np.mean(louder_db)) < 0.5


def test_speech_ends_within_15_ms_after_the_last_sound(voice: HibariVoice) -> None:
    for sentence in SENTENCES:
        samples = np.concatenate(render(voice, encode(voice, sentence)))
        audible = np.flatnonzero(np.abs(samples) > 10 ** (-50 / 20))
        assert len(samples) - audible[-1] <= 0.015 * TELEPHONE_BAND.sample_rate


def test_two_products_of_its_integers_fit_into_16_bits() -> None:
    weights = read_weights(WEIGHTS.read_bytes())
    products = [weight for name, weight in weights.items() if name.endswith("_weight")]
    assert len(products) == 2 + 2 * TelephoneLayout.BLOCKS
    for weight in products:
        assert weight.dtype == np.int8
        assert 2 * 255 * np.abs(weight.astype(int)).max() <= np.iinfo(np.int16).max


@pytest.mark.parametrize("damage", ["other content", "no file"])
def test_without_whole_weights_the_own_decoder_speaks(
    voice: HibariVoice,
    teacher: HibariVoice,
    damage: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = tmp_path / "weights.npz"
    if damage == "other content":
        other.write_bytes(WEIGHTS.read_bytes()[:-1])
    whole = PreparedFiles.load(ASSETS)
    monkeypatch.setattr(prepared_files, "TELEPHONE_WEIGHTS", str(other))
    files = PreparedFiles.load(ASSETS, tmp_path)
    assert whole.graphs()[2] is not None and files.graphs()[2] is None
    monkeypatch.setattr(PreparedFiles, "load", lambda _: files)
    with caplog.at_level(logging.WARNING):
        damaged, _ = HibariVoice.load(2)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    line = encode(voice, SENTENCES[2])
    np.testing.assert_array_equal(*(np.concatenate(render(each, line)) for each in (damaged, teacher)))
