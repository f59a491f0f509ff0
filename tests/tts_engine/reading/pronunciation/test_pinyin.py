"""Pinyin with tone digits: what is read, what is refused, and where the tone mark stands."""

import pytest

from vivavoce.tts_engine.reading.pronunciation.pinyin import BadPinyin, read_pinyin
from vivavoce.tts_engine.voice_kit.pinyin_words import with_tone_mark


@pytest.mark.parametrize(
    ("text", "syllables"),
    [
        ("tian1 qi4", "tian1 qi4"),
        ("Tian1Qi4", "tian1 qi4"),
        ("ma", "ma5"),
        ("nü3 lu:4", "nv3 lv4"),
        ("ér", None),
    ],
)
def test_pinyin_is_read_by_syllables(text: str, syllables: str | None) -> None:
    if syllables is None:
        with pytest.raises(BadPinyin, match="no syllable with a tone"):
            read_pinyin(text)
    else:
        assert read_pinyin(text) == syllables


@pytest.mark.parametrize("text", ["", " ", "tian6", "tian12", "qx1", "天", "a1 " * 80])
def test_what_is_no_pinyin_is_refused(text: str) -> None:
    with pytest.raises(BadPinyin):
        read_pinyin(text)


def test_tone_marks_stand_where_the_library_of_pinyin_puts_them() -> None:
    pypinyin = pytest.importorskip("pypinyin", reason="Chinese: make test EXTRAS=dev,stt,cosyvoice")
    characters = "妈麻马骂吗天气怪快光王翁用雄鸟六贵论吹我月女绿略虐军选二昂恩狗手风学全鞋穷"
    toned = pypinyin.lazy_pinyin(list(characters), style=pypinyin.Style.TONE)
    digits = pypinyin.lazy_pinyin(list(characters), style=pypinyin.Style.TONE3, neutral_tone_with_five=True)
    assert ["".join(with_tone_mark(read_pinyin(each))) for each in digits] == toned
