"""Text of XTTS: what is no text of a language is an error, and nothing is lost without number words."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from vivavoce.models.xtts.checkpoint.bundle import XttsBundle
from vivavoce.models.xtts.text.cleaner import clean_text
from vivavoce.models.xtts.text.tokenizer import XttsTokenizer


class NoNumberWords:
    """Knows no number."""

    def cardinal(self, number: int, language: str) -> str | None:
        return None

    def decimal(self, number: float, language: str) -> str | None:
        return None

    def ordinal(self, number: int, language: str) -> str | None:
        return None

    def money(self, amount: float, currency: str, language: str) -> str | None:
        return None


@pytest.mark.parametrize(
    ("text", "language", "cleaned"),
    [
        ('Dr. "Who"  paid $5, &\tleft.', "en", "doctor who paid dollar 5, and left."),
        ("3. Mai", "de", "3. mai"),
        ("1,2,3,4€ 1.2.3€", "fr", "1,2,3,4€ 1.2.3€"),
        ("9" * 40, "en", "9" * 40),
        ("", "en", ""),
        ("ni3 hao3", "zh-cn", "ni3 hao3"),
    ],
)
def test_text_without_number_words_keeps_its_digits(text: str, language: str, cleaned: str) -> None:
    assert clean_text(text, language, NoNumberWords()) == cleaned


@pytest.mark.parametrize(
    ("text", "romanized"),
    [
        ("你好，世界！", "ni3hao3,shi4jie4!"),
        ("电话13800138000", "dian4hua4yi1san1ba1ling2ling2yi1san1ba1ling2ling2ling2"),
        ("2024年", "er4ling2er4si4nian2"),
        ("吗", "ma5"),
        ('"OK"，好', "ok,hao3"),
        ("好한", "hao3"),  # a letter of another script
    ],
)
def test_chinese_is_read_as_pinyin(text: str, romanized: str) -> None:
    pytest.importorskip("pypinyin", reason="Chinese needs pypinyin: make test EXTRAS=dev,stt,cosyvoice")
    assert clean_text(text, "zh-cn", NoNumberWords()) == romanized


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("我吃了1/2个", "wo3chi1le5er4fen1zhi1yi2ge4"),
        ("现在14:30", "xian4zai4shi2si4,san1shi2"),
        ("在2024/5/6", "zai4er4qian1ling2er4shi2si4/wu3/liu4"),
    ],
)
def test_fractions_and_times_are_read_in_chinese(text: str, cleaned: str) -> None:
    pytest.importorskip("pypinyin", reason="Chinese needs pypinyin: make test EXTRAS=dev,stt,cosyvoice")
    numbers = pytest.importorskip("vivavoce.tts_engine.xtts.number_words").CldrNumberWords()
    assert clean_text(text, "zh-cn", numbers) == cleaned


@pytest.mark.parametrize(
    ("text", "romanized"),
    [
        ("한국어", "hangug-eo"),
        ("샀습니다", "sass-seubnida"),
        ("각가 번째", "gagga beon-jjae"),
        ("가 아", "ga a"),
        ("10% 세일", "10 peosenteu se-il"),
    ],
)
def test_korean_is_transliterated_with_hyphens_where_syllables_are_ambiguous(
    text: str, romanized: str
) -> None:
    assert clean_text(text, "ko", NoNumberWords()) == romanized


def test_japanese_is_read_as_romaji() -> None:
    pytest.importorskip("cutlet", reason="Japanese needs cutlet: make test EXTRAS=dev,stt,cosyvoice,japanese")
    assert clean_text("今日は、東京タワーへ。", "ja", NoNumberWords()) == "kyou wa, tokyo tower e."


def test_an_unknown_language_is_refused(bundle: XttsBundle) -> None:
    tokenizer = bundle.tokenizer()
    assert tokenizer.encode("a b", "en") == tokenizer.encode("a b", "EN")
    assert tokenizer.encode("a", "zh") == tokenizer.encode("a", "zh-cn")
    with pytest.raises(ValueError, match="has no tag \\[sv\\]"):
        tokenizer.encode("hej", "sv")


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"model": {"vocab": {"a": "x"}, "merges": []}, "added_tokens": []}']
)
def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "vocab.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"vocab\.json"):
        XttsTokenizer.load(path)
