"""Words for CosyVoice: IPA of the text, a lexicon or SSML as version 3's marks, and what version 2 says."""

import logging

import pytest

pytest.importorskip("tokenizers", reason="the tokenizer of CosyVoice: make test EXTRAS=dev,stt,cosyvoice")

from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.text_tokenizer import special_tokens
from vivavoce.tts_engine.cosyvoice.generation_segmenter import GenerationSegmenter
from vivavoce.tts_engine.cosyvoice.text_encoder import CosyVoiceTextEncoder
from vivavoce.tts_engine.reading.languages.mul.rules import LanguageGrammars
from vivavoce.tts_engine.reading.pronunciation.entries import lexicon_of
from vivavoce.tts_engine.reading.pronunciation.lexicon import Pronunciation

V2, V3 = (special_tokens(version) for version in CosyVoiceVersion)
WORDS = {
    "Siobhan": "/ʃɪˈvɔːn/",
    "New York": {"ipa": "nuːˈjɔːrk", "say": "Noo York"},
    "click": "/ǃ/",
    "重庆": {"pinyin": "chong2 qing4"},
    "绿": {"pinyin": "lü4"},
    "女": {"pinyin": "nve4"},
    "儿": {"pinyin": "er5"},
}


def spoken(text: str, marks: tuple[str, ...], phrase: str = "", language: str | None = None) -> str:
    """The text that the model is given, clause by clause. phrase: said as "ˈæni" after the text."""
    written: list[str] = []

    def encode_text(text: str) -> list[int]:
        written.append(text)
        return []

    encoder = CosyVoiceTextEncoder(encode_text, marks)
    grammars = LanguageGrammars.load((language,) if language else ())
    segmenter = GenerationSegmenter(clauses=grammars.clause_normalizer(language, marks))
    segmenter.use_lexicons([lexicon_of(WORDS)])
    segments = segmenter.push(text)
    segments += segmenter.push(phrase, Pronunciation(phonemes="ˈæni")) if phrase else []
    before = ()
    for segment in [*segments, *segmenter.flush()]:
        encoder.encode(segment.words, before)
        before = segment.words[-1:]
    return "|".join(written)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ask Siobhan, then go.", "Ask [SH][IH0][V][AO1][N],| then go."),
        ("Siobhan's [laughter] here!", "[SH][IH0][V][AO1][N][Z] [laughter] here!"),
        ("In New York, it rains.", "In [N][UW0][Y][AO1][R][K],| it rains."),
        ("A [word](/wɜːd/) more.", "A [W][ER1][D] more."),
        ("One click here.", "One click here."),
    ],
)
def test_words_with_phonemes_are_marks_of_version_3(text: str, expected: str) -> None:
    assert spoken(text, V3) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我在重庆。", "我在[ch][óng][q][ìng]。"),
        ("重庆绿女。", "[ch][óng][q][ìng][l][ǜ][n][vè]。"),
        ("去重庆，好儿吗？", "去[ch][óng][q][ìng]，|好儿吗？"),  # there is no mark for a neutral "er"
    ],
)
def test_pinyin_becomes_marks_of_version_3_anywhere_in_chinese_text(text: str, expected: str) -> None:
    pytest.importorskip("wetext", reason="Chinese: make test EXTRAS=dev,stt,cosyvoice")
    assert spoken(text, V3, language="zh") == expected
    assert spoken(text, V2, language="zh") == text.replace("，", "，|")


def test_ssml_phonemes_are_marks_of_version_3() -> None:
    assert spoken("Call ", V3, "Anny") == "Call [AE1][N][IY0]."


def test_version_2_reads_the_word_or_its_respelling_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert spoken("Ask Siobhan in New York, Siobhan.", V2) == "Ask Siobhan in Noo York,| Siobhan."
    assert [record.getMessage() for record in caplog.records] == [
        "CosyVoice 2 reads letters; phonemes of words are not used"
    ]


def test_a_sound_without_a_mark_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert spoken("A [click](/kǃɪk/), a [click](/kǃɪk/).", V3) == "A [K][IH1][K],| a [K][IH1][K]."
    assert [record.getMessage() for record in caplog.records] == [
        "CosyVoice has no sound for ǃ, which is left out"
    ]
