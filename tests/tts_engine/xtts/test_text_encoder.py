"""Text for XTTS: numbers in words, the limits of a language, languages by name and by script."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from vivavoce.models.xtts.text.cleaner import clean_text
from vivavoce.models.xtts.text.language_tables import CHARACTER_LIMITS
from vivavoce.models.xtts.text.tokenizer import VOCABULARY_FILE, XttsTokenizer
from vivavoce.tts_engine.reading.languages.mul.rules import LanguageGrammars
from vivavoce.tts_engine.reading.normalizer import TextNormalizer
from vivavoce.tts_engine.segmenter import BoundaryKind, Segment, Segmenter, SpokenWord
from vivavoce.tts_engine.xtts.languages import (
    XTTS_LANGUAGES,
    language_of_text,
    readable_scripts,
    xtts_language,
)
from vivavoce.tts_engine.xtts.number_words import CldrNumberWords
from vivavoce.tts_engine.xtts.policy import XttsPolicy
from vivavoce.tts_engine.xtts.text_encoder import XttsTextEncoder


def segment(*texts: str) -> Segment:
    words, start = [], 0
    for text in texts:
        words.append(SpokenWord(text, "", start, start + len(text)))
        start += len(text) + 1
    return Segment(tuple(words), 0, start, BoundaryKind.SENTENCE)


@pytest.fixture(scope="module")
def encoder(xtts_folder: Path) -> XttsTextEncoder:
    return XttsTextEncoder(XttsTokenizer.load(xtts_folder / VOCABULARY_FILE), CldrNumberWords(), 201)


@pytest.mark.parametrize("language", ["pl", "pt", "ja"])
def test_text_over_the_limit_of_its_language_is_split_between_words(
    encoder: XttsTextEncoder, language: str
) -> None:
    whole = segment(*(f"numer {'abc' * (index % 3)}".strip() for index in range(90)))
    pieces = [*encoder.encode(whole, language, 0.4)]
    assert len(pieces) > 2
    assert all(len(piece.segment.spoken) <= CHARACTER_LIMITS[language] for piece in pieces)
    assert tuple(word for piece in pieces for word in piece.segment.words) == whole.words
    assert [piece.pause_s for piece in pieces] == [0.0] * (len(pieces) - 1) + [0.4]


def test_phonemes_of_words_are_not_used_which_the_log_says_once(
    encoder: XttsTextEncoder, caplog: pytest.LogCaptureFixture
) -> None:
    plain = segment("hello", "there")
    pronounced = replace(plain, words=(replace(plain.words[0], phonemes="həˈloʊ"), plain.words[1]))
    with caplog.at_level(logging.WARNING):
        pieces = [[*encoder.encode(each, "en", 0.0)] for each in (plain, pronounced, pronounced)]
    assert len({tuple(piece.text_ids for piece in each) for each in pieces}) == 1
    assert [record.getMessage() for record in caplog.records] == [
        "XTTS reads letters; phonemes of words are not used"
    ]


def test_pinyin_of_a_word_is_read_in_its_place_and_its_tones_are_no_numbers(encoder: XttsTextEncoder) -> None:
    pytest.importorskip("pypinyin", reason="Chinese needs pypinyin: make test EXTRAS=dev,stt,cosyvoice")
    plain = segment("我", "在", "重", "庆")
    said = ("chong2", "qing4")
    words = [replace(word, pinyin=pinyin) for word, pinyin in zip(plain.words[2:], said, strict=True)]
    [piece] = encoder.encode(replace(plain, words=(*plain.words[:2], *words)), "zh", 0.0)
    [expected] = encoder.encode(segment("wo3zai4chong2qing4"), "zh", 0.0)
    assert piece.text_ids == expected.text_ids


def test_a_word_that_is_longer_than_a_generation_is_cut(encoder: XttsTextEncoder) -> None:
    [piece] = encoder.encode(segment("x" * 500), "en", 0.0)
    assert len(piece.text_ids) == 201
    assert [*encoder.encode(segment(), "en", 0.0)] == []


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("pt", "21 gatos", "vinte e um gatos"),
        ("pt", "1.234€", "mil duzentos e trinta e quatro euros"),
        ("pt", "2,5", "dois vírgula cinco"),
        ("pl", "33 koty", "trzydzieści trzy koty"),
        ("nl", "€12,50", "twaalf euro, vijftig"),
        ("tr", "3. kat", "üçüncü kat"),
        ("hu", "12", "tizenkettő"),
        ("cs", "3. patro", "tři. patro"),
        ("hi", "5", "पाँच"),
        ("ko", "3개", "samgae"),
        ("ko", "1번째", "cheos beon-jjae"),
        ("ko", "2번째", "du beon-jjae"),
        ("ar", "7", "سبعة"),
        ("en", "3rd", "third"),
    ],
)
def test_numbers_are_words_of_their_language(language: str, written: str, spoken: str) -> None:
    assert clean_text(written, language, CldrNumberWords()) == spoken


@pytest.mark.parametrize(
    ("language", "written", "spoken"),
    [
        ("pt", "Custa 2,5 litros e 12,50€, 20% mais.", "Custa 2,5 litros e 12,50€, 20% mais."),
        ("pl", "Cena $33 i 1.234 zł.", "Cena $33 i 1.234 zł."),
        ("hi", "मैं 5 लोग 20% है।", "मैं 5 लोग 20% है."),
        ("de", "Das kostet 12,50 €.", "Das kostet zwölf Euro und fünfzig Cent."),
    ],
)
def test_numbers_reach_the_cleaning_whole(language: str, written: str, spoken: str) -> None:
    clauses = LanguageGrammars.load(["de"]).with_written_numbers().any_clause_normalizer(language)
    segmenter = Segmenter(XttsPolicy().segments, TextNormalizer(clauses), readable_scripts(language))
    segments = [*segmenter.push(written), *segmenter.flush()]
    assert " ".join(each.spoken for each in segments) == spoken


def test_a_number_counts_with_its_words(encoder: XttsTextEncoder) -> None:
    [piece] = encoder.encode(segment("1234567"), "pt", 0.0)
    assert piece.usual_s > 3.0


def test_languages_are_known_by_code_and_name() -> None:
    codes = [code if code != "zh" else "zh-cn" for code in XTTS_LANGUAGES]
    assert len(codes) == 17
    for code, name in XTTS_LANGUAGES.items():
        assert xtts_language(name, codes) == xtts_language(f"{code}-XX", codes) == code
    assert xtts_language("mul", codes) is None


@pytest.mark.parametrize(
    ("text", "language"),
    [("Grün", "en"), ("Привет", "ru"), ("مرحبا", "ar"), ("नमस्ते", "hi"), ("今日は", "ja"), ("한국 漢", "ko")],
)
def test_the_script_tells_a_language_that_is_not_given(text: str, language: str) -> None:
    assert language_of_text(text) == language
