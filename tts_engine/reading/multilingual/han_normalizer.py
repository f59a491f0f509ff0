"""Reads Chinese and Japanese: every character a word, what has digits by WeText.

WeText knows dates, times, money, units and phone numbers; here is which stretch of text it is given, and what
it does not know: codes, digits beside Latin letters. Numbers in Japanese come out in katakana (``kana.py``).
Source: WeTextProcessing's grammars, by wetext (Apache-2.0).
"""

import re
import unicodedata

from ..markup_rules import LINE_START_ROWS, MARKUP_ROWS, PUNCTUATION_ROWS
from ..tokenizer import WORD_PATTERN, Grammar, Recognizer, RuleRow, ScanState, compile_rules
from ..unicode_scripts import BOPOMOFO, HAN, KANA, ignores_spaces
from .japanese_numbers import end_of_counter, numerals_to_kana
from .number_formatter import MAX_NUMBER_DIGITS, load_wetext
from .spelling import LONG_DIGIT_GROUPS, Speller, finish_number

_WIDE_PUNCTUATION = {
    "zh": str.maketrans(",;:.!?", "，；：。！？"),
    "ja": str.maketrans(",;:.!?", "、；：。！？"),
}
_WITHOUT_CURRENCY_SIGNS = str.maketrans("", "", "$€£¥")
_DIGIT_WORDS = {
    "zh": "零幺二三四五六七八九",  # 1 in codes and phone numbers
    "ja": ("ゼロ", "イチ", "ニ", "サン", "ヨン", "ゴ", "ロク", "ナナ", "ハチ", "キュウ"),
}
_CODE_ANNOUNCERS = {
    "zh": "验证码|驗證碼|密码|密碼|口令|单号|單號|订单|編號|编号|号码|號碼|账号|帳號|卡号|卡號"
    "|尾号|尾號|工号|邮编|代码|房间号",
    "ja": "番号|コード|パスワード|暗証番号|郵便番号",
}
_MARK_NAMES = {
    "zh": {
        "@": "艾特",
        ".": "点",
        "-": "杠",
        "_": "下划线",
        "/": "斜杠",
        "+": "加",
        "&": "和",
        "=": "等于",
        "#": "井号",
    },
    "ja": {
        "@": "アットマーク",
        ".": "ドット",
        "-": "ハイフン",
        "_": "アンダーバー",
        "/": "スラッシュ",
        "+": "プラス",
        "&": "アンド",
        "=": "イコール",
        "#": "シャープ",
    },
}
_CURRENCY_NAMES = {
    "zh": {"¥": "元", "$": "美元", "€": "欧元", "£": "英镑"},
    "ja": {"¥": "エン", "$": "ドル", "€": "ユーロ", "£": "ポンド"},
}
# What kanji before a number are.
_NUMBER_PREFIXES = {"第": "ダイ", "約": "ヤク", "午前": "ゴゼン", "午後": "ゴゴ"}
_CODE_WINDOW_CHARACTERS = 10  # after what announces a code
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT = r"(?:%|‰|°[CF]?|(?:km/h|m/s|kg|km|cm|mm|mg|ml|kHz|Hz|GB|MB|TB|g|m|L)(?![A-Za-z]))"
_NUMERIC_EXPRESSION = (
    rf"(?:[$€£¥]?{_NUMBER}(?:[:/~–-]{_NUMBER}){{0,4}}{_UNIT}?[年月日号號时時点點分秒元円個个]?){{1,6}}"
)
# A vowel of a digraph, a long vowel or a doubled consonant belongs to the mora before it.
_KANA_TAIL = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮー\u3099\u309a"
_MIXED_RUN = re.compile(r"\d+(?:\.\d+)?|[A-Za-z]+")


class HanNormalizer:
    """The readings of "zh" or "ja". Raises MissingExtra without WeText."""

    def __init__(self, language: str) -> None:
        self._wetext = load_wetext(language)
        self._digits = _DIGIT_WORDS[language]
        self._marks = _MARK_NAMES[language]
        self._wide_punctuation = _WIDE_PUNCTUATION[language]
        self._comma = ",".translate(self._wide_punctuation)
        self._speller = Speller(self._marks, self._digit_word, self._wetext_reading, self._comma)
        self._code_announcers = _CODE_ANNOUNCERS[language]
        self._currency_names = _CURRENCY_NAMES[language]
        self._japanese = language == "ja"

    def grammar(self) -> Grammar:
        """How it is read."""
        lines = compile_rules(*LINE_START_ROWS, (r"(\d{1,3})[.)] +(?=\S)", self._speller.read_list_number))
        symbols = compile_rules(
            *MARKUP_ROWS,
            (rf"([$€£¥])({_NUMBER}[万亿萬億兆]+)[元円]?", self._read_large_money),
            (_NUMERIC_EXPRESSION, self._read_expression),
            (r"\+\d{1,3}(?:[ -]?\d{2,5}){1,5}(?!\d)", self._read_groups),
            (r"-(?=\d)", self._read_minus),
            (r"[，、；：。！？]", self._read_wide_mark),
            *((pattern, self._with_wide_punctuation(read)) for pattern, read in PUNCTUATION_ROWS),
            (r"[@+&=]|#(?=键|キー)", self._read_mark),
            (r"/(?=[年月周天日时次人件个]|小时|分钟)", self._read_per),
        )
        letters = compile_rules(
            *self._address_rows(),
            (rf"(?:{self._code_announcers})", self._read_code_announcer),
            *self._number_prefix_rows(),
            (
                r"[A-Za-z]{1,20}(?:-?\d{1,20}(?:\.\d{1,9})?[A-Za-z]{0,20}){1,4}(?![A-Za-z0-9])",
                self._read_mixed,
            ),
        )
        digits = compile_rules(
            *self._address_rows(),
            (r"0\d{2,3}-\d{7,8}(?!\d)|\d{3}(?:-\d{3,4}){2}(?!\d)", self._read_groups),
            (r"0\d{1,4}(?:-\d{1,4}){2}(?![\d-])", self._read_groups),
            *self._street_block_rows(),
            (r"(?<=〒)\d{3}-\d{4}(?!\d)", self._read_groups),
            (LONG_DIGIT_GROUPS, self._read_groups),
            (r"\d+(?:\.\d+){2,}(?![.\d])", self._speller.read_version),
            (r"\d+", self._read_code),
            (r"\d{1,6}[A-Za-z][A-Za-z0-9]{0,20}", self._read_mixed),
            (_NUMERIC_EXPRESSION, self._read_expression),
            (r"\d+", self._speller.read_digits),
        )
        word = rf"[{KANA}][{_KANA_TAIL}]*|[{HAN}{BOPOMOFO}]|{WORD_PATTERN}(?:-{WORD_PATTERN})*"
        return Grammar(lines, letters, digits, symbols, (re.compile(word), self._read_word))

    def _address_rows(self) -> tuple[RuleRow, ...]:
        return (
            (r"(?:https?|ftp)://[!-;=?-~]{1,300}", self._speller.read_address),
            (
                r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}",
                self._speller.read_address,
            ),
            (
                r"(?:[A-Za-z0-9-]{1,63}\.){1,4}(?:com|org|net|cn|jp|io)(?![A-Za-z0-9])",
                self._speller.read_address,
            ),
        )

    def _number_prefix_rows(self) -> tuple[RuleRow, ...]:
        words = "|".join(_NUMBER_PREFIXES)
        return ((rf"({words})(?=\d)", self._read_number_prefix),) if self._japanese else ()

    def _street_block_rows(self) -> tuple[RuleRow, ...]:
        return ((r"\d{1,4}(?:-\d{1,4}){2,3}(?![\d-])", self._read_street_block),) if self._japanese else ()

    # Words

    def _read_word(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(unicodedata.normalize("NFC", match.group()), match.start(), match.end())
        scan.context.note_foreign_word()
        return match.end()

    def _read_code_announcer(self, scan: ScanState, match: re.Match[str]) -> int:
        for at in range(match.start(), match.end()):
            scan.emit(scan.view[at], at, at + 1)
        scan.context.note_foreign_word()
        scan.context.code_words_left = _CODE_WINDOW_CHARACTERS
        return match.end()

    def _read_mark(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(self._marks[match.group()], match.start(), match.end())
        return match.end()

    def _read_per(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit("マイ" if self._japanese else "每", match.start(), match.end())
        return match.end()

    def _read_wide_mark(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.punctuate(match.group())
        scan.context.code_just_announced = match.group() == "：" and scan.context.code_words_left > 0
        if match.group() in "。！？":
            scan.context.end_sentence()
        return match.end()

    def _with_wide_punctuation(self, read: Recognizer) -> Recognizer:
        """A pause whose mark is wide after a character that is."""

        def read_widened(scan: ScanState, match: re.Match[str]) -> int | None:
            end = read(scan, match)
            if scan.words and ignores_spaces(scan.words[-1].text[-1]):
                scan.words[-1].punctuation = scan.words[-1].punctuation.translate(self._wide_punctuation)
            return end

        return read_widened

    def _read_number_prefix(self, scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(_NUMBER_PREFIXES[match.group(1)], match.start(), match.end())
        scan.context.note_foreign_word()
        return match.end()

    # Numbers

    def _digit_word(self, digit: str) -> str:
        return self._digits[int(digit)]

    def _wetext_reading(self, text: str) -> str:
        """As WeText reads it; digits that it leaves one by one."""
        said = self._wetext(text).translate(_WITHOUT_CURRENCY_SIGNS)
        said = numerals_to_kana(said) if self._japanese else said
        return "".join(self._digits[int(one)] if one in "0123456789" else one for one in said)

    def _read_expression(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """With what it counts in Japanese; in Chinese with two characters, which decide how it is read."""
        text, stop = match.group(), match.end()
        if max(len(run) for run in re.findall(r"\d+", text)) > MAX_NUMBER_DIGITS:
            return None
        if text[0] in "$€£¥" and text[-1] in "元円":
            text = text[1:]
        if self._japanese:
            end = end_of_counter(scan.view, stop)
            counted = text.replace("°C", "度") + scan.view[stop:end]
            scan.emit(self._wetext_reading(counted), match.start(), end)
            return finish_number(scan, end)
        context = scan.view[stop : stop + 2]
        context = context if all(ignores_spaces(one) for one in context) else ""
        said = self._wetext_reading(text + context)
        known = bool(context) and said.endswith(context)
        said = said.removesuffix(context) if known else self._wetext_reading(text)
        scan.emit(said, match.start(), stop)
        return finish_number(scan, stop)

    def _read_large_money(self, scan: ScanState, match: re.Match[str]) -> int:
        """¥1万."""
        said = self._wetext_reading(match.group(2)) + self._currency_names[match.group(1)]
        scan.emit(said, match.start(), match.end())
        return finish_number(scan, match.end())

    def _read_street_block(self, scan: ScanState, match: re.Match[str]) -> int:
        """1-2-3 in a Japanese address."""
        said = "ノ".join(self._wetext_reading(part) for part in match.group().split("-"))
        scan.emit(said, match.start(), match.end())
        return finish_number(scan, match.end())

    def _read_code(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """What was announced, begins with zero, or is too long for a number."""
        digits = match.group()
        following = scan.view[match.end() : match.end() + 1]
        announced = scan.context.code_words_left > 0 and len(digits) > 2 and following not in _NO_CODE_BEFORE
        leading = len(digits) > 1 and digits[0] == "0" and following not in (".", ":")
        if not (announced or leading):
            return None
        return self._speller.read_digits(scan, match)

    def _read_groups(self, scan: ScanState, match: re.Match[str]) -> int:
        if match.group()[0] == "+":
            scan.emit(self._marks["+"], match.start(), match.start() + 1)
        for number, run in enumerate(re.finditer(r"\d+", match.group())):
            if number:
                scan.punctuate(self._comma)
            self._speller.spell(scan, match.start() + run.start(), match.start() + run.end())
        return finish_number(scan, match.end())

    def _read_minus(self, scan: ScanState, match: re.Match[str]) -> int | None:
        if match.start() and scan.view[match.start() - 1].isascii() and scan.view[match.start() - 1] != " ":
            return None
        number = re.compile(_NUMERIC_EXPRESSION).match(scan.view, match.end())
        if number is None:
            return None
        end = end_of_counter(scan.view, number.end()) if self._japanese else number.end()
        scan.emit(self._wetext_reading(scan.view[match.start() : end]), match.start(), end)
        return finish_number(scan, end)

    def _read_mixed(self, scan: ScanState, match: re.Match[str]) -> int | None:
        """GPT-4, A1234, 5G: the letters as they stand, and longer digits one by one."""
        if re.match(rf"{_NUMBER}{_UNIT}", match.group()):
            return None
        for run in _MIXED_RUN.finditer(scan.view, match.start(), match.end()):
            text = run.group()
            if text.isalpha():
                scan.emit(text, run.start(), run.end())
            elif "." in text or (len(text) < 3 and text[0] != "0"):
                scan.emit(self._wetext_reading(run.group()), run.start(), run.end())
            else:
                self._speller.spell(scan, run.start(), run.end())
        scan.context.note_foreign_word()
        return match.end()


_NO_CODE_BEFORE = ("位", "个", "個", "元", "天", "分", "次", "年", "月", "円", "人", ".", ",", ":", "%")
