"""Rules that hold in every language: punctuation, ends of line, and leftover Markdown and HTML.

A grammar includes these rows among its own. Language models write Markdown even where they are asked not to;
its signs are skipped.
Source: CommonMark 0.31.
"""

import re

from .tokenizer import RuleRow, ScanState


def _skip(scan: ScanState, match: re.Match[str]) -> int:
    return match.end()


def _skip_heart(scan: ScanState, match: re.Match[str]) -> int | None:
    """Skip "<3", which after a number is a comparison."""
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
    """Read a full stop; an ellipsis is a pause inside the sentence."""
    is_ellipsis = len(match.group()) > 1
    scan.punctuate("," if is_ellipsis else ".")
    if not is_ellipsis:
        scan.context.end_sentence()
    scan.context.line_start = False
    return match.end()


def _read_newline(scan: ScanState, match: re.Match[str]) -> int:
    if scan.words and scan.words[-1].punctuation in ("", ",", "—"):
        scan.punctuate(".")
    scan.context.end_sentence()
    scan.context.line_start = True
    return match.end()


# At the start of a line: rulers, table rules, code fences, headings, bullets and quotations.
LINE_START_ROWS: tuple[RuleRow, ...] = (
    (r"(?:[-*_=~] ?){3,}(?=\n|$)", _skip),
    (r"\|?[ :|-]*-{2,}[ :|-]*(?=\n|$)", _skip),
    (r"```[\w+-]*(?=\n|$)|~~~[\w+-]*(?=\n|$)", _skip),
    (r"#{1,6} +", _skip),
    (r"[-*+•>] +", _skip),
)
# Ends of line, links and images (their text is read), HTML tags and entities, smileys.
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
