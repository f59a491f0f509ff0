"""Rules that hold in every language: punctuation, ends of line, and leftover Markdown and HTML.

A grammar includes these rows among its own. Language models write Markdown even where they are asked not to;
its signs are skipped. Marks of fine-grained control, such as "[laughter]" and the phonemes "[M][AY1]", are
skipped where the voice's model does not have them.
Source: CommonMark 0.31; FunAudioLLM/CosyVoice@ace7c47 cosyvoice/tokenizer/tokenizer.py:241-327 (marks).
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
    scan.context.after_comma, scan.context.after_colon = mark == ",", mark == ":"
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


_SOUNDS = "breath|quick_breath|noise|vocalized-noise|laughter|cough|clucking|accent|hissing|sigh|lipsmack|mn"
_STRESSED = r"\[(?:A[AEHOWY]|E[HRY]|I[HY]|O[WY]|U[HW])[0-2]\]"
_PHONEME = r"\[(?:A[AEHOWY]|E[HRY]|I[HY]|O[WY]|U[HW]|[BDFGKLMNPRTVWYZ]|[CST]H|DH|HH|JH|NG|S|ZH)[0-2]?\]"
_PINYIN_SYLLABLE = r"\[(?:[bcdfghjklmnpqrstwxyz]|[zcs]h)\]\[[a-z\u00e0-\u01dc]{1,5}\]"
# A final with a tone that no European language writes as a word of its own.
_PINYIN_FINAL = r"\[[a-z]{0,3}[āēīōūǎěǐǒǔǖǘǚǜ][a-z]{0,3}\]"
MODEL_MARK_ROWS: tuple[RuleRow, ...] = (
    (rf"\[(?:{_SOUNDS})\](?!\()", _skip),
    (rf"(?:{_PHONEME}){{2,40}}(?!\()|{_STRESSED}(?!\()", _skip),
    (rf"(?:{_PINYIN_SYLLABLE}|{_PINYIN_FINAL})(?!\()", _skip),
)

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
    *MODEL_MARK_ROWS,
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
