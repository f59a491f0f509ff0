"""Text that the teacher speaks: sentences of a call centre, spelled letters, names, and words of all sorts.

    next(texts(7))      "Your balance is $45.20. That is S, M, I, T, H, Smith."

Half of a text is made of the sentences of the small world (``small_voice.world``), which have numbers, dates
and clauses. The rest brings the sounds that these lack.
"""

import gzip
import json
import random
from collections.abc import Iterator
from functools import cache

from small_voice import world
from vivavoce.models.hibari.phonemizer import ASSETS
from vivavoce.models.hibari.prepared_files import read_names, read_words

_MAX_SENTENCES = 3  # of a text

_NAMED = (
    "Thank you, {name}.",
    "Good morning, {name} {name}, how can I help you?",
    "Am I speaking to {name} {name}?",
    "The parcel goes to {number} {name} Street in {name}.",
    "I will put you through to {name} at {name} and {name}.",
    "Is {name} spelled {letters}?",
    "Doctor {name} can see you on Monday, or would you prefer Doctor {name}?",
    "Hi, this is {name} from {name}; I have a note for {name} here.",
)
_SPELLED = (
    "That is {letters}, {name}.",
    "Your code is {code}.",
    "The reference is {code}, {code}.",
    "Please write it down: {letters}, then {code}.",
    "{letter} as in {name}, {letter} as in {name}.",
    "You can write to {name}@{name}.com, with {letter} as in {name}.",
    "Gate {letter}{number}, seat {number}{letter}.",
)
_MIXED = (
    "The {word} and the {word}, {word} or {word}.",
    "We {word} what they {word}, but {word} {word} it.",
    "Is the {word} {word} of {word} {word}?",
    "{word}, {word}, {word}, and {word}!",
    "It was {word}; {word} {word} could not {word} the {word}.",
    "I think {word} is {word}, because the {word} has {word} {word}.",
    "{word} {word} {word}: {word} {word}... {word}.",
)


def texts(seed: int) -> Iterator[str]:
    """Endless texts of one to three sentences; the same for the same seed."""
    draw, known = random.Random(seed), world.sentences(seed)
    while True:
        yield " ".join(_sentence(draw, known) for _ in range(draw.randint(1, _MAX_SENTENCES)))


def _sentence(draw: random.Random, known: Iterator[str]) -> str:
    kind = draw.random()
    if kind < 0.5:
        return next(known)
    forms = _NAMED if kind < 0.63 else _SPELLED if kind < 0.75 else _MIXED
    first, *rest = (part.split("}") for part in draw.choice(forms).split("{"))
    text = first[0] + "".join(_slot(draw, slot) + after for slot, after in rest)
    return text[0].upper() + text[1:]


def _slot(draw: random.Random, slot: str) -> str:
    match slot:
        case "name":
            return draw.choice(_names()).capitalize()
        case "word":
            return draw.choice(_words())
        case "letter":
            return draw.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
        case "letters":
            return ", ".join(draw.choice(_names())[:9].upper())
        case "code":
            return " ".join(
                draw.choice("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") for _ in range(draw.randint(3, 7))
            )
        case "number":
            return str(draw.randint(1, draw.choice([20, 100, 9999])))
    raise ValueError(f"no slot {slot}")


@cache
def _names() -> list[str]:
    return sorted(word for word in {**read_words(), **read_names()} if word.isascii() and word.isalpha())


@cache
def _words() -> list[str]:
    """Words of the voice's lexicon, in lower case."""
    known = json.loads(gzip.decompress((ASSETS / "lexicon_us_gold.json.gz").read_bytes()))
    return sorted(word for word in known if word.isascii() and word.isalpha() and word.islower())
