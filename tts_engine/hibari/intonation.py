"""Intonation of English sentences: which questions rise, and how lively each line is.

Rules on words and punctuation, without a parser. A question is read clause by clause: the first one that
begins with a question word or an auxiliary decides.

    wh-question                         falls    "So, which one is it, Anna?"
    alternatives                        fall     "Is it Monday or Tuesday?"
    yes or no, tags, statements         rise     "When you arrive, could you call?"  "You called, didn't you?"

An "or" that joins subjects, or ends a list that is not a choice, leaves a question a yes-or-no one:
"Have you or anyone at home been ill?", "Is there any pain or swelling?", "a minute or two".

Source: Huddleston and Pullum 2002, The Cambridge Grammar of the English Language, chapters 10 and 15.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from ...models.hibari.melody import Accent, Melody
from ..reading.normalizer import SpokenWord
from ..reading.prosody import Prosody

_MAX_PITCH: Final = 1.5  # 7 semitones; beyond it the voice is no woman's, or another one's
_MAX_RANGE: Final = 1.6
_QUESTION_END_SEMITONES: Final = 2.8  # of a rising question's end above its mean; at least 2 are heard
_WH_WORDS: Final = frozenset(
    "what who whom whose which when where why how what's who's where's how's".split()
)
_SUBORDINATE_AFTER: Final = frozenset(
    "i you he she it we they this that these those the a an my your his her its our their there".split()
)
_AUXILIARIES: Final = frozenset(
    "am is are was were do does did have has had can could will would shall should may might must "
    "isn't aren't wasn't weren't don't doesn't didn't haven't hasn't hadn't can't couldn't won't wouldn't "
    "shouldn't mustn't".split()
)
_LEADING: Final = frozenset(
    "and so but or okay ok great sorry well then now alright right thanks yes no sure please perfect oh hi "
    "hello excuse me thank you just".split()
)
_PREPOSITIONS: Final = frozenset("at by for from in of on to with about under since until".split())
_PRONOUNS: Final = frozenset(
    "i you he she it we they this that these those anyone anybody someone somebody everyone everybody".split()
)
_DETERMINERS: Final = frozenset("the a an my your his her its our their any some either".split())
# "any" and its like make "A or B" one thing asked about; the words after "or" make it an approximation
_NO_CHOICE: Final = frozenset("any anyone anybody anything ever either".split())
_VAGUE_AFTER_OR: Final = frozenset(
    "something anything someone anyone anybody so more less other another two three later".split()
)
_CHOOSING: Final = frozenset("better best prefer rather easier sooner first".split())

# Factors of the stream's liveliness
_GREETING_RANGE: Final = 1.1
_CORRECTION_RANGE: Final = 1.08
_LIST_RANGE: Final = 0.95
_APOLOGY_RANGE: Final = 0.85
_GREETINGS: Final = frozenset("hello hi hey welcome congratulations great wonderful".split())
_GREETING_PHRASES: Final = ("good morning", "good afternoon", "good evening", "thank you for", "thanks for")
_CORRECTIONS: Final = frozenset("actually instead rather correction".split())
_APOLOGIES: Final = frozenset("sorry apologize apologise unfortunately afraid regret".split())
_DIGITS: Final = frozenset("zero oh one two three four five six seven eight nine double triple".split())
_MIN_GROUP: Final = 2  # digits
_GROUP_END_SEMITONES: Final = 1.0  # of the last digit of a group that another follows


def melody_of(words: Sequence[SpokenWord], liveliness: float, prosody: Prosody, *, rises: bool) -> Melody:
    """The melody of a line.

    liveliness: of the stream, a factor. prosody: of the line, besides. rises: whether a rising question ends.
    """
    pitch = min(_MAX_PITCH, max(1 / _MAX_PITCH, prosody.pitch))
    return Melody(
        liveliness * range_of(words) * min(_MAX_RANGE, prosody.range),
        tuple(_group_accents(words)),
        12 * math.log2(pitch),
        _QUESTION_END_SEMITONES if rises else None,
    )


def rises(words: Sequence[SpokenWord]) -> bool:
    """Whether the pitch rises at the end of a sentence."""
    if not words or not words[-1].punctuation.startswith("?"):
        return False
    for clause in map(_without_leading, _clauses(words)):
        if _asks_wh(clause):
            return False
        if clause and clause[0] in _AUXILIARIES:
            break
    return not _offers_choice([word.text.lower() for word in words])


def range_of(words: Sequence[SpokenWord]) -> float:
    """Factor of the deviation of pitch in a line, besides the stream's liveliness."""
    lower = [word.text.lower() for word in words]
    opening = " ".join(lower[:3])
    if not _APOLOGIES.isdisjoint(lower):
        return _APOLOGY_RANGE
    if not _GREETINGS.isdisjoint(lower[:1]) or opening.startswith(_GREETING_PHRASES):
        return _GREETING_RANGE
    if lower[:1] == ["no"] or not _CORRECTIONS.isdisjoint(lower) or ("not" in lower and "but" in lower):
        return _CORRECTION_RANGE
    if sum(word.punctuation.startswith(",") for word in words) >= 2:
        return _LIST_RANGE
    return 1.0


def _group_accents(words: Sequence[SpokenWord]) -> Iterator[Accent]:
    """The last digit of each group is a step higher if another group follows, as people say numbers."""
    run = 0
    for index, word in enumerate(words):
        run = run + 1 if word.text.lower() in _DIGITS else 0
        more = index + 1 < len(words) and words[index + 1].text.lower() in _DIGITS
        if run >= _MIN_GROUP and word.punctuation.startswith(",") and more:
            yield Accent((index, index + 1), _GROUP_END_SEMITONES)
        if word.punctuation:
            run = 0


def _clauses(words: Sequence[SpokenWord]) -> Iterator[list[str]]:
    """The words of each clause in lower case."""
    clause: list[str] = []
    for word in words:
        clause.append(word.text.lower())
        if word.punctuation:
            yield clause
            clause = []
    yield clause


def _without_leading(clause: list[str]) -> list[str]:
    """Without words such as "so" and "sorry", and a preposition before a question word."""
    start = next((index for index, word in enumerate(clause) if word not in _LEADING), len(clause))
    rest = clause[start:]
    if len(rest) > 1 and rest[0] in _PREPOSITIONS and rest[1] in _WH_WORDS:
        return rest[1:]
    return rest


def _asks_wh(clause: list[str]) -> bool:
    """Whether a clause asks with a question word, and is not one such as "when you arrive"."""
    if not clause or clause[0] not in _WH_WORDS:
        return False
    return len(clause) == 1 or clause[1] not in _SUBORDINATE_AFTER


def _offers_choice(words: list[str]) -> bool:
    """Whether "or" is between alternatives."""
    if "or" not in words:
        return False
    at = len(words) - 1 - words[::-1].index("or")
    after = words[at + 1] if at + 1 < len(words) else ""
    if after in _VAGUE_AFTER_OR or not _NO_CHOICE.isdisjoint(words[:at]):
        return False
    return not (_joins_subjects(words, at) and _CHOOSING.isdisjoint(words))


def _joins_subjects(words: list[str], at: int) -> bool:
    """Whether "or" at an index stands between subject and subject: "have you or your son been ..."."""
    start = next((index for index, word in enumerate(words[:at]) if word in _AUXILIARIES), None)
    if start is None or at - start not in (2, 3):
        return False
    subject = words[start + 1 : at]
    is_subject = (len(subject) == 1 and subject[0] in _PRONOUNS) or (
        len(subject) == 2 and subject[0] in _DETERMINERS
    )
    second = 2 if words[at + 1 : at + 2] and words[at + 1] in _DETERMINERS else 1
    return is_subject and len(words) > at + 1 + second
