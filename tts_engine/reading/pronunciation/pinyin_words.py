"""Words with pinyin of their own, written as a model takes the sounds of Mandarin."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ..normalizer import SpokenWord


def with_pinyin(words: Iterable[SpokenWord], write: Callable[[str], str]) -> tuple[SpokenWord, ...]:
    """Return the words, those with pinyin as ``write`` has it; successive ones are one word, without a blank.

    write: from syllables such as "tian1 qi4"; "" leaves the word as it is.
    """
    found: list[SpokenWord] = []
    follows_pinyin = False
    for word in words:
        text = write(word.pinyin) if word.pinyin else ""
        is_said_before = word.pinyin == "" and follows_pinyin
        if not text and not is_said_before:
            found.append(word)
            follows_pinyin = False
        elif is_said_before or (follows_pinyin and not found[-1].punctuation):
            joined = found[-1].text + text
            found[-1] = replace(found[-1], text=joined, punctuation=word.punctuation, stop=word.stop)
        else:
            found.append(replace(word, text=text))
            follows_pinyin = True
    return tuple(found)
