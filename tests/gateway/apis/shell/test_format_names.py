"""Every API takes the names of audio formats in upper and in lower case."""

from typing import Any

import pytest

RAW = {"container": "RAW", "encoding": "PCM_S16LE", "sample_rate": 24_000}
VOICE = {"mode": "id", "id": "tone-440"}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("/v1/audio/speech", {"input": "One.", "response_format": "MP3"}),
    "ogg": ("/v1/audio/speech", {"input": "One.", "response_format": "OGG"}),
    "captions": ("/dev/captioned_speech", {"input": "One.", "response_format": "Mp3"}),
    "cartesia": (
        "/tts/bytes",
        {"model_id": "sonic", "transcript": "One.", "voice": VOICE, "output_format": RAW},
    ),
    "elevenlabs": ("/v1/text-to-speech/tone-440?output_format=PCM_24000", {"text": "One."}),
    "deepgram": ("/v1/speak?encoding=LINEAR16&container=WAV", {"text": "One."}),
    "inworld": (
        "/tts/v1/voice",
        {"text": "One.", "voiceId": "tone-440", "modelId": "m", "audioConfig": {"audioEncoding": "mp3"}},
    ),
    "ray serve": ("/v1/model/cosyvoice/tts", {"text": "One.", "format": "WAV"}),
    "pai": ("/api/v1/audio/speech", {"input": {"text": "One.", "output_format": "MP3"}, "stream": False}),
}


@pytest.mark.parametrize(("path", "body"), REQUESTS.values(), ids=REQUESTS)
def test_the_name_of_a_format_may_be_in_upper_or_lower_case(
    run_every_api: Any, path: str, body: dict[str, Any]
) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(path, json=body)
        assert answer.status_code == 200, answer.text

    run_every_api(test)


def test_ogg_is_opus(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        body = {"input": "One.", "response_format": "ogg", "leading_silence_ms": 100}
        answer = await served.client.post("/v1/audio/speech", json=body)
        assert (answer.headers["content-type"], answer.content[:4]) == ("audio/ogg", b"OggS")

    run_every_api(test)
