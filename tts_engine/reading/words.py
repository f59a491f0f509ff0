"""Recognisers of words that are not said as they are written: abbreviations, initialisms, addresses.

Also what is said for an ordinary word: itself. Not a pronunciation dictionary.
"""

import re
import unicodedata

from . import number_words as say
from . import vocabulary
from .codes import has_vowel
from .scan import Scan, end_if_sentence, rules

_ADDRESS_MARKS = {
    ".": "dot",
    "@": "at",
    "-": "dash",
    "_": "underscore",
    "/": "slash",
    "+": "plus",
    ":": "colon",
    "?": "question mark",
    "=": "equals",
    "&": "and",
    "#": "hash",
    "~": "tilde",
    "%": "percent",
}
_ADDRESS_PART = re.compile(r"[^\W\d_]+|\d|[^\w]|_")
_CAMEL = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]")


def _read_address(scan: Scan, match: re.Match[str]) -> int:
    """An e-mail address or a URL, without its scheme, mark by mark."""
    scheme = re.match(r"(?:https?|ftp|mailto):(?://)?", match.group(), re.IGNORECASE)
    start = match.start() + (scheme.end() if scheme else 0)
    stop = match.start() + len(match.group().rstrip(".,;:!?'\"/*_"))
    for part in _ADDRESS_PART.finditer(scan.view, start, stop):
        _read_address_part(scan, part)
    scan.memory.hear("address")
    return max(stop, start)


def _read_address_part(scan: Scan, part: re.Match[str]) -> None:
    text = part.group()
    if text.isdigit():
        scan.spell(part.start(), part.end())
    elif text.isalpha():
        _read_label(scan, part.start(), part.end())
    elif text in _ADDRESS_MARKS:
        scan.say(_ADDRESS_MARKS[text], part.start(), part.end())


def _read_label(scan: Scan, start: int, stop: int) -> None:
    for word in _CAMEL.finditer(scan.view, start, stop):
        text = word.group()
        if _is_label_spelled(text):
            scan.spell(word.start(), word.end())
        else:
            scan.say(text.lower(), word.start(), word.end())


def _is_label_spelled(text: str) -> bool:
    lower = text.lower()
    if lower in vocabulary.SPOKEN_DOMAINS or lower in vocabulary.COMMON_WORDS:
        return len(lower) == 1
    return len(lower) < 3 or not has_vowel(lower) or lower in ("edu", "www") or text in vocabulary.SPELLED


_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e4e"
_LETTER = rf"[^\W\d_][{_MARKS}]*"
WORD_PATTERN = rf"(?:{_LETTER}){{1,60}}(?:'(?:{_LETTER}){{1,60}})*"
WORD = re.compile(WORD_PATTERN)


def read_word(scan: Scan, match: re.Match[str]) -> int:
    """A word as it stands, or respelled for a reader of spelling."""
    word = unicodedata.normalize("NFC", match.group())
    scan.say(_spoken_form(scan, word, match.end()), match.start(), match.end())
    scan.memory.hear(word)
    return match.end()


def _spoken_form(scan: Scan, word: str, end: int) -> str:
    if word == "A":
        return _letter_a(scan, end)
    lower = word.lower()
    if scan.respells and (respelled := _respelled(scan, lower, end)):
        return respelled
    return lower if word.isupper() and len(word) > 1 and word.isascii() else word


def _respelled(scan: Scan, lower: str, end: int) -> str:
    if lower == "re" and scan.view[end : end + 1] == "-":
        return "ree"
    if lower == "live" and scan.next_word(end).lower() in vocabulary.LIVE_NOUNS:
        return "lyve"
    stem = lower.removesuffix("'s")
    if stem in vocabulary.RESPELLED:
        return vocabulary.RESPELLED[stem] + lower[len(stem) :]
    return ""


def _letter_a(scan: Scan, end: int) -> str:
    """The article, or the letter's name."""
    following = scan.next_word(end)
    announced = scan.memory.previous in vocabulary.LETTER_WORDS or scan.memory.code_words_left
    beside_letter = len(following) == 1 and following.isupper() and following != "I"
    in_list = following in ("or", "and", "is", "has", "was", "means", "stands")
    return scan.letter("A") if announced or not following or beside_letter or in_list else "a"


def _read_capitals(scan: Scan, match: re.Match[str]) -> int | None:
    """Initialisms letter by letter, acronyms as words, and shouted words as words."""
    word = match.group()
    if word in vocabulary.SPOKEN_ACRONYMS:
        scan.say(vocabulary.SPOKEN_ACRONYMS[word], match.start(), match.end())
    elif _is_initialism(scan, word, match):
        scan.spell(match.start(), match.end())
    else:
        return None
    scan.memory.hear(word)
    return match.end()


def _is_initialism(scan: Scan, word: str, match: re.Match[str]) -> bool:
    if not word.isupper():
        return False
    lower = word.lower()
    if word in vocabulary.SPELLED:
        return lower not in vocabulary.COMMON_WORDS or not _is_shouted(scan, match)
    if not has_vowel(word) or _UNSAYABLE.match(word):
        return True
    known = (
        lower in vocabulary.COMMON_WORDS
        or lower in vocabulary.CODE_WORDS
        or lower in vocabulary.NUMBERED_WORDS
    )
    return len(word) < 4 and not known


_UNSAYABLE = re.compile(r"(?!SCH|SCR|SHR|SPL|SPR|STR|THR|CHR|PHR)[B-DF-HJ-NP-TV-XZ]{3}")


def _is_shouted(scan: Scan, match: re.Match[str]) -> bool:
    """Whether the word beside it is in capitals too."""
    before = re.search(r"([^\W\d_]{2,})\W*\Z", scan.view[max(0, match.start() - 20) : match.start()])
    following = scan.next_word(match.end())
    return bool(before and before.group(1).isupper()) or (len(following) > 1 and following.isupper())


def _read_known(scan: Scan, match: re.Match[str]) -> int | None:
    """Words with capitals inside that have a reading of their own."""
    if match.group() not in vocabulary.SPOKEN_ACRONYMS:
        return None
    return _read_capitals(scan, match)


def _read_spelled(scan: Scan, match: re.Match[str]) -> int:
    scan.spell(match.start(), match.end())
    scan.memory.hear(match.group())
    return match.end()


def _read_sharp(scan: Scan, match: re.Match[str]) -> int:
    return _read_letter_and(scan, match, "sharp")


def _read_minus(scan: Scan, match: re.Match[str]) -> int:
    """A grade or a blood group."""
    return _read_letter_and(scan, match, "minus")


def _read_letter_and(scan: Scan, match: re.Match[str], word: str) -> int:
    scan.spell(match.start(), match.end() - 1)
    scan.say(word, match.end() - 1, match.end())
    scan.memory.hear(match.group())
    return match.end()


def _read_email_word(scan: Scan, match: re.Match[str]) -> int:
    scan.say(match.group().lower().replace("-", ""), match.start(), match.end())
    scan.memory.hear("email")
    return match.end()


def _read_dotted(scan: Scan, match: re.Match[str]) -> int:
    """U.S., a.m., Ph.D.: the letters; e.g. and i.e. what they mean."""
    bare = match.group().rstrip(".")
    if bare in vocabulary.ABBREVIATIONS:
        scan.say(vocabulary.ABBREVIATIONS[bare][0], match.start(), match.end())
        scan.memory.hear(bare)
        return match.end()
    scan.spell(match.start(), match.end())
    scan.words[-1].stop = match.end()
    scan.memory.hear(bare)
    if match.group().endswith(".") and scan.next_word(match.end()) in ("", *vocabulary.STARTERS):
        end_if_sentence(scan, match.end())
    return match.end()


def _read_abbreviation(scan: Scan, match: re.Match[str]) -> int | None:
    """A word with a full stop that is in the table, or a short form that needs none."""
    word, dotted = match.group(1), bool(match.group(2))
    if word in vocabulary.STREETS:
        return _read_street(scan, match, dotted)
    if word not in vocabulary.ABBREVIATIONS:
        return None
    spoken, kind = vocabulary.ABBREVIATIONS[word]
    if kind is vocabulary.Abbreviation.NUMBERED:
        return _read_numbered(scan, match, spoken, dotted)
    is_title = kind is vocabulary.Abbreviation.TITLE and scan.next_visible(match.end(1)).isupper()
    if not dotted and not is_title and word not in ("vs", "approx", "etc", "dept", "appt"):
        return None
    scan.say(spoken, match.start(), match.end())
    scan.memory.hear(word)
    if dotted and kind is vocabulary.Abbreviation.ENDING:
        end_if_sentence(scan, match.end())
    elif dotted and not scan.next_visible(match.end()):
        scan.pause(".")
    return match.end()


_DOTLESS_NUMBERED = frozenset(
    {"ext", "Ext", "EXT", "Apt", "apt", "Ste", "Rm", "pp", "Acct", "acct", "Ref", "ref"}
)
_WORDS_TOO = frozenset({"No", "no", "Art", "Sec", "Fl", "Fig", "fig", "p", "x", "ch", "Ch", "Vol"})


def _read_numbered(scan: Scan, match: re.Match[str], spoken: str, dotted: bool) -> int | None:
    word = match.group(1)
    following = _NUMBER_AHEAD.match(scan.view, match.end())
    if word == "x" and not (scan.memory.after_phone and following):
        return None
    if not following and (word in _WORDS_TOO or not dotted):
        return None
    if not dotted and word not in _DOTLESS_NUMBERED and word != "x":
        return None
    scan.say(spoken, match.start(), match.end())
    scan.memory.hear(spoken)
    return match.end()


_NUMBER_AHEAD = re.compile(r" ?#? ?(?:\d|[A-Z](?!\w))")


def _read_street(scan: Scan, match: re.Match[str], dotted: bool) -> int | None:
    """St. and Dr. are Saint and Doctor before a name, Street and Drive after one."""
    word = match.group(1)
    following = scan.next_visible(match.end())
    if word == "Hwy" and following.isdigit():
        scan.say(vocabulary.STREETS[word], match.start(), match.end())
        scan.memory.hear("highway")
        return match.end()
    after_name = scan.memory.capital or scan.memory.house_words_left > 0
    if word in ("St", "Dr") and following.isupper() and not after_name:
        scan.say(vocabulary.ABBREVIATIONS[word][0], match.start(), match.end())
        scan.memory.hear("saint")
        return match.end()
    if not (dotted or after_name):
        return None
    scan.say(vocabulary.STREETS[word], match.start(), match.end())
    scan.memory.hear("street")
    scan.memory.house_words_left, scan.memory.capital = 0, False
    if dotted:
        end_if_sentence(scan, match.end())
    return match.end()


def _read_with(scan: Scan, match: re.Match[str]) -> int:
    word = {"w/": "with", "w/o": "without", "c/o": "care of"}[match.group()]
    scan.say(word, match.start(), match.end())
    scan.memory.hear(word)
    return match.end()


def _read_state(scan: Scan, match: re.Match[str]) -> int | None:
    """A state's letters before a ZIP code, or after a name where they are no word or initialism too."""
    letters, memory = match.group(), scan.memory
    name = vocabulary.STATES.get(letters)
    before_zip = _ZIP_AHEAD.match(scan.view, match.end()) and not (letters == "ID" and memory.named)
    likely = (
        vocabulary.CLEAR_STATES
        if not memory.after_comma or _is_shouted(scan, match)
        else vocabulary.STATES_OF_CITIES
    )
    if name is None or not (before_zip or (memory.capital and letters in likely)):
        return None
    scan.say(name, match.start(), match.end())
    scan.memory.hear("zip" if before_zip else name)
    return match.end()


_ZIP_AHEAD = re.compile(r" \d{5}(?!\d)")


def _read_direction(scan: Scan, match: re.Match[str]) -> int | None:
    """123 E. 45th St, and Pennsylvania Ave NW."""
    letters, memory = match.group(1), scan.memory
    in_address = memory.house_words_left > 0 and bool(scan.next_word(match.end()) or memory.numeric)
    if not (in_address or (len(letters) == 2 and memory.previous == "street")):
        return None
    left = memory.house_words_left
    scan.say(vocabulary.DIRECTIONS[letters], match.start(), match.end())
    memory.hear(letters)
    memory.house_words_left = left
    return match.end()


def _read_initial(scan: Scan, match: re.Match[str]) -> int | None:
    """J. K. Rowling: no pause after an initial."""
    if scan.memory.previous in vocabulary.LETTER_WORDS or match.group(1) == "I":
        return None
    scan.say(match.group(1), match.start(), match.end())
    scan.memory.hear(match.group(1))
    return match.end()


def _read_scale(scan: Scan, match: re.Match[str]) -> int | None:
    """70 degrees F."""
    if scan.memory.previous not in ("degree", "degrees"):
        return None
    word = {"C": "Celsius", "F": "Fahrenheit"}[match.group()]
    scan.say(word, match.start(), match.end())
    scan.memory.hear(word)
    return match.end()


def _read_roman(scan: Scan, match: re.Match[str]) -> int | None:
    """Chapter IV, King Charles III; a name with II or III is somebody's."""
    previous = scan.memory.previous
    if previous in vocabulary.NUMERAL_WORDS:
        words = say.cardinal(say.roman(match.group()))
    elif (previous in vocabulary.RULER_NAMES and (scan.memory.capital or len(match.group()) > 1)) or (
        scan.memory.capital and match.group() in ("II", "III")
    ):
        words = f"the {say.ordinal(say.roman(match.group()))}"
    else:
        return None
    scan.say(words, match.start(), match.end())
    scan.memory.hear_number()
    return match.end()


def _read_ampersand(scan: Scan, match: re.Match[str]) -> int:
    for at in range(match.start(), match.end()):
        if scan.view[at] == "&":
            scan.say("and", at, at + 1)
        else:
            scan.spell(at, at + 1)
    scan.memory.hear(match.group())
    return match.end()


_DOMAIN = rf"(?:[A-Za-z0-9](?:[A-Za-z0-9-]{{0,62}}[A-Za-z0-9])?\.){{1,8}}(?:{vocabulary.TOP_DOMAINS})"
ADDRESS_RULES = rules(
    (r"(?:https?|ftp)://[^\s<>()\[\]\"]{1,300}", _read_address),
    (
        r"(?:mailto:)?[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?!\w)",
        _read_address,
    ),
    (
        rf"(?:www\.[^\s<>()\[\]\"]{{1,200}}|{_DOMAIN}(?![\w-]|\.\w)(?:[:/?#][^\s<>()\[\]\"]{{0,200}})?)",
        _read_address,
    ),
    (rf"[\w-]{{1,60}}\.(?:{vocabulary.FILE_TYPES})(?![\w-]|\.\w)", _read_address),
    (r"[A-Za-z0-9]+(?:_[A-Za-z0-9]+)+", _read_address),
)
ABBREVIATION_RULES = rules(
    (r"(?:[^\W\d_]\.){1,8}[^\W\d_](?:\.|(?!\w))|Ph\.?D\.?(?!\w)", _read_dotted),
    (r"([NS][EW]?|[EW])\.?(?![\w'-])", _read_direction),
    (r"([A-Z])\.(?= [A-Z])", _read_initial),
    (r"([Nn]o)(\.)(?=\d)", _read_abbreviation),
    (r"([A-Za-z]{1,6})(\.?)(?!\w)(?!'\w)", _read_abbreviation),
    (r"(x)()(?=\d)", _read_abbreviation),
    (r"w/o(?!\w)|w/(?!\w)|c/o(?!\w)", _read_with),
    (r"[A-Z]{2}(?![\w'])", _read_state),
    (r"[A-Z]{1,3}&[A-Z]{1,3}(?!\w)", _read_ampersand),
    (r"[Ee]-mail(?:s|ed|ing)?(?!\w)", _read_email_word),
)
LETTER_RULES = rules(
    (r"[CF](?![\w'-])", _read_scale),
    (r"[IVXLC]{1,6}(?![\w'])", _read_roman),
    (r"Rx(?!\w)", _read_spelled),
    (r"[CF]#(?!\w)", _read_sharp),
    (r"(?:[A-DFO]|AB)-(?![\w-]| (?:and|or) \w+-\w)", _read_minus),
    (r"(?:JPEG|JPG|SaaS|VoIP|Ok|ok|PayPal)(?!\w)", _read_known),
    (r"[A-Z]{2,12}(?![^\W_]|'[A-Z])", _read_capitals),
)
