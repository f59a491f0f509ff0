"""The CosyVoice Ray Serve API: the requests of its document, batches, recordings by path, and errors."""

import base64
import io
from pathlib import Path
from typing import Any

import av
import pytest

from shared.audio.recordings import as_data_url, recording
from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.shell.speech_server import SpeechApiPolicy
from vivavoce.tts_engine.stream_request import DeliveryMode
from vivavoce.tts_engine.voices.store import VoiceStore

ROOT = "/v1/model/cosyvoice"
TEXT = "One two three."
PCM = {"text": TEXT, "format": "pcm"}


def seconds_of_mp3(data: bytes) -> float:
    with av.open(io.BytesIO(data), format="mp3") as file:
        assert file.streams.audio[0].rate == 24_000
        return sum(frame.samples for frame in file.decode(audio=0)) / 24_000


@pytest.mark.parametrize("stream", [False, True])
def test_the_documents_request_is_answered_with_mp3(run_every_api: Any, stream: bool) -> None:
    async def test(served: Any) -> None:
        body = {"text": TEXT, "voice_type": "qwen", "speed": 1.0, "stream": stream}
        answer = await served.client.post(f"{ROOT}/tts", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/mpeg")
        assert ("content-length" in answer.headers) != stream
        assert seconds_of_mp3(answer.content) == pytest.approx(3 * WORD_S, abs=0.15)

    run_every_api(test)


def test_an_instruction_and_sampling_reach_the_voice(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        body = {"instruction": "Softly.", "temperature": "0.7", "top_k": 20, "top_p": 0.9, "seed": 7, **PCM}
        answer = await served.client.post(f"{ROOT}/instruct", json={**body, "voice_type": "tone-330"})
        assert pitch_of(answer.content) == pytest.approx(330, rel=0.02)
        request = served.backend.requests[-1]
        delivery = request.delivery
        assert (delivery.instruction, delivery.temperature, delivery.top_k, delivery.top_p) == (
            "Softly.", 0.7, 20, 0.9,
        )  # fmt: skip
        assert request.seed == 7

    run_every_api(test)


def test_recordings_are_files_urls_and_names_in_the_folder(
    run_every_api: Any, store: VoiceStore, tmp_path: Path
) -> None:
    (tmp_path / "recordings").mkdir()
    (tmp_path / "recordings" / "anna.wav").write_bytes(recording())
    (tmp_path / "secret.wav").write_bytes(recording())
    (tmp_path / "recordings" / "link.wav").symlink_to(tmp_path / "secret.wav")

    async def test(served: Any) -> None:
        zero_shot = {**PCM, "reference_text": "Words.", "stream": "true"}
        files = {"reference_audio": ("anna.wav", recording())}
        answers = [await served.client.post(f"{ROOT}/zero_shot", data=zero_shot, files=files)]
        assert served.backend.requests[-1].delivery.mode is DeliveryMode.ZERO_SHOT
        for name in (as_data_url(recording()), "anna.wav"):
            body = {**PCM, "reference_audio": name}
            answers.append(await served.client.post(f"{ROOT}/cross_lingual", json=body))
        assert served.backend.requests[-1].delivery.mode is DeliveryMode.CROSS_LINGUAL
        for answer in answers:
            assert answer.status_code == 200, answer.text
            assert pitch_of(answer.content) == pytest.approx(220, rel=0.02)
        for name, status in (
            (str(tmp_path / "secret.wav"), 400), ("../secret.wav", 400), ("link.wav", 400),
            ("/etc/passwd", 400), ("nobody.wav", 404), ("file:///etc/passwd", 404),
            ("http://127.0.0.1/", 400),
        ):  # fmt: skip
            body = {**PCM, "reference_audio": name}
            answer = await served.client.post(f"{ROOT}/cross_lingual", json=body)
            assert answer.status_code == status, (name, answer.text)

    run_every_api(test, store=store, policy=SpeechApiPolicy(exchange_folder=tmp_path))


def test_a_batch_has_a_status_for_each_item(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        items = [
            {"text": TEXT, "voice_type": "tone-330"},
            {"text": TEXT, "voice_type": "nobody"},
            {"mode": "instruct", "text": TEXT},
            {"mode": "sing", "text": TEXT},
            {"mode": "cross_lingual", "text": TEXT, "reference_audio": as_data_url(recording())},
            {"text": TEXT, "format": "wav"},
            {"mode": [], "text": TEXT},
        ]
        answer = await served.client.post(f"{ROOT}/batch", json={"items": items, "format": "pcm"})
        results = answer.json()["results"]
        assert answer.status_code == 207
        assert [result["index"] for result in results] == list(range(7))
        assert [result["status"] for result in results] == [200, 404, 400, 400, 400, 200, 400]
        assert pitch_of(base64.b64decode(results[0]["audio"])) == pytest.approx(330, rel=0.02)
        assert results[2]["field"] == "instruction" and results[3]["field"] == "mode"
        assert results[5]["content_type"] == "audio/wav"
        assert served.backend.open_slots == 0
        for wrong in ([], [{"text": TEXT}] * 33, [{"text": "a" * 4_000}] * 5):
            answer = await served.client.post(f"{ROOT}/batch", json={"items": wrong})
            assert (answer.status_code, answer.json()["field"]) == (400, "items")

    run_every_api(test)


def test_items_of_a_batch_count_as_requests_of_their_key(run_every_api: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("anna", (Scope.SPEAK,), KeyLimits(requests_per_minute=2))

    async def test(served: Any) -> None:
        headers = {"x-api-key": key}
        body = {"items": [{**PCM}] * 3}
        answer = await served.client.post(f"{ROOT}/batch", json=body, headers=headers)
        assert sorted(result["status"] for result in answer.json()["results"]) == [200, 200, 429]
        answer = await served.client.post(f"{ROOT}/tts", json=PCM, headers=headers)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1

    run_every_api(test, access=AccessControl(keys))


@pytest.mark.parametrize(
    ("name", "body", "status", "field"),
    [
        ("tts", {}, 400, "text"),
        ("tts", {"text": TEXT, "speed": 9}, 400, "speed"),
        ("tts", {"text": TEXT, "format": "midi"}, 400, "format"),
        ("tts", {"text": TEXT, "sample_rate": 12_345}, 400, None),
        ("tts", {"text": TEXT, "voice_type": "nobody"}, 404, None),
        ("tts", {"text": TEXT, "top_p": 0}, 400, "top_p"),
        ("instruct", {"text": TEXT}, 400, "instruction"),
        ("zero_shot", {"text": TEXT}, 400, "body"),
        ("cross_lingual", {"text": TEXT, "reference_audio_id": "nobody"}, 404, None),
        ("cross_lingual", {"text": TEXT, "reference_audio": "x.wav"}, 400, None),
    ],
)
def test_errors_name_the_field(
    run_every_api: Any, name: str, body: dict[str, Any], status: int, field: str | None
) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(f"{ROOT}/{name}", json=body)
        assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text
        assert answer.json()["error"]

    run_every_api(test)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_health_check_answers_both_methods(run_every_api: Any, method: str) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.request(method, f"{ROOT}/healthcheck")
        assert (answer.status_code, answer.json()) == (200, {"status": "healthy"})
        answer = await served.client.get(f"{ROOT}/nothing")
        assert (answer.status_code, set(answer.json())) == (404, {"error", "field"})

    run_every_api(test)
