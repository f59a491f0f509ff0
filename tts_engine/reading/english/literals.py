"""Rules of text that a listener types as it is written: passwords, Windows paths, hosts with a port."""

import re

from ..tokenizer import ScanState, compile_rules
from .spelling import ENGLISH_SPELLER
from .word_context import note_english_word

_PASSWORD_NOUNS = frozenset(("password", "passcode"))
_PASSWORD_BEHIND = re.compile(r"\bpass(?:word|code) is:? [`\"'*]{0,3}\Z", re.IGNORECASE)
_TYPED = re.compile(r"[^\s`\"]{1,40}")
_MARKS_AFTER_LITERAL = ".,;:!?)'*"  # they belong to the sentence unless the literal is quoted
_IP_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
# "C:\Users" or "\\server" with what follows, in which names may have blanks.
_PATH_BEHIND = re.compile(r"(?:\b[A-Za-z]:|(?<!\S)\\\\)[^:*?\"<>|]{0,120}\Z")


def read_password(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the "Tk9-vv2!" of "password is `Tk9-vv2!`" with the names of its marks, and return its end."""
    start = match.start()
    typed = _TYPED.match(scan.view, start)
    announced = scan.context.previous_word in _PASSWORD_NOUNS or _PASSWORD_BEHIND.search(scan.view, 0, start)
    if typed is None or not announced:
        return None
    stop = typed.end()
    if scan.view[stop : stop + 1] not in ("`", '"'):
        stop = start + len(typed.group().rstrip(_MARKS_AFTER_LITERAL))
    for at in range(start, stop):
        if scan.view[at].isalnum():
            ENGLISH_SPELLER.spell(scan, at, at + 1)
            continue
        scan.emit(ENGLISH_SPELLER.marks.get(scan.view[at], ""), at, at + 1)
        scan.punctuate(",")
    return stop


def _read_drive_colon(scan: ScanState, match: re.Match[str]) -> int:
    """Read the colon after the letter of a drive."""
    scan.emit(ENGLISH_SPELLER.marks[":"], match.start(), match.end())
    note_english_word(scan.context, "colon")
    return match.end()


def _read_backslash(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read the backslash of a path; elsewhere it is left over from a programming language."""
    if not _PATH_BEHIND.search(scan.view, 0, match.end()):
        return None
    for at in range(match.start(), match.end()):
        scan.emit("backslash", at, at + 1)
    note_english_word(scan.context, "backslash")
    return match.end()


def _read_host_with_port(scan: ScanState, match: re.Match[str]) -> int | None:
    """Read "192.168.1.1:8080"."""
    address = _IP_ADDRESS.match(scan.view, match.start())
    if address is None:
        return None
    colon = ENGLISH_SPELLER.read_version(scan, address)
    scan.emit("port", colon, colon + 1)
    ENGLISH_SPELLER.spell(scan, colon + 1, match.end())
    scan.context.note_number()
    return match.end()


DIGIT_RULES = compile_rules((rf"{_IP_ADDRESS.pattern}:\d{{2,5}}(?![\w:]|\.\d)", _read_host_with_port))
SYMBOL_RULES = compile_rules(
    (r":(?=\\)", _read_drive_colon),
    (r"\\{1,2}(?=[\w.%$])", _read_backslash),
)
