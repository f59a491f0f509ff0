"""Recordings that are written down: what a voice says, and what cannot be had."""

import asyncio
import io
import sys
import wave
from pathlib import Path
from typing import Any

import pytest

from shared.audio.recordings import recording
from vivavoce import Engine
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.dialects.openai.recording_transcriber import RecordingTranscriber
from vivavoce.gateway.transcription import can_transcribe

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")

PATH = "/v1/audio/transcriptions"


async def spoken(text: str) -> bytes:
    """A sound file of the packaged voice."""
    content = io.BytesIO()
    async with await Engine.open("default") as engine, engine.stream() as stream:
        stream.push_text(text)
        stream.end_input()
        pcm = b"".join([chunk.pcm async for chunk in stream])
    with wave.open(content, "wb") as wav:
        wav.setparams((1, 2, 24_000, 0, "NONE", ""))
        wav.writeframes(pcm)
    return content.getvalue()


@pytest.mark.skipif(not can_transcribe(), reason="needs the extra: make test EXTRAS=dev,stt")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # from dependencies of faster_whisper
def test_what_a_voice_says_is_written_down() -> None:
    async def run() -> str:
        return await RecordingTranscriber().transcribe(await spoken("Good morning, how are you today?"))

    text = asyncio.run(run())
    assert text.lower().startswith("good morning")
    assert "how are you today" in text.lower()


def test_a_form_without_a_sound_file_and_a_file_without_sound_are_refused(run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(PATH, data={"model": "whisper-1"})
        assert (answer.status_code, "file" in answer.json()["error"]["message"]) == (400, True)
        answer = await served.client.post(PATH, files={"file": ("a.wav", b"no sound", "audio/wav")})
        assert answer.status_code == 400

    run(test)


def test_without_the_extra_the_error_names_it(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)

    async def test(served: Any) -> None:
        answer = await served.client.post(PATH, files={"file": ("a.wav", recording(), "audio/wav")})
        assert (answer.status_code, "'stt'" in answer.json()["error"]["message"]) == (400, True)

    run(test)


def test_a_key_that_may_only_speak_may_not_have_recordings_written_down(run: Any, tmp_path: Path) -> None:
    key = KeysFile(tmp_path / "keys.json").add("me", (Scope.SPEAK,), KeyLimits())

    async def test(served: Any) -> None:
        answer = await served.client.post(
            PATH, files={"file": ("a.wav", recording(), "audio/wav")}, headers={"x-api-key": key}
        )
        assert answer.status_code == 403

    run(test, access=AccessControl(KeysFile(tmp_path / "keys.json")))
