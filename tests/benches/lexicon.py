"""Benchmark of lexicons in the reader: processor time of a sentence, of loading, and of a phrase-heavy one.

A third of the entries are phrases that all begin with the same word, which is the worst case of the look-up.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.reading.pronunciation.entries import lexicon_of
from vivavoce.tts_engine.reading.pronunciation.lexicon import Lexicon
from vivavoce.tts_engine.reading.pronunciation.lexicon_files import read_lexicon
from vivavoce.tts_engine.segmenter import Segmenter

MAX_LEXICON_MS = 1.0
_ROUNDS = 50
_SENTENCES = (
    "Thank you for calling, your order number is 48213 and it ships on March 3rd to the New office.",
    "The pharmacist says that metformin and lisinopril can be taken together with food every morning.",
    "Doctor Nguyen will see you at 14:30 in the new building on Martin Luther King Boulevard.",
)


def measure(entries: int = 10_000) -> BenchReport:
    """Measure with a lexicon of ``entries``."""
    words = _words(entries)
    lexicon = lexicon_of(words)
    plain_ms, with_ms = _ms_a_sentence([]), _ms_a_sentence([lexicon])
    return BenchReport(
        bench="lexicon",
        figures=(
            BenchFigure("a sentence without a lexicon", plain_ms, "ms"),
            BenchFigure("a sentence with it", with_ms, "ms"),
            BenchFigure("the lexicon's part", with_ms - plain_ms, "ms", at_most=MAX_LEXICON_MS),
            BenchFigure("loading the file", _load_ms(words), "ms"),
        ),
        settings={"entries": entries, "sentences": len(_SENTENCES)},
    )


def _words(entries: int) -> dict[str, str]:
    phrases = {f"New {'x' * (number % 40)}{number}": "so" for number in range(entries // 3)}
    words = {f"word{number}": "/ˈwɜːrd/" for number in range(entries - len(phrases) - 1)}
    return {"metformin": "/mɛtˈfɔːrmɪn/"} | phrases | words


def _ms_a_sentence(lexicons: Sequence[Lexicon]) -> float:
    def read() -> None:
        for sentence in _SENTENCES:
            segmenter = Segmenter()
            segmenter.use_lexicons(lexicons)
            segmenter.push(sentence)
            segmenter.flush()

    return min(_cpu_ms(read) for _ in range(_ROUNDS)) / len(_SENTENCES)


def _load_ms(words: dict[str, str]) -> float:
    lines = "".join(f'"{word}" = "{said}"\n' for word, said in words.items())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lexicon.toml"
        path.write_text(f"[words]\n{lines}", encoding="utf-8")
        return _cpu_ms(lambda: read_lexicon(path))


def _cpu_ms(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1_000 * (time.process_time() - started)
