"""Cartesia's HTTP endpoints: formats, events, voices and errors."""

import base64
import io
import json
import struct
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from shared.engine.standin_backend import WORD_S
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

BODY = {
    "model_id": "sonic-3",
    "transcript": "One two three.",
    "voice": {"mode": "id", "id": "tone-440"},
    "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000},
}
# RFC 2361
FORMAT_TAGS = {"pcm_s16le": 1, "pcm_f32le": 3, "pcm_alaw": 6, "pcm_mulaw": 7}


def output(container: str, **fields: Any) -> dict[str, Any]:
    return {"output_format": {"container": container, **fields}}


@pytest.mark.parametrize("encoding", FORMAT_TAGS)
def test_a_wav_stream_of_every_encoding_is_read_by_ffmpeg(run: Any, encoding: str) -> None:
    async def test(served: Any) -> None:
        body = BODY | output("wav", encoding=encoding, sample_rate=16_000)
        answer = await served.client.post("/tts/bytes", json=body)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/wav")
        assert struct.unpack_from("<HHI", answer.content, 20) == (FORMAT_TAGS[encoding], 1, 16_000)
        with av.open(io.BytesIO(answer.content)) as container:
            samples = np.concatenate([frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)])
        assert len(samples) / 16_000 == pytest.approx(3 * WORD_S, abs=0.1)
        peak = np.abs(samples.astype(float)).max() / (32_768 if samples.dtype == np.int16 else 1)
        assert peak == pytest.approx(0.25, rel=0.1)

    run(test)


def test_mp3_has_the_bit_rate_that_was_asked_for(run: Any) -> None:
    async def test(served: Any) -> None:
        body = BODY | output("mp3", sample_rate=44_100, bit_rate=64_000)
        answer = await served.client.post("/tts/bytes", json=body)
        assert answer.headers["content-type"] == "audio/mpeg"
        with av.open(io.BytesIO(answer.content)) as container:
            stream = container.streams.audio[0]
            assert (stream.rate, stream.bit_rate) == (44_100, 64_000)

    run(test)


def test_events_have_audio_words_and_an_end(run: Any) -> None:
    async def test(served: Any) -> None:
        body = BODY | {"add_timestamps": True, "context_id": "a"}
        answer = await served.client.post("/tts/sse", json=body)
        assert answer.headers["content-type"] == "text/event-stream"
        blocks = [block.split("\n") for block in answer.text.strip().split("\n\n")]
        events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
        assert [name.removeprefix("event: ") for name, _ in blocks] == [event["type"] for event in events]
        assert {event["context_id"] for event in events} == {"a"}
        audio = b"".join(base64.b64decode(event["data"]) for event in events if event["type"] == "chunk")
        raw = await served.client.post("/tts/bytes", json=BODY)
        assert audio == raw.content
        words = [
            word
            for event in events
            if event["type"] == "timestamps"
            for word in event["word_timestamps"]["words"]
        ]
        assert words == ["One", "two", "three."]
        assert events[-1] == {"type": "done", "done": True, "status_code": 200, "context_id": "a"}

    run(test)


def test_words_of_an_ssml_document_are_those_of_its_text(run: Any) -> None:
    async def test(served: Any) -> None:
        document = '<speak>One <break time="1s"/>two, <sub alias="three">3</sub>.</speak>'
        body = BODY | {"transcript": document, "add_timestamps": True}
        answer = await served.client.post("/tts/sse", json=body)
        events = [json.loads(block.split("data: ")[1]) for block in answer.text.strip().split("\n\n")]
        times = [event["word_timestamps"] for event in events if event["type"] == "timestamps"]
        assert [word for one in times for word in one["words"]] == ["One", "two,", "3."]

    run(test)


def test_speed_and_volume_are_applied(run: Any) -> None:
    async def test(served: Any) -> None:
        usual = (await served.client.post("/tts/bytes", json=BODY)).content
        louder = BODY | {"generation_config": {"volume": 2.0, "emotion": "happy"}}
        louder_pcm = (await served.client.post("/tts/bytes", json=louder)).content
        ratio = np.abs(np.frombuffer(louder_pcm, "<i2")).max() / np.abs(np.frombuffer(usual, "<i2")).max()
        assert ratio == pytest.approx(2.0, rel=0.02)
        for slower in (
            {"generation_config": {"speed": 0.4}},
            {"speed": "slow", "generation_config": {"speed": 0.5}},
        ):
            assert len((await served.client.post("/tts/bytes", json=BODY | slower)).content) > len(usual)

    run(test)


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"voice": "nobody"}, 404, "voice_not_found"),
        ({"transcript": "\u4f60\u597d"}, 400, "invalid_request"),
        ({"transcript": 5}, 400, "invalid_request"),
        (output("ogg"), 400, "invalid_request"),
        (output("mp3", sample_rate=8_000, bit_rate=192_000), 400, "invalid_request"),
        ({"transcript": "x" * MAX_MESSAGE_BYTES}, 413, "request_too_large"),
    ],
)
def test_errors_have_cartesias_fields(run: Any, fields: dict[str, Any], status: int, code: str) -> None:
    async def test(served: Any) -> None:
        for path in ("/tts/bytes", "/tts/sse"):
            answer = await served.client.post(path, json=BODY | fields)
            error = answer.json()
            assert (answer.status_code, error["status_code"], error["error_code"]) == (status, status, code)
            assert error["title"] and error["message"] and error["request_id"].startswith("req_")

    run(test)


def test_events_refuse_a_container(run: Any) -> None:
    async def test(served: Any) -> None:
        body = BODY | output("mp3", sample_rate=24_000)
        assert (await served.client.post("/tts/sse", json=body)).status_code == 400

    run(test)


def test_a_stream_of_events_tells_an_error_and_a_body_of_audio_stays_incomplete(run: Any) -> None:
    async def test(served: Any) -> None:
        body = BODY | {"transcript": "One two three four five six. " * 20}
        answer = await served.client.post("/tts/sse", json=body)
        error = json.loads(answer.text.strip().split("\n\n")[-1].split("data: ")[1])
        assert (error["type"], error["status_code"], error["done"]) == ("error", 500, True)

    run(test, broken_after=3)


def test_voices_are_listed_and_described(run: Any) -> None:
    async def test(served: Any) -> None:
        listed = (await served.client.get("/voices")).json()
        assert [voice["id"] for voice in listed["data"]] == ["tone-440", "tone-330"]
        assert (listed["has_more"], listed["next_page"]) == (False, None)
        assert (await served.client.get("/voices/tone-330")).json() == listed["data"][1]
        assert (await served.client.get("/voices/nobody")).json()["error_code"] == "voice_not_found"
        first = (await served.client.get("/voices?limit=1")).json()
        assert ([one["id"] for one in first["data"]], first["has_more"]) == (["tone-440"], True)
        for query, ids in (
            ("starting_after=tone-440", ["tone-330"]),
            ("starting_after=tone-330", []),
            ("ending_before=tone-330", ["tone-440"]),
            ("q=330", ["tone-330"]),
        ):
            page = (await served.client.get(f"/voices?{query}")).json()
            assert ([one["id"] for one in page["data"]], page["has_more"]) == (ids, False)
        assert (await served.client.get("/voices?limit=0")).status_code == 400
        assert (await served.client.get("/voices?starting_after=nobody")).status_code == 404
        assert (await served.client.get("/tts/nothing")).json()["error_code"] == "not_found"

    run(test)


def test_a_key_is_needed_where_there_are_keys(run: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("client", (Scope.SPEAK,), KeyLimits())

    async def test(served: Any) -> None:
        for method, path in (("GET", "/voices"), ("POST", "/tts/bytes"), ("POST", "/tts/sse")):
            refused = await served.client.request(method, path, json=BODY)
            assert (refused.status_code, refused.json()["error_code"]) == (401, "unauthorized")
            headers = {"Authorization": f"Bearer {key}"}
            assert (await served.client.request(method, path, json=BODY, headers=headers)).is_success

    run(test, access=AccessControl(keys))
