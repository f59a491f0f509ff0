"""PAI's HTTP API: recordings, speech as its published client reads it, and errors."""

import base64
import io
import json
import wave
from typing import Any

import pytest

from shared.audio.recordings import recording
from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from vivavoce.tts_engine.stream_request import DeliveryMode
from vivavoce.tts_engine.voices.store import VoiceStore

RECORDINGS = "/api/v1/audio/reference_audio"
SPEECH = "/api/v1/audio/speech"
TEXT = "One two three."


def events_of(body: str) -> list[dict[str, Any]]:
    """Read events as the published client does: without a check of any field."""
    events = [json.loads(line.removeprefix("data: ")) for line in body.split("\n\n") if line]
    for event in events:
        event["error"], event["metrics"]["speech_len"], event["output"]["audio"]["data"]
    return events


def audio_of(events: list[dict[str, Any]]) -> bytes:
    return b"".join(base64.b64decode(event["output"]["audio"]["data"]) for event in events)


@pytest.mark.parametrize("path", [RECORDINGS, RECORDINGS + "/", "/v1/audio/reference_audio"])
def test_a_recording_is_enrolled_listed_spoken_with_and_deleted(
    run_every_api: Any, store: VoiceStore, path: str
) -> None:
    async def test(served: Any) -> None:
        client = served.client
        files = {"file": ("anna.wav", recording(), "audio/wav")}
        created = (await client.post(path, files=files, data={"text": "Words."})).json()
        assert (created["filename"], created["text"]) == ("anna.wav", "Words.")
        assert isinstance(created["created_at"], int) and created["bytes"] > 0
        second = (await client.post(path, files=files, data={"text": "Other words."})).json()
        assert (await client.get(path)).json() == [second, created]
        assert (await client.get(path, params={"order": "asc", "limit": 1})).json() == [created]
        one = f"{path.rstrip('/')}/{created['id']}"
        assert (await client.get(one)).json() == created
        body = {
            "model": "cosyvoice-v2",
            "input": {
                "mode": "fast_replication", "text": TEXT, "reference_audio_id": created["id"],
                "sample_rate": 24_000, "bit_rate": "192k", "volume": 1.0, "speed": 1.0,
                "output_format": "pcm", "debug": False,
            },
            "stream": True,
        }  # fmt: skip
        answer = await client.post(SPEECH + "/", json=body)
        assert answer.headers["content-type"] == "text/event-stream"
        events = events_of(answer.text)
        assert pitch_of(audio_of(events)) == pytest.approx(220, rel=0.02)
        assert [event["output"]["finish_reason"] for event in events] == [None] * (len(events) - 1) + ["stop"]
        assert sum(event["metrics"]["speech_len"] for event in events) >= 3 * WORD_S
        deleted = (await client.delete(one)).json()
        assert deleted == {
            "code": "OK", "message": f"reference audio: {created['id']} deleted.", "data": {},
        }  # fmt: skip
        assert (await client.get(one)).status_code == 404
        assert (await client.post(SPEECH, json=body)).status_code == 404

    run_every_api(test, store=store)


@pytest.mark.parametrize("output_format", ["wav", "mp3", "pcm"])
def test_a_speech_without_a_stream_is_one_object(run_every_api: Any, output_format: str) -> None:
    async def test(served: Any) -> None:
        body = {"input": {"text": TEXT, "output_format": output_format}, "stream": False}
        answer = (await served.client.post(SPEECH, json=body)).json()
        assert set(answer) == {"output", "request_id", "usage"}
        data = base64.b64decode(answer["output"]["audio"]["data"])
        if output_format == "wav":
            with wave.open(io.BytesIO(data)) as reader:
                assert reader.getnframes() >= 3 * WORD_S * 24_000
        assert len(data) > 5_000 and answer["output"]["finish_reason"] is None

    run_every_api(test)


def test_modes_volume_and_sampling_reach_the_voice(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        loudest = []
        for fields in (
            {"volume": 1.0, "mode": "cross_lingual_replication", "reference_audio_id": "tone-330"},
            {
                "volume": 2.0,
                "mode": "natural_language_replication",
                "instruct": "Softly.",
                "temperature": 0.5,
            },
        ):
            body = {"input": {"text": TEXT, "output_format": "pcm", **fields}}
            pcm = audio_of(events_of((await served.client.post(SPEECH, json=body)).text))
            loudest.append(max(memoryview(pcm).cast("h")))
        deliveries = [request.delivery for request in served.backend.requests[-2:]]
        assert deliveries[0].mode is DeliveryMode.CROSS_LINGUAL
        assert (deliveries[1].instruction, deliveries[1].temperature) == ("Softly.", 0.5)
        assert loudest[1] == pytest.approx(2 * loudest[0], rel=0.02)

    run_every_api(test)


@pytest.mark.parametrize(
    ("fields", "status", "word"),
    [
        ({"text": ""}, 400, "input.text"),
        ({"text": 5}, 400, "input.text"),
        ({"mode": "sing"}, 400, "mode"),
        ({"mode": "natural_language_replication"}, 400, "instruct"),
        ({"reference_audio_id": "nobody"}, 404, "nobody"),
        ({"speed": 3}, 400, "speed"),
        ({"bit_rate": "fast"}, 400, "bit_rate"),
        ({"sample_rate": 12_345}, 400, "sample_rate"),
        ({"temperature": 0}, 400, "temperature"),
        ({"text": "x" * 2**20}, 413, "longer"),
    ],
)
def test_errors_have_a_code_and_a_message(
    run_every_api: Any, fields: dict[str, Any], status: int, word: str
) -> None:
    async def test(served: Any) -> None:
        for stream in (True, False):
            body = {"input": {"text": TEXT, **fields}, "stream": stream}
            answer = await served.client.post(SPEECH, json=body)
            assert (answer.status_code, set(answer.json())) == (status, {"code", "message", "request_id"})
            assert word in answer.json()["message"]

    run_every_api(test)


def test_a_voice_that_fails_ends_the_stream_with_an_error(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        body = {"input": {"text": "One two three four five six.", "output_format": "pcm"}}
        events = events_of((await served.client.post(SPEECH, json=body)).text)
        assert events[-1]["error"]["code"] == "InternalError" and audio_of(events)

    run_every_api(test, broken_after=3)


def test_a_model_that_clones_no_voice_says_so(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        files = {"file": ("anna.wav", recording(), "audio/wav")}
        answer = await served.client.post(RECORDINGS, files=files, data={"text": "Words."})
        assert (answer.status_code, "cannot clone" in answer.json()["message"]) == (400, True)
        answer = await served.client.post(RECORDINGS, data={"text": "Words."})
        assert (answer.status_code, "file" in answer.json()["message"]) == (400, True)

    run_every_api(test)
