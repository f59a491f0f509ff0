"""Cuts in sentences without punctuation: where, when, and that they change no reading."""

import re
from functools import cache
from itertools import accumulate
from pathlib import Path

import pytest

from vivavoce.tts_engine.reading.languages.en.rules import EnglishClauseNormalizer
from vivavoce.tts_engine.reading.languages.mul.rules import LanguageGrammars
from vivavoce.tts_engine.reading.languages.registry import LANGUAGES
from vivavoce.tts_engine.reading.normalizer import ClauseNormalizer, TextNormalizer
from vivavoce.tts_engine.reading.phrase_cuts import MAX_WORDS, limit_of, words_after
from vivavoce.tts_engine.reading.pronunciation.entries import lexicon_of
from vivavoce.tts_engine.segmenter import BoundaryKind, Segmenter

LISTS = Path(__file__).parent / "languages"
NEVER = 9_999
LONG = (
    "I would like to let you know that your appointment with doctor Smith has been moved to the "
    "third of March at the main building because the other one is closed for repairs until the end "
    "of the month and we hope that you can come anyway since there is a lot of parking space behind "
    "the house"
)
SENTENCES = {
    "de": "ich wollte Ihnen nur kurz sagen dass der Termin bei Doktor Weber auf Montag verschoben wurde weil",
    "fr": "je voulais vous dire que votre rendez-vous chez le docteur a été déplacé parce que la salle est",
    "es": "quería decirle que su cita con el doctor ha sido cambiada al lunes porque la "
    "sala está cerrada hoy",
    "it": "volevo dirle che il suo appuntamento con il dottore è stato spostato a lunedì "
    "perché la sala è chiusa",
    "pt": "queria dizer que a sua consulta com o doutor foi mudada para segunda porque a "
    "sala está fechada hoje",
    "nl": "ik wilde u laten weten dat uw afspraak met de dokter is verplaatst naar maandag "
    "omdat de zaal dicht",
    "pl": "chciałem powiedzieć że wizyta u doktora została przełożona na poniedziałek "
    "ponieważ sala jest teraz zamknięta dla wszystkich",
    "ru": "я хотел сказать что ваша встреча с доктором перенесена на понедельник потому что "
    "зал сегодня закрыт",
    "tr": "doktor ile olan randevunuz pazartesi gününe alındı çünkü salon bugün bütün gün "
    "kapalı kalacak ve biz",
    "ko": "의사 선생님과의 예약이 월요일로 변경되었습니다만 오늘은 회의실이 닫혀 있어서 "
    "다른 날에 다시 연락 드리겠습니다",
    "zh": "我想告诉您医生的预约已经改到星期一下午因为今天会议室关闭我们希望您仍然可以按时过来",
    "ja": "お客様のご予約は月曜日の午後に変更されましたので当日は早めに受付までお越しいただけますと幸いです",
}


@cache
def grammars_of(language: str) -> LanguageGrammars:
    return LanguageGrammars.load([language])


def normalizer_of(language: str) -> ClauseNormalizer:
    if language == "en":
        return EnglishClauseNormalizer()
    if language in ("zh", "ja"):
        pytest.importorskip("wetext", reason="Chinese and Japanese: make test EXTRAS=dev,stt,cosyvoice")
    return grammars_of(language).clause_normalizer(language)


def spoken(text: str, clauses: ClauseNormalizer, first_words: int) -> list[str]:
    reader = TextNormalizer(clauses, first_words=first_words)
    return ["".join(word.text for word in each.words) for each in (*reader.push(text), *reader.flush())]


def written_in_lists(language: str) -> list[str]:
    """Every fifth text of the lists of a language."""
    files = sorted(LISTS.glob(f"{language}.txt")) or sorted((LISTS / language).rglob("*.txt"))
    rows = (line for file in files for line in file.read_text("utf-8").splitlines() if line[:1] != "#")
    return [re.split(" [=-]> ", row)[0] for row in rows if re.search(" [=-]> ", row)][::5]


@pytest.mark.parametrize("language", [each.code for each in LANGUAGES])
def test_a_cut_after_few_words_changes_no_reading(language: str) -> None:
    normalizer_of(language)
    for text in written_in_lists(language):
        cut, whole = (spoken(text, normalizer_of(language), words) for words in (5, NEVER))
        assert "".join(cut) == "".join(whole), text


@pytest.mark.parametrize(("language", "text"), SENTENCES.items())
def test_text_without_punctuation_is_cut_after_a_dozen_words_in_every_language(
    language: str, text: str
) -> None:
    reader = TextNormalizer(normalizer_of(language))
    (first, *_) = reader.push(text)
    assert first.ending is BoundaryKind.FORCED
    assert reader.flush()
    assert TextNormalizer(normalizer_of(language)).push(text[: limit_of(text, 14)]) == [first]


def test_a_cut_tells_the_words_that_follow_it_for_the_melody_before_it() -> None:
    first, *_ = TextNormalizer(EnglishClauseNormalizer()).push(LONG)
    assert first.following == ("that", "your", "appointment", "with", "doctor")
    segments = [*(segmenter := Segmenter()).push(LONG), *segmenter.flush()]
    assert segments[0].following == first.following
    assert segments[-1].following == ()
    assert [each.following for each in Segmenter().push("One two three, four five six, seven. ")] == [(), ()]
    parts = Segmenter()
    split = [segment for letter in LONG for segment in parts.push(letter)] + parts.flush()
    assert split == segments


def test_the_word_that_may_go_on_and_numbers_follow_no_cut() -> None:
    assert words_after("because the door", 7) == ("the",)
    assert words_after("because on 3 May at", 7) == ("on",)
    assert words_after("because", 7) == ()


def test_cuts_are_between_phrases_and_grow_with_what_was_said() -> None:
    segmenter = Segmenter()
    spoken_parts = [segment.spoken for segment in segmenter.push(LONG) + segmenter.flush()]
    assert spoken_parts[:3] == [
        "I would like to let you know",
        "that your appointment with doctor Smith",
        "has been moved to the third of March",
    ]
    counts = [len(part.split()) for part in spoken_parts]
    said = [0, *accumulate(counts)]
    assert all(count <= max(14, min(before, MAX_WORDS)) for count, before in zip(counts, said, strict=False))
    assert counts[3] > 14


def test_the_first_cut_comes_with_the_thirteenth_word() -> None:
    words = LONG.split(" ")
    segmenter = Segmenter()
    assert segmenter.push(" ".join(words[:12]) + " ") == []
    assert [segment.ending for segment in segmenter.push(words[12][:1])] == [BoundaryKind.FORCED]


@pytest.mark.parametrize("size", [1, 2, 5, 17])
def test_any_split_gives_the_same_cuts(size: int) -> None:
    text = f"{LONG} {LONG}. Well then, {LONG}"
    whole, split = Segmenter(), Segmenter()
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    assert [one for part in parts for one in split.push(part)] + split.flush() == [
        *whole.push(text),
        *whole.flush(),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "the number is 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 0 1 2 3",
        "and with or for but from in at on by when if that",
        'he said "the man with the dog went to the house with the door and the roof and',
        "we saw Anna Berta Clara Dora Emma Frieda Gerda Hanna Ilse Johanna Klara Lena Maria",
        "we know $a and b with c and d with e and f for g and h$ since then and we",
    ],
)
def test_no_cut_in_numbers_names_quotes_or_formulas_nor_after_words_that_go_on(text: str) -> None:
    assert TextNormalizer(EnglishClauseNormalizer()).push(text) == []


def test_a_boundary_before_the_limit_wins() -> None:
    reader = TextNormalizer(EnglishClauseNormalizer())
    (clause,) = reader.push("the table by the window is free for you and for them. The")
    assert clause.ending is BoundaryKind.SENTENCE


def test_a_name_of_a_lexicon_is_not_cut() -> None:
    reader = TextNormalizer(EnglishClauseNormalizer())
    reader.use_lexicons([lexicon_of({"smith and wesson": "S W"})])
    (first, *_) = reader.push("you can ask the people at the shop called smith and wesson today please go")
    assert [word.text for word in first.words][-1] != "smith"
