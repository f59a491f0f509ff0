"""Fixtures of the native stream's tests."""

from typing import Any

import pytest

from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices


@pytest.fixture
def encoded_lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths in samples of the recordings that voices were made of."""
    lengths: list[int] = []
    encode = BundleVoices.encode_recordings

    def counted(self: BundleVoices, recordings: Any, *about: Any) -> Any:
        lengths.extend(len(recording.samples) for recording in recordings)
        return encode(self, recordings, *about)

    monkeypatch.setattr(BundleVoices, "encode_recordings", counted)
    return lengths
