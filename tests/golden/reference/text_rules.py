"""Case k_frontend: upstream's text normalisation and cutting, string by string; a token is a word."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from golden.reference import upstream_text
from golden.reference.comparison import Comparison, compare_rows, read_rows
from golden.reference.upstream_text import UpstreamTextRules

_CHINESE_STEPS = ("blank", "corner", "bracket", "split")

Row = Mapping[str, Any]


def check_text_rules(folder: Path) -> Iterator[Comparison]:
    """Compare every part of the case with its stored answers."""
    stated = read_rows(folder, "k_frontend")

    def trace(part: str, answer: Callable[[Any], Any], expected: Callable[[Any], Any]) -> Comparison:
        rows = stated[part]
        return compare_rows(
            "k_frontend", part, [answer(row) for row in rows], [expected(row) for row in rows]
        )

    yield trace("en", _english, lambda row: (row["spelled"], row["split"]))
    yield trace("zh", _chinese, lambda row: tuple(row[name] for name in _CHINESE_STEPS))
    yield trace("text_normalize_no_wetext", _prepared, lambda row: (row["split"], row["nosplit"]))
    yield trace("only_punct", lambda row: upstream_text.is_only_punctuation(row[0]), lambda row: row[1])
    yield trace("contains_chinese", lambda row: _has_chinese(row[0]), lambda row: row[1])


def _english(row: Row) -> tuple[str, list[str]]:
    split = upstream_text.split_paragraph(row["spelled"], _words, UpstreamTextRules.OTHER)
    return upstream_text.spell_out_numbers(row["text"]), split


def _chinese(row: Row) -> tuple[object, ...]:
    text = row["text"]
    return (
        upstream_text.remove_blanks(text),
        upstream_text.spell_out_corner_marks(text),
        upstream_text.remove_brackets(text),
        upstream_text.split_paragraph(text, _words, UpstreamTextRules.CHINESE),
    )


def _prepared(row: Row) -> tuple[list[str], str]:
    return upstream_text.prepare(row["text"], _words), upstream_text.normalize(row["text"])


def _has_chinese(text: str) -> bool:
    return upstream_text.rules_for(text) is UpstreamTextRules.CHINESE


def _words(text: str) -> list[str]:
    return text.split(" ")
