"""APIs of one route: Coqui TTS's server, Piper's, LocalAI, and Vapi's custom voice."""

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from shared.gateways.running_gateway import ask_gateway
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope

TEXT = "One two three."


def samples_of(wav: bytes) -> tuple[int, np.ndarray]:
    """The rate and samples of a complete WAV file."""
    with wave.open(io.BytesIO(wav)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return file.getframerate(), samples


@pytest.mark.parametrize(
    ("method", "request_of"),
    [
        ("GET", {"params": {"text": TEXT, "speaker_id": "tone-330", "language_id": "", "style_wav": ""}}),
        ("POST", {"data": {"text": TEXT, "speaker_id": "tone-330"}}),
        ("POST", {"params": {"text": TEXT, "speaker_id": "tone-330"}}),
        ("GET", {"headers": {"text": TEXT, "speaker-id": "tone-330"}}),
    ],
)
def test_coquis_server_takes_a_text_in_a_query_a_form_or_headers(
    run_every_api: Any, method: str, request_of: dict[str, Any]
) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.request(method, "/api/tts", **request_of)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
        rate, samples = samples_of(answer.content)
        assert len(samples) / rate == pytest.approx(3 * WORD_S, abs=0.1)
        assert pitch_of(samples[: rate // 5], rate) == pytest.approx(330, abs=5)

    run_every_api(test)


def test_pipers_server_takes_a_json_object(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        body = {"text": TEXT, "voice": "tone-330", "noise_scale": 0.667, "speaker_id": None}
        answer = await served.client.post("/synthesize", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
        rate, samples = samples_of(answer.content)
        assert pitch_of(samples[: rate // 5], rate) == pytest.approx(330, abs=5)
        slow = await served.client.post("/synthesize", json={**body, "length_scale": 2.5})
        assert len(samples_of(slow.content)[1]) > 1.15 * len(samples)  # the stand-in renders one speed

    run_every_api(test)


@pytest.mark.parametrize("name", [{"model": "tone-330"}, {"model": "tts", "voice": "tone-330"}])
def test_localai_takes_the_name_of_a_voice_as_model_or_voice(
    run_every_api: Any, name: dict[str, str]
) -> None:
    async def test(served: Any) -> None:
        body = {"input": TEXT, "backend": "piper", **name}
        answer = await served.client.post("/localai/tts", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
        rate, samples = samples_of(answer.content)
        assert len(samples) / rate == pytest.approx(3 * WORD_S, abs=0.1)
        assert pitch_of(samples[: rate // 5], rate) == pytest.approx(330, abs=5)

    run_every_api(test)


def test_localai_streams_in_another_format(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        body = {"input": TEXT, "stream": True, "response_format": "pcm", "sample_rate": 16_000}
        answer = await served.client.post("/localai/tts", json=body)
        assert "content-length" not in answer.headers
        assert len(answer.content) / 2 / 16_000 == pytest.approx(3 * WORD_S, abs=0.1)

    run_every_api(test)


def test_vapi_hears_raw_samples_at_its_rate(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        message = {"type": "voice-request", "text": TEXT, "sampleRate": 16_000, "voiceId": "tone-330"}
        answer = await served.client.post("/vapi/tts", json={"message": {**message, "call": {"id": "1"}}})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/raw")
        assert len(answer.content) / 2 / 16_000 == pytest.approx(3 * WORD_S, abs=0.1)
        other = {"message": {**message, "type": "status-update"}}
        assert (await served.client.post("/vapi/tts", json=other)).status_code == 400

    run_every_api(test)


def test_faults_are_answered_with_an_error_and_vapis_secret_is_a_key(tmp_path: Path) -> None:
    key = KeysFile(tmp_path / "keys.json").add("phones", (Scope.SPEAK,), KeyLimits())
    message = {"type": "voice-request", "text": TEXT}

    async def questions(client: Any) -> None:
        refused = await client.post("/vapi/tts", json={"message": message})
        assert (refused.status_code, list(refused.json())) == (401, ["error"])
        secret = {"X-VAPI-SECRET": key}
        assert (await client.post("/vapi/tts", json={"message": message}, headers=secret)).status_code == 200
        client.headers["x-api-key"] = key
        faults = [
            await client.get("/api/tts"),
            await client.post("/synthesize", json={"text": ""}),
            await client.post("/localai/tts", json={"input": ""}),
            await client.post("/localai/tts", json={"input": TEXT, "sample_rate": 4_000}),
            await client.post("/synthesize", json={"text": TEXT, "length_scale": 9}),
            await client.post("/vapi/tts", json={"message": {**message, "sampleRate": 4_000}}),
        ]
        assert [(fault.status_code, list(fault.json())) for fault in faults] == [(400, ["error"])] * 6
        nobody = await client.get("/api/tts", params={"text": TEXT, "speaker_id": "nobody"})
        assert (nobody.status_code, "nobody" in nobody.json()["error"]) == (404, True)

    ask_gateway(questions, access_keys_file=tmp_path / "keys.json")
