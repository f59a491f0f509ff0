"""Voices of recordings on small random weights of XTTS: enrolled and used through the APIs of a server."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the XTTS networks need torch: make test EXTRAS=dev,stt,cosyvoice")

from shared.audio.recordings import recording
from shared.voices.tiny_xtts import write_tiny_xtts
from vivavoce.tts_engine.xtts.backend import XttsBackend
from vivavoce.tts_engine.xtts.policy import SpeechLengthBound, XttsPolicy

BRIEF = XttsPolicy(length=SpeechLengthBound(0.2, 0.2))


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[XttsBackend]:
    folder = write_tiny_xtts(tmp_path / "tiny")
    with closing(XttsBackend.load(folder, BRIEF, tmp_path / "voices")) as loaded:
        yield loaded


def test_a_clone_of_clone_speaker_speaks_through_tts_stream(run_every_api: Any, backend: XttsBackend) -> None:
    async def test(served: Any) -> None:
        client = served.client
        clone = await client.post("/clone_speaker", files={"wav_file": ("anna.wav", recording())})
        assert clone.status_code == 200
        again = await client.post("/clone_speaker", files={"wav_file": ("anna.wav", recording())})
        assert again.json() == clone.json()
        assert backend.voices.store is not None and len(backend.voices.store.list()) == 1
        body = {**clone.json(), "text": "It is me.", "language": "en", "add_wav_header": False}
        spoken = await client.post("/tts_stream", json=body)
        assert spoken.status_code == 200
        assert np.abs(np.frombuffer(spoken.content, "<i2")).max() > 100

    run_every_api(test, backend=backend)


def test_several_clips_are_one_voice_of_the_openai_api(run_every_api: Any, backend: XttsBackend) -> None:
    async def test(served: Any) -> None:
        clips = [("audio_sample", (f"{seconds}.wav", recording(seconds))) for seconds in (1.0, 2.5)]
        form = {"name": "Anna", "consent": "I agree."}
        answer = await served.client.post("/v1/audio/voices", files=clips, data=form)
        assert answer.status_code == 200
        body = {
            "model": "tts-1",
            "voice": answer.json()["id"],
            "input": "It is me.",
            "response_format": "pcm",
        }
        spoken = await served.client.post("/v1/audio/speech", json=body)
        assert spoken.status_code == 200 and len(spoken.content) > 1_000
        for files, sentence in (
            (clips[:1], "is 1.0 s long"),
            ([clips[0], clips[0]], "have 2.0 s; give 3 to 30 s"),
            ([("audio_sample", ("silent.wav", recording(level=0.0)))], "silent"),
        ):
            refused = await served.client.post("/v1/audio/voices", files=files, data=form)
            assert refused.status_code == 400
            assert sentence in refused.json()["error"]["message"]

    run_every_api(test, backend=backend)
