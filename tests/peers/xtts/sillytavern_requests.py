"""SillyTavern's requests for speech: of "XTTSv2" in the browser, of "OpenAI Compatible" in its server.

``python sillytavern_requests.py URL KEY POOR_KEY`` sends them to ``../server.py`` and prints the passed cases
as JSON. "XTTSv2" sends no key, so its requests get one here, and come from the page of the server.

Source: SillyTavern 1.13.0 public/scripts/extensions/tts/xtts.js and openai-compatible.js,
src/endpoints/openai.js.
"""

import io
import sys
import wave
from typing import Any

import httpx

from peers.client_cases import run_cases

URL, KEY, _ = sys.argv[1:4]
TEXT = "One two three four five six."
BROWSER = {"Authorization": f"Bearer {KEY}", "Origin": URL, "Cache-Control": "no-cache"}
client = httpx.Client(base_url=URL, headers=BROWSER, timeout=60.0)


def length_of(wav: bytes) -> float:
    with wave.open(io.BytesIO(wav)) as reader:
        return len(reader.readframes(10**9)) / 2 / reader.getframerate()


def xtts_lists_speakers_and_plays_one() -> None:
    voices = client.get("/speakers").json()
    assert "tone-330" in {voice["voice_id"] for voice in voices}
    assert all({"name", "voice_id", "preview_url"} <= voice.keys() for voice in voices)


def xtts_sets_its_options_and_speaks() -> None:
    options = {
        "temperature": "0.75", "speed": "1", "length_penalty": "1.0", "repetition_penalty": "5.0",
        "top_p": "0.85", "top_k": "50", "enable_text_splitting": True, "stream_chunk_size": "100",
    }  # fmt: skip
    assert client.post("/set_tts_settings", json=options).status_code == 200
    body = {"text": TEXT, "speaker_wav": "tone-330", "language": "en"}
    assert 1.1 < length_of(client.post("/tts_to_audio/", json=body).content) < 1.5


def xtts_streams_to_its_player() -> None:
    query = {"text": TEXT, "speaker_wav": "tone-330", "language": "en"}
    answer = client.get("/tts_stream/", params=query)
    assert answer.headers["content-type"] == "audio/x-wav"
    assert 1.1 < length_of(answer.content) < 1.5


def openai_compatible_speaks(key: str = KEY, **fields: Any) -> None:
    body = {"input": TEXT, "response_format": "mp3", "voice": "alloy", "speed": 1, "model": "tts-1", **fields}
    answer = httpx.post(f"{URL}/v1/audio/speech", json=body, headers={"Authorization": f"Bearer {key}"})
    answer.raise_for_status()
    assert answer.content[:2] == b"\xff\xf3", answer.content[:2]


def an_interruption_does_not_reach_the_next_answer() -> None:
    query = {"text": TEXT * 100, "speaker_wav": "tone-330", "language": "en"}
    with client.stream("GET", "/tts_stream/", params=query) as answer:
        next(answer.iter_bytes(512))
    xtts_streams_to_its_player()


def errors_have_a_status_and_a_text() -> None:
    answer = client.post("/tts_to_audio/", json={"text": TEXT, "speaker_wav": "nobody", "language": "en"})
    assert answer.is_error and "nobody" in answer.text, answer.text
    try:
        openai_compatible_speaks("wrong")
    except httpx.HTTPStatusError as error:
        assert error.response.status_code == 401 and error.response.text
        return
    raise AssertionError("a wrong key was accepted")


if __name__ == "__main__":
    run_cases(
        "httpx",
        xtts_lists_speakers_and_plays_one,
        xtts_sets_its_options_and_speaks,
        xtts_streams_to_its_player,
        openai_compatible_speaks,
        an_interruption_does_not_reach_the_next_answer,
        errors_have_a_status_and_a_text,
    )
