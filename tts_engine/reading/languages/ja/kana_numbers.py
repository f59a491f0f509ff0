"""Japanese numbers in katakana: kanji numerals as WeText writes them, and the counters after them.

CosyVoice reads kanji as Chinese and takes Japanese in katakana. Numbers and counters are converted, with
their changes of sound; other kanji stay, because their reading needs a dictionary.
Source: the note on Japanese in FunAudioLLM/CosyVoice example.py; S. E. Martin, A Reference Grammar of
Japanese (numerals and numeral auxiliaries).
"""

import re

from ...kit.data_files import expand_names, load_tables

DIGIT_KANA = ("ゼロ", "イチ", "ニ", "サン", "ヨン", "ゴ", "ロク", "ナナ", "ハチ", "キュウ")
_SMALL_UNITS = {"十": 10, "百": 100, "千": 1000}
_LARGE_UNITS = {"万": 10**4, "億": 10**8, "兆": 10**12}
_LARGE_UNIT_KANA = {"万": "マン", "億": "オク", "兆": "チョウ"}
_DIGIT_VALUES = {kanji: value for value, kanji in enumerate("〇一二三四五六七八九")} | {"零": 0}

_TABLES = load_tables(__file__, "counters.toml")
# Reading of a counter, and its first consonant after a number that ends in n: "p", or "b", "g" or "z" except
# after four; "" for no change; "-" for no gemination either.
_COUNTERS = {
    counter: (reading.partition(" ")[0], reading.partition(" ")[2])
    for counter, reading in expand_names(_TABLES["counters"]).items()
}
_DAY_COUNTS, _THING_COUNTS, _PEOPLE_COUNTS = (
    {int(number): str(word) for number, word in _TABLES[name].items()}
    for name in ("day_counts", "thing_counts", "people_counts")
)
_NATIVE_COUNTERS = frozenset(_TABLES["native"]["counters"].split())
_NATIVE_COUNTS = {1: str(_TABLES["native"]["one"]), 2: str(_TABLES["native"]["two"])}
_FINAL_DIGIT_CHANGES = {
    counter: dict(change.split(":") for change in changes.split())
    for counter, changes in expand_names(_TABLES["final_digit_changes"]).items()
}
# Ends of numbers that geminate before a counter that begins with one of these; h becomes p there.
_GEMINATION_ROWS = {
    "イチ": "カキクケコサシスセソタチツテトハヒフヘホ",
    "ロク": "カキクケコハヒフヘホ",
    "ハチ": "カキクケコサシスセソタチツテトハヒフヘホ",
    "ジュウ": "カキクケコサシスセソタチツテトハヒフヘホ",
    "ャク": "カキクケコハヒフヘホ",
}
# First letters of loanwords before which ten geminates: ジュッキロ, ジュッページ.
_LOANWORD_ROWS = "カキクケコサシスセソタチツテトパピプペポ"
_CONSONANT_CHANGES = {
    "p": str.maketrans("ハヒフヘホ", "パピプペポ"),
    "b": str.maketrans("ハヒフヘホ", "バビブベボ"),
    "g": str.maketrans("カキクケコ", "ガギグゲゴ"),
    "z": str.maketrans("サシスセソ", "ザジズゼゾ"),
}
_NUMERAL = f"[{''.join(_DIGIT_VALUES)}{''.join(_SMALL_UNITS)}{''.join(_LARGE_UNITS)}]+"
_ALL_COUNTERS = sorted((*_COUNTERS, "日", "日間", "つ"), key=len, reverse=True)
_COUNTER = rf"(?:{'|'.join(_ALL_COUNTERS)})"
# "2人目" but "2人目的", "2名様"
_SUFFIXES: dict[str, str] = dict(_TABLES["suffixes"])
_SUFFIX = rf"(?:[{''.join(_SUFFIXES)}](?![{_TABLES['after_no_suffix']}]))"
_COUNTED_NUMERAL = re.compile(
    rf"({_NUMERAL})(?:点([{''.join(_DIGIT_VALUES)}]+)([{''.join(_LARGE_UNITS)}]?))?(?:({_COUNTER})({_SUFFIX})?|([{_LOANWORD_ROWS}][ァ-ヴー]+))?"
)
_COUNTER_AFTER_DIGITS = re.compile(
    rf"千?[{''.join(_LARGE_UNITS)}]?(?:{_COUNTER}{_SUFFIX}?|[{_LOANWORD_ROWS}][ァ-ヴー]+)?"
)


def numerals_to_kana(text: str) -> str:
    """Return ``text`` with kanji numerals, and the counters after them, in katakana."""
    return _COUNTED_NUMERAL.sub(_replace_numeral, text)


def end_of_counter(text: str, stop: int) -> int:
    """Return the end of the counter of a number that ends at ``stop``.

    The last character of the number may itself be the counter or a part of it.
    """
    ends = (found.end() for place in (stop - 1, stop) if (found := _COUNTER_AFTER_DIGITS.match(text, place)))
    return max(ends, default=stop)


def number_to_kana(number: int) -> str:
    """Return an integer below 10**16 in katakana: サンビャク for 300."""
    if number == 0:
        return DIGIT_KANA[0]
    parts = []
    for unit, size in (("チョウ", 10**12), ("オク", 10**8), ("マン", 10**4), ("", 1)):
        group = number // size % 10**4
        if group:
            parts.append(_join_with_sound_change(_below_ten_thousand(group), unit))
    return "".join(parts)


def _below_ten_thousand(number: int) -> str:
    thousands, hundreds, tens, ones = (number // size % 10 for size in (1000, 100, 10, 1))
    return (
        _digit_with_unit(thousands, "セン", {3: "サンゼン", 8: "ハッセン"})
        + _digit_with_unit(hundreds, "ヒャク", {3: "サンビャク", 6: "ロッピャク", 8: "ハッピャク"})
        + _digit_with_unit(tens, "ジュウ", {})
        + (DIGIT_KANA[ones] if ones else "")
    )


def _digit_with_unit(digit: int, unit: str, changed: dict[int, str]) -> str:
    if digit < 2:
        return unit * digit
    return changed.get(digit) or DIGIT_KANA[digit] + unit


def _numeral_value(numeral: str) -> int:
    total = group = digit = 0
    for kanji in numeral:
        if kanji in _DIGIT_VALUES:
            digit = 10 * digit + _DIGIT_VALUES[kanji]
        elif kanji in _SMALL_UNITS:
            group, digit = group + (digit or 1) * _SMALL_UNITS[kanji], 0
        else:
            total, group, digit = total + (group + digit or 1) * _LARGE_UNITS[kanji], 0, 0
    return total + group + digit


def _replace_numeral(match: re.Match[str]) -> str:
    numeral, fraction, counter = match.group(1), match.group(2), match.group(4) or ""
    suffix, loanword = _SUFFIXES.get(match.group(5), ""), match.group(6) or ""
    number = _numeral_value(numeral)
    if fraction is None:
        after_month = match.string[: match.start()].endswith("月")
        words = _number_with_counter(number, counter, after_month=after_month)
        return _join_loanword(words, loanword) + suffix
    whole = number_to_kana(number) if number else "レイ"
    digits = "".join(DIGIT_KANA[_DIGIT_VALUES[kanji]] for kanji in fraction)
    words = _join_with_sound_change(whole, "テン") + digits + _LARGE_UNIT_KANA.get(match.group(3), "")
    return _join_with_sound_change(words, *_COUNTERS.get(counter, (counter, ""))) + loanword + suffix


def _join_loanword(number: str, loanword: str) -> str:
    """Join a whole number and a katakana word after it: ニジュッキロ, ロッキロ, ヒャッキロ."""
    if not loanword:
        return number
    if number.endswith("ジュウ") or (
        number.endswith(("ロク", "ヒャク", "ビャク", "ピャク")) and loanword.startswith("キロ")
    ):
        return f"{number[:-1]}ッ{loanword}"
    return number + loanword


def _number_with_counter(number: int, counter: str, *, after_month: bool) -> str:
    match counter:
        case "日":
            return "ツイタチ" if number == 1 and after_month else _day_count(number)
        case "日間":
            return f"{_day_count(number)}カン"
        case "つ" if number in _THING_COUNTS:
            return _THING_COUNTS[number]
        case "人" if number in _PEOPLE_COUNTS:
            return _PEOPLE_COUNTS[number]
        case _ if counter in _NATIVE_COUNTERS and number in _NATIVE_COUNTS:
            return _NATIVE_COUNTS[number] + _COUNTERS[counter][0]
    words = number_to_kana(number)
    for digit, changed in _FINAL_DIGIT_CHANGES.get(counter, {}).items():
        if words.endswith(digit):
            words = words.removesuffix(digit) + changed
    return _join_with_sound_change(words, *_COUNTERS.get(counter, (counter, "")))


def _day_count(number: int) -> str:
    return _DAY_COUNTS.get(number) or f"{number_to_kana(number)}ニチ"


def _join_with_sound_change(number: str, counter: str, after_n: str = "") -> str:
    """Join a number and the counter or unit after it, with the sound changes at their border.

    ``after_n``: as in ``_COUNTERS``.
    """
    if after_n == "-":
        return number + counter
    first, rest = counter[:1], counter[1:]
    for end, rows in _GEMINATION_ROWS.items():
        if first and first in rows and number.endswith(end):
            return f"{number[:-1]}ッ{first.translate(_CONSONANT_CHANGES['p'])}{rest}"
    if after_n and number.endswith("ン") and (after_n == "p" or not number.endswith("ヨン")):
        return number + first.translate(_CONSONANT_CHANGES[after_n]) + rest
    return number + counter
