"""The work on text before the language model: what a deployment of its own would take over.

Sentences of bots are normalised, cut into segments and encoded as text ids, as a decode replica does it.
"""

import json
import tempfile
import time
from pathlib import Path

import numpy as np

from shared.voices.cosyvoice_bundles import write_random_bundle
from vivavoce.gateway.cli.bench.report import BenchFigure, BenchReport
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.cosyvoice.backend import CosyVoiceBackend
from vivavoce.tts_engine.cosyvoice.text_encoder import CosyVoiceTextEncoder
from vivavoce.tts_engine.stream_request import Delivery

_SENTENCES = Path(__file__).parents[1] / "sentences.json"
_CHARACTERS_PER_S = 15.0  # of English speech
_ROUNDS = 5  # the fastest counts


def measure() -> BenchReport:
    """Time every sentence alone."""
    texts = [each["text"] for each in json.loads(_SENTENCES.read_text("utf-8"))]
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "bundle"
        write_random_bundle(bundle, 2, "tiny", 1)
        backend = CosyVoiceBackend.load(bundle)
    try:
        times_ms = np.array([_fastest_ms(backend, text) for text in texts])
    finally:
        backend.close()
    speech_s = sum(map(len, texts)) / _CHARACTERS_PER_S
    figures = (
        BenchFigure("sentences", len(texts), ""),
        BenchFigure("reading one, p50", float(np.percentile(times_ms, 50)), "ms"),
        BenchFigure("reading one, p95", float(np.percentile(times_ms, 95)), "ms"),
        BenchFigure("reading, of a core a stream that speaks", 0.1 * times_ms.sum() / speech_s, "%"),
    )
    return BenchReport("front-end", figures, {"characters a second of speech": _CHARACTERS_PER_S})


def _fastest_ms(backend: CosyVoiceBackend, text: str) -> float:
    return min(_time_ms(backend, text) for _ in range(_ROUNDS))


def _time_ms(backend: CosyVoiceBackend, text: str) -> float:
    """Processor time of a sentence."""
    encoder: CosyVoiceTextEncoder = backend._sentence_config.text_encoder
    segmenter = backend.segmenter(SlotRequest("", 1.0, 0, Delivery()))
    begins = time.thread_time()
    for segment in [*segmenter.push(text), *segmenter.flush()]:
        encoder.encode(segment.words)
    return 1000 * (time.thread_time() - begins)
