"""What the SDKs send as parameters, each default and limit from both sides."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.dashscope.parameters import (
    SAMPLE_RATE_OF_KIND,
    InvalidDashScopeField,
    TaskParameters,
    billed_characters,
    parse_parameter_fields,
    parse_task_parameters,
)


def of(**fields: Any) -> TaskParameters:
    return parse_parameter_fields({"voice": "anna", **fields})


def test_a_voice_is_all_that_is_needed() -> None:
    assert of() == TaskParameters("anna", "mp3", 22_050, None, 1.0, 1.0, 1.0, 0, "", "", False, False, False)


def test_the_sdks_default_format_is_mp3_at_22050() -> None:
    sent = of(format="Default", sample_rate=0, volume=50, rate=1.0, pitch=1.0, seed=0, type=0)
    assert (sent.codec, sent.sample_rate) == ("mp3", 22_050)


@pytest.mark.parametrize("codec", ["mp3", "pcm", "wav", "opus"])
@pytest.mark.parametrize("sample_rate", SAMPLE_RATE_OF_KIND)
def test_every_format_comes_at_every_rate(codec: str, sample_rate: int) -> None:
    sent = of(format=codec, sample_rate=sample_rate)
    assert (sent.codec, sent.sample_rate) == (codec, sample_rate)


@pytest.mark.parametrize(
    ("sent", "bit_rate"),
    [
        (16, 16_000),
        (32, 32_000),
        (64, 64_000),
        (64_000, 64_000),
        ("48k", 48_000),
        (6, 6_000),
        (256, 256_000),
        (0, None),
        (None, None),
    ],
)
def test_a_bit_rate_comes_in_kilobits_or_bits(sent: Any, bit_rate: int | None) -> None:
    assert of(format="opus", bit_rate=sent).bit_rate == bit_rate


def test_only_opus_has_a_bit_rate() -> None:
    assert of(format="mp3", bit_rate=256).bit_rate is None


@pytest.mark.parametrize("bit_rate", [5, 257, -1, 256_001, "fast", "²k", "999999999999k", "", True, [64]])
def test_a_bit_rate_that_opus_does_not_have_is_refused(bit_rate: Any) -> None:
    with pytest.raises(InvalidDashScopeField, match="bit_rate"):
        of(format="opus", bit_rate=bit_rate)


@pytest.mark.parametrize(("volume", "factor"), [(0, 0.0), (50, 1.0), (100, 2.0), (25.0, 0.5)])
def test_volume_50_is_as_the_voice_is(volume: float, factor: float) -> None:
    assert of(volume=volume).volume == factor


LIMITS = [
    ("volume", 0, 100, -1, 101),
    ("rate", 0.5, 2.0, 0.49, 2.01),
    ("pitch", 0.5, 2.0, 0.49, 2.01),
    ("seed", 0, 65_535, -1, 65_536),
    ("instruction", "", "x" * 128, 7, "x" * 129),
    ("voice", "x", "x" * 128, "", "x" * 129),
    ("language_hints", [], ["zh", "en"], "zh", [3]),
    ("enable_ssml", True, False, "true", 1),
    ("word_timestamp_enabled", True, False, 0, "no"),
    ("text_type", "PlainText", "SSML", "XML", 3),
    ("sample_rate", 0, 48_000, 11_025, 96_000),
    ("format", "MP3", "Default", "flac", 3),
]


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, low, high, *_ in LIMITS for value in (low, high)]
)
def test_what_is_just_allowed_is_taken(name: str, value: Any) -> None:
    of(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, _, _, below, above in LIMITS for value in (below, above)]
    + [(name, value) for name in ("volume", "rate", "seed") for value in (True, "1", [], 1e999)]
    + [("seed", 1.5), ("sample_rate", 22_050.5)],
)
def test_what_is_not_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidDashScopeField, match=name):
        of(**{name: value})


def test_null_is_as_good_as_nothing() -> None:
    names = ("format", "sample_rate", "bit_rate", "volume", "rate", "pitch", "seed", "instruction")
    assert of(**dict.fromkeys(names), language_hints=None, enable_ssml=None) == of()


def test_unknown_parameters_are_ignored() -> None:
    assert of(hot_fix={"replace": []}, enable_aigc_tag=True, no_such_thing=7) == of()


def test_the_first_language_counts() -> None:
    assert of(language_hints=["zh", "en"]).language == "zh"


@pytest.mark.parametrize("payload", [{}, {"parameters": None}, {"parameters": {}}])
def test_without_parameters_the_voice_is_missing(payload: dict[str, Any]) -> None:
    with pytest.raises(InvalidDashScopeField, match="voice is required"):
        parse_task_parameters(payload)


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("", 0),
        ("Hello, world!", 13),
        ("你好", 4),
        ("你好, Anna。", 11),
        ("日本語かな", 8),
        ("한국어", 3),
        ("韓國", 4),
        ("𠀀", 2),
        ("々〇", 4),
        ("、。", 2),
        ("😀", 1),
    ],
)
def test_han_characters_count_twice(text: str, characters: int) -> None:
    assert billed_characters(text) == characters


@given(st.characters())
def test_an_ideograph_is_what_unicode_names_so(character: str) -> None:
    name = unicodedata.name(character, "")
    if name.startswith(("CJK UNIFIED IDEOGRAPH", "CJK COMPATIBILITY IDEOGRAPH", "CJK RADICAL", "KANGXI")):
        assert billed_characters(character) == 2
    elif name.startswith(("LATIN", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC COMMA", "FULLWIDTH")):
        assert billed_characters(character) == 1
