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

# Directions to a speaker, as language models write them and other engines take them: "[laughs]", "(sighs)",
# "*clears throat*". Moods are directions in square brackets only; in a parenthesis they may be text.
_SOUNDS_MADE = (
    r"(?:(?:softly|quietly|nervously|deeply|loudly|lightly|nervous|soft|deep|long|short|small|starts?) )?"
    r"(?:laugh(?:s|ing|ter)?|chuckl(?:es?|ing)|giggl(?:es?|ing)|sigh(?:s|ing)?|gasp(?:s|ing)?|cough(?:s|ing)?"
    r"|sneez(?:es?|ing)|sniff(?:s|ing)?|sniffl(?:es?|ing)|sob(?:s|bing)?|cry(?:ing)?|cries|groan(?:s|ing)?"
    r"|moan(?:s|ing)?|yawn(?:s|ing)?|gulp(?:s|ing)?|swallow(?:s|ing)?|snort(?:s|ing)?|wheez(?:es?|ing)"
    r"|clear(?:s|ing)?(?: (?:his|her|their|my))? throat|exhal(?:es?|ing)|inhal(?:es?|ing)"
    r"|(?:takes a )?breath(?:es|ing)?|whisper(?:s|ing|ed)?|shout(?:s|ing)?|scream(?:s|ing)?|hum(?:s|ming)?"
    r"|mumbl(?:es?|ing)|pauses?|smil(?:es|ing)|grin(?:s|ning)|nods|shrugs|winks|claps|applause|beep)"
    r"(?: (?:softly|quietly|nervously|deeply|loudly|hard(?:er)?|slightly|lightly|again))?"
)
_MOODS = (
    "excited(?:ly)?|thoughtful(?:ly)?|sarcastic(?:ally)?|curious(?:ly)?|happy|happily|sad(?:ly)?|angry|angrily|calm(?:ly)?"
    "|serious(?:ly)?|cheerful(?:ly)?|nervous(?:ly)?|surprised|confused|warm(?:ly)?|soft(?:ly)?|gentl[ey]|sings?|singing|music"
    "|mischievous(?:ly)?|dramatic(?:ally)?|hesitant(?:ly)?|hesitates|tired|annoyed|empathetic|reassuring|sympathetic|playful(?:ly)?"
)
_ACTED = rf"{_SOUNDS_MADE}|{_MOODS}"
# Directions that a model with these marks acts; others skip them.
ACTED_SOUNDS = {
    "[laughter]": r"laugh(?:s|ing)?|chuckl(?:es?|ing)|giggl(?:es?|ing)",
    "[sigh]": r"sighs|sighing",
    "[cough]": r"coughs|coughing",
    "[breath]": r"(?:takes a )?breath(?:es|ing)?|inhal(?:es?|ing)|exhal(?:es?|ing)|gasp(?:s|ing)?",
}
# Elements of HTML and SSML; another name in angle brackets is text: "Press <Enter>".
_ELEMENTS = (
    "a|abbr|address|article|aside|audio|b|bdi|bdo|big|blockquote|body|br|button|caption|center|cite|code|col|dd|del"
    "|details|dfn|div|dl|dt|em|emphasis|figcaption|figure|font|footer|form|h[1-6]|head|header|hr|html|i|iframe|img"
    "|input|ins|kbd|label|lang|li|link|main|mark|meta|nav|ol|option|p|phoneme|picture|pre|prosody|q|s|samp|say-as|script"
    "|section|select|small|source|span|speak|speed|spell|strike|strong|style|sub|summary|sup|svg|table|tbody|td|textarea"
    "|tfoot|th|thead|time|title|tr|tt|u|ul|var|video|voice|volume|w|wbr"
)
_ATTRIBUTE = r"[\w:-]{1,40}\s?=\s?(?:\"[^\"<>\n]{0,200}\"|'[^'<>\n]{0,200}'|[^\s<>\"'/]{1,200})"

# At the start of a line: rulers, table rules, code fences, headings, bullets and quotations.
LINE_START_ROWS: tuple[RuleRow, ...] = (
    (r"(?:[-*_=~] ?){3,}(?=\n|$)", _skip),
    (r"\|?[ :|-]*-{2,}[ :|-]*(?=\n|$)", _skip),
    (r"```[\w+-]*(?=\n|$)|~~~[\w+-]*(?=\n|$)", _skip),
    (r"#{1,6} +", _skip),
    (r"(?:[-*+•>] +)?\[[ xX]?\] +", _skip),
    (r"[-*+•>] +", _skip),
)
# Ends of line, links and images (their text is read), HTML tags and entities, smileys.
MARKUP_ROWS: tuple[RuleRow, ...] = (
    (r"\n", _read_newline),
    (r"!?\[(?=[^\[\]\n]{0,200}\]\()", _skip),
    *MODEL_MARK_ROWS,
    (r"\]\((?:[^()\s]|\([^()\s]{0,60}\)){0,300}\)", _skip),
    (rf"</?(?i:{_ELEMENTS})(?:\s{_ATTRIBUTE}){{0,8}}\s?/?>", _skip),
    (rf"\[(?i:{_ACTED})\](?!\()|\((?i:{_SOUNDS_MADE})\)|\*(?i:{_SOUNDS_MADE})\*(?!\w)", _skip),
    (r"</?(?:laugh(?:ter)?|chuckle|sigh|cough|sniffle|groan|yawn|gasp)>", _skip),
    (r"\[\^[\w-]{1,20}\]:?", _skip),
    (r"&(?:nbsp|lt|gt|quot|#39);", _skip),
    # "==marked==" and ":smile:"
    (r"(?<![\w=])==(?=[^\s=][^=\n]{0,200}==(?![\w=]))|(?<=[^\s=])==(?![\w=])", _skip),
    (r"~~(?=[^\s~])|(?<=[^\s~])~~", _skip),  # "~~struck out~~"
    (r"(?<![\w:]):(?=[a-z_]{0,30}[a-z])[a-z][a-z0-9_+]{1,30}:(?![\w:])", _skip),
    (r"[:;=]['-]?[)(DPpO|](?![\w])", _skip),
    (r" ?<3(?![\w.])", _skip_heart),
)
PUNCTUATION_ROWS: tuple[RuleRow, ...] = (
    (r"\.+", _read_full_stop),
    (r"--+|—+", _read_punctuation),
    (r"[-–](?= |$)", _read_punctuation),
    (r"[,;:!?()|]", _read_punctuation),
)
