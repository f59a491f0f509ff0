"""TODO."""

import re

from .tokenizer import RuleRow, ScanState


def _skip(scan: ScanState, match: re.Match[str]) -> int:
    return match.end()


def _skip_at_line_start(scan: ScanState, match: re.Match[str]) -> int | None:
    return match.end() if scan.context.line_start else None


def _skip_heart(scan: ScanState, match: re.Match[str]) -> int | None:
    return None if scan.context.after_number else match.end()


def _read_punctuation(scan: ScanState, match: re.Match[str]) -> int:
    mark = match.group()[0]
    scan.context.after_number = scan.context.after_number and mark == ")"
    scan.context.after_comma = mark == ","
    scan.punctuate("," if mark in "()|" else "—" if mark in "—–-" else mark)
    if mark in "!?":
        scan.context.end_sentence()
    elif mark == ":" and scan.context.code_words_left:
        scan.context.code_just_announced = True
    return match.end()


def _read_full_stop(scan: ScanState, match: re.Match[str]) -> int:
    trailing_off = len(match.group()) > 1
    scan.punctuate("," if trailing_off else ".")
    if not trailing_off:
        scan.context.end_sentence()
    scan.context.line_start = False
    return match.end()


def _read_newline(scan: ScanState, match: re.Match[str]) -> int:
    if scan.words and scan.words[-1].punctuation in ("", ",", "—"):
        scan.punctuate(".")
    scan.context.end_sentence()
    scan.context.line_start = True
    return match.end()


# The rows that hold in every language.
LINE_START_ROWS: tuple[RuleRow, ...] = (
    (r"(?:[-*_=~] ?){3,}(?=\n|$)", _skip_at_line_start),
    (r"\|?[ :|-]*-{2,}[ :|-]*(?=\n|$)", _skip_at_line_start),
    (r"```[\w+-]*(?=\n|$)|~~~[\w+-]*(?=\n|$)", _skip_at_line_start),
    (r"#{1,6} +", _skip_at_line_start),
    (r"[-*+•>] +", _skip_at_line_start),
)


MARKUP_ROWS: tuple[RuleRow, ...] = (
    (r"\n", _read_newline),
    (r"!?\[(?=[^\[\]\n]{0,200}\]\()", _skip),
    (r"\]\((?:[^()\s]|\([^()\s]{0,60}\)){0,300}\)", _skip),
    (r"</?[A-Za-z][^<>\n]{0,60}>", _skip),
    (r"&(?:nbsp|lt|gt|quot|#39);", _skip),
    (r"[:;=]['-]?[)(DPpO|](?![\w])", _skip),
    (r" ?<3(?![\w.])", _skip_heart),
)


PUNCTUATION_ROWS: tuple[RuleRow, ...] = (
    (r"\.+", _read_full_stop),
    (r"--+|—+", _read_punctuation),
    (r"[-–](?= |$)", _read_punctuation),
    (r"[,;:!?()|]", _read_punctuation),
)
