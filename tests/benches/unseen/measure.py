"""Share of lines that were written before anybody had read them, and that are read right.

A list has 85 to 460 lines, "language: written => reading", in the form of ``readings.py`` and, for English,
of ``english_readings.py``. The kinds of faults of the lists were mended after they had been read; lists 10
and 13 are never used for that. Lists 10 and 11 have as many things to read in a line as a text usually has,
the others two or three. The voice's names of letters are compared as letters.
"""

from collections.abc import Callable
from pathlib import Path

from benches import english_readings, readings
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport

FOLDER = Path(__file__).parent
MIN_RIGHT_PERCENT = {"en": 95.0, "other languages": 92.0}


def measure(show_wrong: Callable[[str], None] | None = None) -> BenchReport:
    """Measure each list. show_wrong: receives the lines that are read otherwise."""
    figures = []
    for path in sorted(FOLDER.glob("list_*.txt")):
        rows = [line for line in path.read_text("utf-8").splitlines() if line[:1] != "#"]
        for group in MIN_RIGHT_PERCENT:
            lines = [row for row in rows if (row[:3] == "en:") is (group == "en")]
            if not lines:
                continue
            right = sum(_is_right(line, show_wrong) for line in lines)
            figures.append(
                BenchFigure(
                    f"{path.stem}, {group}: read right of {len(lines)}",
                    100 * right / len(lines),
                    "%",
                    at_least=MIN_RIGHT_PERCENT[group],
                )
            )
    return BenchReport(bench="unseen", figures=tuple(figures))


def _is_right(line: str, show_wrong: Callable[[str], None] | None) -> bool:
    language, text = line.split(": ", 1)
    written, pattern = text.split(" => ")
    if language == "en":
        said = english_readings.spoken(written)
        right = any(said in english_readings.RightReadings(each) for each in pattern.split(" | "))
    else:
        shown = readings.spoken(written, language)
        right, said = readings.comparable(shown) in readings.readings_of(pattern, language), shown
    if show_wrong and not right:
        show_wrong(f"{language}: {written} -> {said}")
    return right
