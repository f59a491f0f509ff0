"""Fixtures of the native stream's tests."""

from typing import Any

import pytest

from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices


@pytest.fixture
def encoded_lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths in samples of the recordings that voices were made of."""
    lengths: list[int] = []
    encode = BundleVoices.encode_prompt

    def counted(self: BundleVoices, samples: Any, *about: Any) -> Any:
        lengths.append(len(samples))
        return encode(self, samples, *about)

    monkeypatch.setattr(BundleVoices, "encode_prompt", counted)
    return lengths
