"""A Piper voice in pieces sounds as in one, and a damaged or foreign file is an error that names it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.voices.tiny_piper import write_tiny_piper
from vivavoce.models.piper.config import PiperVoiceError, read_config
from vivavoce.models.piper.graph import split_graph
from vivavoce.models.piper.range_renderer import RangeRenderer
from vivavoce.models.piper.voice import EncodedClause, PhonemeIds, PiperRenderState, PiperVoice


def phonemes_of(voice: PiperVoice, text: str = "good morning to you") -> PhonemeIds:
    words = text.split()
    return voice.alphabet.ids(words, [""] * (len(words) - 1) + ["."], [False] * len(words))


def in_pieces(voice: PiperVoice, clause: EncodedClause, frames: int) -> np.ndarray:
    state, pieces = PiperRenderState(0), []
    while state.frame < clause.frames:
        samples, state = voice.step(clause, state, min(clause.frames, state.frame + frames))
        pieces.append(samples)
    return np.concatenate(pieces)


@pytest.mark.parametrize("speakers", [1, 3])
@pytest.mark.parametrize("frames", [1, 5, 17])
def test_any_split_into_pieces_gives_the_same_samples(tmp_path: Path, speakers: int, frames: int) -> None:
    voice = PiperVoice.load(write_tiny_piper(tmp_path, speakers=speakers))
    assert voice.renders_ranges
    clause = voice.encode(phonemes_of(voice), np.random.default_rng(1), speaker=speakers - 1)
    whole, _ = voice.step(clause, PiperRenderState(0), clause.frames)
    assert np.abs(whole).max() > 0.1
    np.testing.assert_allclose(in_pieces(voice, clause, frames), whole, atol=1e-4)


def test_a_part_computes_each_position_once_but_for_its_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    voice = PiperVoice.load(write_tiny_piper(tmp_path))
    clause = voice.encode(phonemes_of(voice, "a rather long clause in many pieces"), np.random.default_rng(1))
    parts = split_graph(tmp_path / "xx_XX-tiny-low.onnx").parts
    computed = [0] * len(parts)
    run = RangeRenderer._run

    def counted(self: RangeRenderer, index: int, values: Any, frames: int, shown: np.ndarray) -> Any:
        computed[index] += shown.shape[2]
        return run(self, index, values, frames, shown)

    monkeypatch.setattr(RangeRenderer, "_run", counted)
    in_pieces(voice, clause, 20)
    positions, pieces = clause.frames, -(-clause.frames // 20)
    assert len(parts) == 2 + 3  # coupling layers; parts between upsampling convolutions
    for part, count in zip(parts, computed, strict=True):
        assert positions <= count <= positions + 2 * pieces * part.context
        positions *= part.rate


def test_a_graph_with_other_names_is_rendered_whole(tmp_path: Path) -> None:
    voice = PiperVoice.load(write_tiny_piper(tmp_path, decoder_prefix="generator."))
    cut = PiperVoice.load(write_tiny_piper(tmp_path / "cut"))
    assert not voice.renders_ranges
    whole, piecewise = (
        in_pieces(each, each.encode(phonemes_of(each), np.random.default_rng(1)), 1 << 20)
        for each in (voice, cut)
    )
    np.testing.assert_allclose(whole, piecewise, atol=1e-4)


def test_equal_seeds_give_equal_samples_and_speakers_differ(tmp_path: Path) -> None:
    voice = PiperVoice.load(write_tiny_piper(tmp_path, speakers=2))

    def speak(seed: int, speaker: int) -> np.ndarray:
        clause = voice.encode(phonemes_of(voice), np.random.default_rng(seed), speaker=speaker)
        return in_pieces(voice, clause, 17)

    assert np.array_equal(speak(1, 0), speak(1, 0))
    assert not np.allclose(speak(1, 0), speak(2, 0))
    assert not np.allclose(speak(1, 0), speak(1, 1))


def test_a_phoneme_that_the_voice_lacks_is_left_out_and_named(tmp_path: Path) -> None:
    voice = PiperVoice.load(write_tiny_piper(tmp_path))
    ids = voice.alphabet.ids(["abð", "ð"], ["", ""], [False, False])
    assert voice.alphabet.missing == {"ð"}
    assert ids.words[1][0] == ids.words[1][1] and ids.has_sound


def test_words_have_the_times_of_their_ids(tmp_path: Path) -> None:
    voice = PiperVoice.load(write_tiny_piper(tmp_path))
    clause = voice.encode(phonemes_of(voice, "ab cd"), np.random.default_rng(1))
    assert clause.words is not None
    each = 6 * voice.frame_s  # ^ _ a _ b _ blank _ c _ d _
    (first, _), (second, stop) = clause.words
    assert (first, second) == pytest.approx((2 * each, 8 * each)) and second < stop <= 12 * each + 1e-6


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"phoneme_type": "pinyin"}, "phoneme_type is 'pinyin'"),
        ({"audio": {"sample_rate": 4}}, "sample_rate is 4"),
        ({"audio": {}}, "'sample_rate' is missing"),
        ({"phoneme_id_map": []}, "no configuration"),
        ({"phoneme_id_map": {"a": [1]}}, "lacks _, ^, $"),
        ({"inference": {"noise_scale": "loud"}}, "no configuration"),
    ],
)
def test_a_wrong_configuration_is_described(tmp_path: Path, config: dict[str, object], says: str) -> None:
    path = write_tiny_piper(tmp_path, config=config)
    with pytest.raises(PiperVoiceError, match=says.replace("$", r"\$").replace("^", r"\^")):
        PiperVoice.load(path)


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    path = write_tiny_piper(tmp_path)
    path.write_bytes(b"not a model")
    with pytest.raises(PiperVoiceError, match=path.name):
        PiperVoice.load(path)
    path.unlink()
    with pytest.raises(PiperVoiceError, match=f"{path.name}: cannot be read"):
        PiperVoice.load(path)
    path.with_name(path.name + ".json").write_text("[1]", "utf-8")
    with pytest.raises(PiperVoiceError, match="no configuration"):
        read_config(path)


@pytest.mark.parametrize(
    ("name", "config", "language"),
    [
        ("en_GB-alan-low", {"language": None}, "en-GB"),
        ("voice", {"language": {"code": "pt_BR"}}, "pt-BR"),
        ("voice", {"language": None, "espeak": {"voice": "de"}, "phoneme_type": "espeak"}, "de"),
    ],
)
def test_the_language_is_known(tmp_path: Path, name: str, config: dict[str, object], language: str) -> None:
    path = write_tiny_piper(tmp_path, name=name, config=config)
    assert read_config(path).language == language
    assert json.loads(path.with_name(path.name + ".json").read_text())
