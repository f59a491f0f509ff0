"""Pipecat's pronunciation map with the vivavoce services, read by the engine's reader."""

import asyncio
import warnings

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from vivavoce.adapters.pipecat.engine_tts_service import VivavoceTTSService
from vivavoce.tts_engine.segmenter import Segmenter


def test_a_pronunciation_map_reaches_the_voice_as_phonemes() -> None:
    transform = VivavoceTTSService.pronunciation_transform_ipa(
        {"Metformin": "mɛtˈfɔɹmɪn", "win": "win", "Nonsense": "NON SENSE"}
    )
    text = asyncio.run(transform("Take metformin, and win. Nonsense!", "sentence"))
    segmenter = Segmenter()
    words = [word for segment in segmenter.push(text) + segmenter.flush() for word in segment.words]
    assert [(word.text, word.phonemes, text[word.start : word.stop]) for word in words] == [
        ("Take", None, "Take"),
        ("metformin", "mɛtˈfɔɹmɪn", "metformin"),
        ("and", None, "and"),
        ("win", "win", "win"),
        ("Nonsense", None, "Nonsense"),
    ]


@pytest.mark.parametrize(("word", "ipa"), [("a]b", "ɑ"), ("word", ""), ("x" * 65, "ɛks")])
def test_what_cannot_be_written_is_left_to_the_voice(word: str, ipa: str) -> None:
    assert VivavoceTTSService.format_pronunciation(word, ipa) is None
