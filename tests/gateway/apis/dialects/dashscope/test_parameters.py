"""The parameters that the SDKs send: every default, and every limit from both sides."""

from typing import Any

import pytest

from vivavoce.gateway.apis.dialects.dashscope.parameters import SAMPLE_RATES, SpeechParameters
from vivavoce.gateway.apis.dialects.dashscope.request_mapping import make_synthesis_options
from vivavoce.gateway.apis.kits.dashscope.errors import InvalidDashScopeField
from vivavoce.gateway.apis.kits.dashscope.validation import parse_message
from vivavoce.tts_engine.reading.pronunciation.lexicon import Lexicon, Pronunciation


def parse(**fields: Any) -> SpeechParameters:
    return parse_message(SpeechParameters, {"voice": "anna", **fields})


def test_only_the_voice_is_required() -> None:
    assert parse().model_dump() == {
        "voice": "anna",
        "format": "mp3",
        "sample_rate": 22_050,
        "bit_rate": None,
        "volume": 50,
        "rate": 1.0,
        "pitch": 1.0,
        "seed": 0,
        "instruction": "",
        "language_hints": (),
        "word_timestamp_enabled": False,
        "enable_ssml": False,
        "hot_fix": {"pronunciation": (), "replace": ()},
        "text_type": "PlainText",
    }


def test_the_sdks_default_format_is_mp3_at_22050_hz() -> None:
    sent = parse(format="Default", sample_rate=0, volume=50, rate=1.0, pitch=1.0, seed=0, type=0)
    assert (sent.format, sent.sample_rate) == ("mp3", 22_050)


@pytest.mark.parametrize("codec", ["mp3", "pcm", "wav", "opus"])
@pytest.mark.parametrize("sample_rate", SAMPLE_RATES)
def test_every_format_is_allowed_at_every_sample_rate(codec: str, sample_rate: int) -> None:
    sent = parse(format=codec, sample_rate=sample_rate)
    assert (sent.format, sent.sample_rate) == (codec, sample_rate)


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
def test_a_bit_rate_is_in_kilobits_or_bits_per_second(sent: Any, bit_rate: int | None) -> None:
    assert parse(format="opus", bit_rate=sent).bit_rate == bit_rate


@pytest.mark.parametrize("bit_rate", [256, "fast"])
def test_the_bit_rate_of_another_codec_than_opus_is_ignored(bit_rate: Any) -> None:
    assert parse(format="mp3", bit_rate=bit_rate).bit_rate is None


@pytest.mark.parametrize("bit_rate", [5, 257, -1, 256_001, "fast", "²k", "999999999999k", "", True, [64]])
def test_a_bit_rate_outside_the_range_of_opus_is_refused(bit_rate: Any) -> None:
    with pytest.raises(InvalidDashScopeField, match="bit_rate"):
        parse(format="opus", bit_rate=bit_rate)


@pytest.mark.parametrize(("volume", "factor"), [(0, 0.0), (50, 1.0), (100, 2.0), (25.0, 0.5)])
def test_volume_50_is_the_voices_own_volume(volume: float, factor: float) -> None:
    assert make_synthesis_options(parse(volume=volume), "anna").volume == factor


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
def test_a_value_at_its_limit_is_accepted(name: str, value: Any) -> None:
    parse(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, _, _, below, above in LIMITS for value in (below, above)]
    + [(name, value) for name in ("volume", "rate", "seed") for value in (True, "1", [], 1e999)]
    + [("seed", 1.5), ("sample_rate", 22_050.5)],
)
def test_a_value_beyond_its_limit_is_refused_with_the_name_of_the_field(name: str, value: Any) -> None:
    with pytest.raises(InvalidDashScopeField, match=name):
        parse(**{name: value})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"voice": None}, "parameters.voice is required"),
        ({"voice": 7}, "parameters.voice must be a string of at most 128 characters"),
        ({"volume": "loud"}, "parameters.volume must be a number from 0 to 100"),
        ({"rate": 9}, "parameters.rate must be a number from 0.5 to 2.0"),
        ({"seed": 10**400}, "parameters.seed must be a number from 0 to 65535"),
        ({"seed": 1.5}, "parameters.seed must be a whole number from 0 to 65535"),
        ({"enable_ssml": 1}, "parameters.enable_ssml must be true or false"),
        ({"format": "AMR"}, "parameters.format: got 'amr'; allowed are mp3, pcm, wav, opus and Default"),
        (
            {"sample_rate": 7},
            "parameters.sample_rate: got 7; "
            "allowed are 8000, 16000, 22050, 24000, 44100, 48000, and 0 for 22050",
        ),
        (
            {"format": "opus", "bit_rate": 5},
            "parameters.bit_rate: got 5000 bit/s; allowed are 6000 to 256000",
        ),
        ({"text_type": "XML"}, "parameters.text_type: got 'xml'; allowed are PlainText and SSML"),
        ({"language_hints": "en"}, "parameters.language_hints must be a list of language codes"),
    ],
)
def test_a_refusal_says_what_is_allowed(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidDashScopeField) as refusal:
        parse(**fields)
    assert str(refusal.value) == sentence


def test_null_is_the_same_as_an_absent_field() -> None:
    names = ("format", "sample_rate", "bit_rate", "volume", "rate", "pitch", "seed", "instruction")
    assert parse(**dict.fromkeys(names), language_hints=None, enable_ssml=None) == parse()


def test_unknown_parameters_are_ignored() -> None:
    assert parse(hot_fix={"replace": []}, enable_aigc_tag=True, no_such_thing=7) == parse()


def test_readings_and_pinyin_of_words_are_a_lexicon() -> None:
    sent = parse(
        hot_fix={
            "pronunciation": [{"天气": "tian1 qi4", "重": "chong2"}],
            "replace": [{"nginx": "engine x"}, {"重": "虫"}],
        }
    )
    lexicon = make_synthesis_options(sent, "anna").lexicon
    assert lexicon is not None
    found = [lexicon.find(text, at) for text, at in (("nginx", 0), ("今天气温", 1), ("重", 0))]
    assert [each and each.pronunciation for each in found] == [
        Pronunciation("engine x"),
        Pronunciation(pinyin="tian1 qi4"),
        Pronunciation("虫", pinyin="chong2"),
    ]
    assert make_synthesis_options(parse(hot_fix={"replace": None}), "anna").lexicon is None


@pytest.mark.parametrize(
    ("hot_fix", "sentence"),
    [
        (7, "hot_fix must be an object"),
        ({"replace": {"a": "b"}}, "parameters.hot_fix.replace must be a list of at most 100 objects"),
        ({"replace": [{"a": 7}]}, "parameters.hot_fix.replace must be a list"),
        ({"replace": [{"a": "b" * 201}]}, "parameters.hot_fix.replace must be a list"),
        ({"replace": [{str(number): "b"} for number in range(101)]}, "at most 100 objects"),
        ({"replace": [{str(number): "b" for number in range(101)}]}, "at most 100 objects"),
        ({"pronunciation": [{"天": 1}]}, "parameters.hot_fix.pronunciation must be a list of at most 100"),
    ],
)
def test_wrong_readings_of_words_are_refused(hot_fix: object, sentence: str) -> None:
    with pytest.raises(InvalidDashScopeField, match=sentence):
        make_synthesis_options(parse(hot_fix=hot_fix), "anna")


def test_a_whole_number_may_be_written_with_a_fraction_of_zero() -> None:
    assert parse(seed=7.0, sample_rate=24_000.0) == parse(seed=7, sample_rate=24_000)


def test_the_first_language_is_used() -> None:
    assert parse(language_hints=["zh", "en"]).language == "zh"
    assert parse(language_hints=[]).language is None


def test_wrong_entries_of_hot_fix_are_left_out_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    hot_fix = {
        "pronunciation": [{"天": "tian6", "气": "qi4"}, {"": "a1"}],
        "replace": [{"": "b"}, {"nginx": "engine x"}],
    }
    lexicon = make_synthesis_options(parse(hot_fix=hot_fix), "anna").lexicon
    assert lexicon == Lexicon({"气": Pronunciation("", pinyin="qi4"), "nginx": Pronunciation("engine x")})
    assert [record.getMessage() for record in caplog.records] == [
        "hot_fix.replace: 1 of 2 entries are wrong and left out",
        "hot_fix.pronunciation: 2 of 3 entries are wrong and left out",
    ]
