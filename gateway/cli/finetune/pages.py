"""Pages in HTML of a preparation and of an evaluation; each is one file beside its sounds."""

import base64
import html
import io
import wave
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.cosyvoice.finetuning.evaluation import EvaluatedSentence, SourceFigures
from ....tts_engine.cosyvoice.finetuning.preparation import PreparationReport

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; }
td, th { padding: .3rem .8rem; border-bottom: 1px solid #ccc; text-align: left; }
td.number { text-align: right; font-variant-numeric: tabular-nums; } audio { height: 2rem; width: 14rem; }
rect { fill: #3b6ea5; } small { color: #666; }
"""
_WIDTH, _HEIGHT, _BARS = 560, 120, 28


def write_preparation_page(report: PreparationReport, path: Path) -> None:
    """Write the report of a preparation. Raises OSError."""
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(why)}</td></tr>"
        for name, why in report.left_out.items()
    )
    body = (
        f"<p>{report.kept} kept, {report.seconds / 60:.1f} minutes; {len(report.left_out)} left out.</p>"
        f"<h2>Length, s</h2>{_histogram(report.durations)}"
        f"<h2>Peak, dBFS</h2>{_histogram(report.peaks)}"
        f"<h2>Left out</h2><table><tr><th>recording</th><th>why</th></tr>{rows}</table>"
    )
    _write_page(path, "Prepared recordings", body)


def write_evaluation_page(
    figures: Sequence[SourceFigures], spoken: Sequence[EvaluatedSentence], path: Path
) -> None:
    """Write the comparison of a run, with every sentence to play from every source. Raises OSError."""
    sources = [one.source for one in figures]
    table = "".join(
        f"<tr><td>{one.source}</td><td class=number>{one.wrong_percent:.1f}</td>"
        f"<td class=number>{one.similarity:.3f}</td></tr>"
        for one in figures
    )
    by_text: dict[str, dict[str, EvaluatedSentence]] = {}
    for one in spoken:
        by_text.setdefault(one.text, {})[one.source] = one
    rows = "".join(
        f"<tr><td>{html.escape(text)}</td>"
        + "".join(_player(found.get(source)) for source in sources)
        + "</tr>"
        for text, found in by_text.items()
    )
    heads = "".join(f"<th>{source}</th>" for source in sources)
    body = (
        "<table><tr><th>source</th><th>words wrong, %</th><th>similarity</th></tr>"
        f"{table}</table><h2>Sentences</h2><table><tr><th>text</th>{heads}</tr>{rows}</table>"
    )
    _write_page(path, "Evaluation", body)


def _player(one: EvaluatedSentence | None) -> str:
    if one is None:
        return "<td></td>"
    sound = base64.b64encode(wav_bytes(one)).decode()
    heard = f"<br><small>{html.escape(one.heard)}</small>" if one.wrong_words else ""
    return f"<td><audio controls src='data:audio/wav;base64,{sound}'></audio>{heard}</td>"


def wav_bytes(one: EvaluatedSentence) -> bytes:
    """The sentence as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(SAMPLE_RATE)
        out.writeframes((one.samples.clip(-1, 1) * 32_767).astype("<i2").tobytes())
    return file.getvalue()


def _histogram(values: Sequence[float]) -> str:
    if not values:
        return "<p>none</p>"
    counts, edges = np.histogram(values, bins=_BARS)
    width, top = _WIDTH / _BARS, max(1, int(counts.max()))
    bars = "".join(
        f"<rect x='{index * width:.1f}' y='{_HEIGHT - _HEIGHT * count / top:.1f}' width='{width - 1:.1f}' "
        f"height='{_HEIGHT * count / top:.1f}'><title>{low:.1f} to {high:.1f}: {count}</title></rect>"
        for index, (count, (low, high)) in enumerate(zip(counts, pairwise(edges), strict=True))
    )
    ends = f"<small>{edges[0]:.1f} to {edges[-1]:.1f}, median {np.median(values):.1f}</small>"
    return f"<svg width={_WIDTH} height={_HEIGHT}>{bars}</svg><br>{ends}"


def _write_page(path: Path, title: str, body: str) -> None:
    page = f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{_STYLE}</style><h1>{title}</h1>"
    path.write_text(page + body, "utf-8")
