"""Reads Chinese and Japanese: every character a word, what has digits by WeText.

WeText knows dates, times, money, units and phone numbers; here is which stretch of text it is given, and what
it does not know: codes, digits beside Latin letters. Numbers in Japanese come out in katakana (``kana.py``).
Source: WeTextProcessing's grammars, by wetext (Apache-2.0).
"""

import re
import unicodedata

from .kana import end_of_counted, in_kana
from .numerals import LONGEST, wetext
from .recognisers import LINES, MARKUP, PAUSES
from .scan import Grammar, Read, Row, Scan, rules
from .scripts import BOPOMOFO, HAN, KANA, is_tight
from .spelling import LONG_GROUPS, Speller, done
from .words import WORD_PATTERN

_WIDE = {"zh": str.maketrans(",;:.!?", "，；：。！？"), "ja": str.maketrans(",;:.!?", "、；：。！？")}
_SIGNS = str.maketrans("", "", "$€£¥")
_DIGITS = {
    "zh": "零幺二三四五六七八九",  # 1 in codes and phone numbers
    "ja": ("ゼロ", "イチ", "ニ", "サン", "ヨン", "ゴ", "ロク", "ナナ", "ハチ", "キュウ"),
}
_ANNOUNCERS = {
    "zh": "验证码|驗證碼|密码|密碼|口令|单号|單號|订单|編號|编号|号码|號碼|账号|帳號|卡号|卡號"
    "|尾号|尾號|工号|邮编|代码|房间号",
    "ja": "番号|コード|パスワード|暗証番号|郵便番号",
}
_MARKS = {
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
_MONEY = {
    "zh": {"¥": "元", "$": "美元", "€": "欧元", "£": "英镑"},
    "ja": {"¥": "エン", "$": "ドル", "€": "ユーロ", "£": "ポンド"},
}
# What kanji before a number are.
_BEFORE_NUMBERS = {"第": "ダイ", "約": "ヤク", "午前": "ゴゼン", "午後": "ゴゴ"}
_CODE_CHARACTERS = 10  # after what announces a code
_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_UNIT = r"(?:%|‰|°[CF]?|(?:km/h|m/s|kg|km|cm|mm|mg|ml|kHz|Hz|GB|MB|TB|g|m|L)(?![A-Za-z]))"
_EXPRESSION = (
    rf"(?:[$€£¥]?{_NUMBER}(?:[:/~–-]{_NUMBER}){{0,4}}{_UNIT}?[年月日号號时時点點分秒元円個个]?){{1,6}}"
)
# A vowel of a digraph, a long vowel or a doubled consonant belongs to the mora before it.
_KANA_TAIL = "ぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮー\u3099\u309a"
_MIXED_RUN = re.compile(r"\d+(?:\.\d+)?|[A-Za-z]+")


class HanReader:
    """The readings of "zh" or "ja". Raises MissingExtra without WeText."""

    def __init__(self, language: str) -> None:
        self._wetext = wetext(language)
        self._digits = _DIGITS[language]
        self._marks = _MARKS[language]
        self._wide = _WIDE[language]
        self._comma = ",".translate(self._wide)
        self._speller = Speller(self._marks, self._digit, self._normalized, self._comma)
        self._announcers = _ANNOUNCERS[language]
        self._money = _MONEY[language]
        self._japanese = language == "ja"

    def grammar(self) -> Grammar:
        """How it is read."""
        lines = rules(*LINES, (r"(\d{1,3})[.)] +(?=\S)", self._speller.read_list_number))
        symbols = rules(
            *MARKUP,
            (rf"([$€£¥])({_NUMBER}[万亿萬億兆]+)[元円]?", self._read_large_money),
            (_EXPRESSION, self._read_expression),
            (r"\+\d{1,3}(?:[ -]?\d{2,5}){1,5}(?!\d)", self._read_groups),
            (r"-(?=\d)", self._read_minus),
            (r"[，、；：。！？]", self._read_wide_mark),
            *((pattern, self._widened(read)) for pattern, read in PAUSES),
            (r"[@+&=]|#(?=键|キー)", self._read_mark),
            (r"/(?=[年月周天日时次人件个]|小时|分钟)", self._read_per),
        )
        letters = rules(
            *self._addresses(),
            (rf"(?:{self._announcers})", self._read_announcer),
            *self._before_numbers(),
            (
                r"[A-Za-z]{1,20}(?:-?\d{1,20}(?:\.\d{1,9})?[A-Za-z]{0,20}){1,4}(?![A-Za-z0-9])",
                self._read_mixed,
            ),
        )
        digits = rules(
            *self._addresses(),
            (r"0\d{2,3}-\d{7,8}(?!\d)|\d{3}(?:-\d{3,4}){2}(?!\d)", self._read_groups),
            (r"0\d{1,4}(?:-\d{1,4}){2}(?![\d-])", self._read_groups),
            *self._blocks(),
            (r"(?<=〒)\d{3}-\d{4}(?!\d)", self._read_groups),
            (LONG_GROUPS, self._read_groups),
            (r"\d+(?:\.\d+){2,}(?![.\d])", self._speller.read_version),
            (r"\d+", self._read_code),
            (r"\d{1,6}[A-Za-z][A-Za-z0-9]{0,20}", self._read_mixed),
            (_EXPRESSION, self._read_expression),
            (r"\d+", self._speller.read_digits),
        )
        word = rf"[{KANA}][{_KANA_TAIL}]*|[{HAN}{BOPOMOFO}]|{WORD_PATTERN}(?:-{WORD_PATTERN})*"
        return Grammar(lines, letters, digits, symbols, (re.compile(word), self._read_word))

    def _addresses(self) -> tuple[Row, ...]:
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

    def _before_numbers(self) -> tuple[Row, ...]:
        words = "|".join(_BEFORE_NUMBERS)
        return ((rf"({words})(?=\d)", self._read_before_number),) if self._japanese else ()

    def _blocks(self) -> tuple[Row, ...]:
        return ((r"\d{1,4}(?:-\d{1,4}){2,3}(?![\d-])", self._read_block),) if self._japanese else ()

    # Words

    def _read_word(self, scan: Scan, match: re.Match[str]) -> int:
        scan.say(unicodedata.normalize("NFC", match.group()), match.start(), match.end())
        scan.memory.hear_foreign()
        return match.end()

    def _read_announcer(self, scan: Scan, match: re.Match[str]) -> int:
        for at in range(match.start(), match.end()):
            scan.say(scan.view[at], at, at + 1)
        scan.memory.hear_foreign()
        scan.memory.code_words_left = _CODE_CHARACTERS
        return match.end()

    def _read_mark(self, scan: Scan, match: re.Match[str]) -> int:
        scan.say(self._marks[match.group()], match.start(), match.end())
        return match.end()

    def _read_per(self, scan: Scan, match: re.Match[str]) -> int:
        scan.say("マイ" if self._japanese else "每", match.start(), match.end())
        return match.end()

    def _read_wide_mark(self, scan: Scan, match: re.Match[str]) -> int:
        scan.pause(match.group())
        scan.memory.fresh = match.group() == "：" and scan.memory.code_words_left > 0
        if match.group() in "。！？":
            scan.memory.end_sentence()
        return match.end()

    def _widened(self, read: Read) -> Read:
        """A pause whose mark is wide after a character that is."""

        def read_widened(scan: Scan, match: re.Match[str]) -> int | None:
            end = read(scan, match)
            if scan.words and is_tight(scan.words[-1].text[-1]):
                scan.words[-1].punctuation = scan.words[-1].punctuation.translate(self._wide)
            return end

        return read_widened

    def _read_before_number(self, scan: Scan, match: re.Match[str]) -> int:
        scan.say(_BEFORE_NUMBERS[match.group(1)], match.start(), match.end())
        scan.memory.hear_foreign()
        return match.end()

    # Numbers

    def _digit(self, digit: str) -> str:
        return self._digits[int(digit)]

    def _normalized(self, text: str) -> str:
        """As WeText reads it; digits that it leaves one by one."""
        said = self._wetext(text).translate(_SIGNS)
        said = in_kana(said) if self._japanese else said
        return "".join(self._digits[int(one)] if one in "0123456789" else one for one in said)

    def _read_expression(self, scan: Scan, match: re.Match[str]) -> int | None:
        """With what it counts in Japanese; in Chinese with two characters, which decide how it is read."""
        text, stop = match.group(), match.end()
        if max(len(run) for run in re.findall(r"\d+", text)) > LONGEST:
            return None
        if text[0] in "$€£¥" and text[-1] in "元円":
            text = text[1:]
        if self._japanese:
            end = end_of_counted(scan.view, stop)
            counted = text.replace("°C", "度") + scan.view[stop:end]
            scan.say(self._normalized(counted), match.start(), end)
            return done(scan, end)
        context = scan.view[stop : stop + 2]
        context = context if all(is_tight(one) for one in context) else ""
        said = self._normalized(text + context)
        known = bool(context) and said.endswith(context)
        said = said.removesuffix(context) if known else self._normalized(text)
        scan.say(said, match.start(), stop)
        return done(scan, stop)

    def _read_large_money(self, scan: Scan, match: re.Match[str]) -> int:
        """¥1万."""
        said = self._normalized(match.group(2)) + self._money[match.group(1)]
        scan.say(said, match.start(), match.end())
        return done(scan, match.end())

    def _read_block(self, scan: Scan, match: re.Match[str]) -> int:
        """1-2-3 in a Japanese address."""
        said = "ノ".join(self._normalized(part) for part in match.group().split("-"))
        scan.say(said, match.start(), match.end())
        return done(scan, match.end())

    def _read_code(self, scan: Scan, match: re.Match[str]) -> int | None:
        """What was announced, begins with zero, or is too long for a number."""
        digits = match.group()
        following = scan.view[match.end() : match.end() + 1]
        announced = scan.memory.code_words_left > 0 and len(digits) > 2 and following not in _COUNTERS
        leading = len(digits) > 1 and digits[0] == "0" and following not in (".", ":")
        if not (announced or leading):
            return None
        return self._speller.read_digits(scan, match)

    def _read_groups(self, scan: Scan, match: re.Match[str]) -> int:
        if match.group()[0] == "+":
            scan.say(self._marks["+"], match.start(), match.start() + 1)
        for number, run in enumerate(re.finditer(r"\d+", match.group())):
            if number:
                scan.pause(self._comma)
            self._speller.spell(scan, match.start() + run.start(), match.start() + run.end())
        return done(scan, match.end())

    def _read_minus(self, scan: Scan, match: re.Match[str]) -> int | None:
        if match.start() and scan.view[match.start() - 1].isascii() and scan.view[match.start() - 1] != " ":
            return None
        number = re.compile(_EXPRESSION).match(scan.view, match.end())
        if number is None:
            return None
        end = end_of_counted(scan.view, number.end()) if self._japanese else number.end()
        scan.say(self._normalized(scan.view[match.start() : end]), match.start(), end)
        return done(scan, end)

    def _read_mixed(self, scan: Scan, match: re.Match[str]) -> int | None:
        """GPT-4, A1234, 5G: the letters as they stand, and longer digits one by one."""
        if re.match(rf"{_NUMBER}{_UNIT}", match.group()):
            return None
        for run in _MIXED_RUN.finditer(scan.view, match.start(), match.end()):
            text = run.group()
            if text.isalpha():
                scan.say(text, run.start(), run.end())
            elif "." in text or (len(text) < 3 and text[0] != "0"):
                scan.say(self._normalized(run.group()), run.start(), run.end())
            else:
                self._speller.spell(scan, run.start(), run.end())
        scan.memory.hear_foreign()
        return match.end()


_COUNTERS = ("位", "个", "個", "元", "天", "分", "次", "年", "月", "円", "人", ".", ",", ":", "%")
