"""Effect of an English word on how the words after it are read, and of the words around one."""

import re

from ...kit.reading_context import CODE_WINDOW, ReadingContext
from ...kit.tokenizer import Recognizer, ScanState
from . import vocabulary

_WORDS_AFTER_EXPIRY = ("date", "is")  # "expiration date is 05/29"


def is_shouted(scan: ScanState, match: re.Match[str]) -> bool:
    """Whether the word before or after the match is in capitals too."""
    before = re.search(r"([^\W\d_]{2,})\W*\Z", scan.view[max(0, match.start() - 20) : match.start()])
    following = scan.next_word(match.end())
    return bool(before and before.group(1).isupper()) or (len(following) > 1 and following.isupper())


def note_english_word(context: ReadingContext, word: str) -> None:
    """Note ``word`` in ``context``: whether it announces a code or a number, and what a name needs."""
    lower = word.lower()
    context.code_just_announced = False
    context.code_words_left = max(0, context.code_words_left - 1)
    context.address_words_left = max(0, context.address_words_left - 1)
    context.date_words_left = max(0, context.date_words_left - 1)
    names_number = lower in vocabulary.NUMBER_NOUNS
    if lower in vocabulary.CODE_WORDS or (context.identifier_expected and names_number):
        context.code_words_left, context.code_just_announced = CODE_WINDOW, True
    keeps_noun = lower == "to" and context.previous_word in vocabulary.NOUNS_SET_TO
    if lower in vocabulary.IDENTIFIED_NOUNS or names_number:
        context.identifier_expected = True
    elif lower not in vocabulary.LINKING_WORDS and not keeps_noun and not (word.isupper() and len(word) < 4):
        context.identifier_expected = False
    context.previous_capitalized = word[:1].isupper() and not context.sentence_start
    if not (lower in _WORDS_AFTER_EXPIRY and context.previous_word in vocabulary.NOUNS_OF_EXPIRY):
        context.previous_word = lower
    context.after_number = context.after_phone = context.after_code = False
    context.after_comma = context.after_colon = False
    context.line_start = context.sentence_start = False


def read_as(word: str) -> Recognizer:
    """Return a recognizer that says ``word`` for whatever it matches."""

    def read(scan: ScanState, match: re.Match[str]) -> int:
        scan.emit(word, *match.span())
        note_english_word(scan.context, word)
        return match.end()

    return read
