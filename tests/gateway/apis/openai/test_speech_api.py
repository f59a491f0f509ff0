"""OpenAI's speech API on a real socket: what is answered, how errors look, and who may hold up whom."""

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import pytest

from shared.event_loop import until
from shared.standin_backend import WORD_S
from shared.tones import pitch_of
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.voice_registry import OPENAI_VOICE_NAMES

TIMEOUT_S = 30.0
SIX_WORDS = "One two three four five six."


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error, if its shape is OpenAI's to the letter."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"].startswith("req_")
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


def test_pcm_is_24_khz_mono_without_a_header_and_streamed(run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post()
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "audio/pcm"
        assert answer.headers["x-request-id"].startswith("req_")
        assert "content-length" not in answer.headers
        samples = np.frombuffer(answer.content, "<i2")
        assert len(samples) / 24_000 == pytest.approx(6 * WORD_S + 0.02, abs=0.001)
        assert pitch_of(answer.content) == pytest.approx(440, abs=2)

    run(test)


@pytest.mark.parametrize(
    ("codec", "media_type", "container"),
    [
        (None, "audio/mpeg", "mp3"),
        ("mp3", "audio/mpeg", "mp3"),
        ("opus", "audio/ogg", "ogg"),
        ("aac", "audio/aac", "aac"),
        ("flac", "audio/flac", "flac"),
        ("wav", "audio/wav", "wav"),
    ],
)
def test_every_format_is_what_its_media_type_says(
    codec: str | None, media_type: str, container: str, run: Any
) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(response_format=codec)
        assert answer.headers["content-type"] == media_type
        with av.open(io.BytesIO(answer.content), format=container) as file:
            seconds = sum(frame.samples / frame.sample_rate for frame in file.decode(audio=0))
        assert seconds == pytest.approx(6 * WORD_S, abs=0.15)

    run(test)


@pytest.mark.parametrize("voice", ["ash", {"id": "tone-330"}, "tone-330"])
def test_the_voice_is_the_one_asked_for(voice: object, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(voice=voice)
        assert pitch_of(answer.content) == pytest.approx(330, abs=2)

    run(test)


@pytest.mark.parametrize("name", OPENAI_VOICE_NAMES)
def test_every_name_of_openais_speaks(name: str, run: Any) -> None:
    async def test(served: Any) -> None:
        assert (await served.post(voice=name, input="Hi.")).status_code == 200

    run(test)


@pytest.mark.parametrize("speed", [0.25, 4.0])
def test_speed_may_be_a_quarter_to_four(speed: float, run: Any) -> None:
    async def test(served: Any) -> None:
        seconds = len((await served.post(speed=speed)).content) / 48_000
        rest = {0.25: 0.5, 4.0: 2.0}[speed]  # the stand-in itself has one speed
        assert seconds == pytest.approx((6 * WORD_S + 0.02) / rest, abs=0.1)

    run(test)


def test_other_fields_of_other_clients_are_honoured_or_ignored(run: Any) -> None:
    async def test(served: Any) -> None:
        usual = (await served.post()).content
        ignored = await served.post(
            stream=True, lang_code="a", normalization_options={}, instructions="Sing."
        )
        assert ignored.content == usual
        eighth = await served.post(sample_rate=8_000, volume_multiplier=0.5)
        assert len(eighth.content) == pytest.approx(len(usual) / 3, abs=4)

    run(test)


def events_of(content: str) -> list[dict[str, Any]]:
    lines = [line for line in content.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) for line in lines]


def test_server_sent_events_carry_the_same_audio_and_end_with_what_was_used(run: Any) -> None:
    async def test(served: Any) -> None:
        usual = (await served.post()).content
        answer = await served.post(stream_format="sse")
        assert answer.headers["content-type"] == "text/event-stream"
        *deltas, done = events_of(answer.text)
        assert {event["type"] for event in deltas} == {"speech.audio.delta"}
        assert b"".join(base64.b64decode(event["audio"]) for event in deltas) == usual
        assert done["type"] == "speech.audio.done"
        assert done["usage"]["input_tokens"] == len(SIX_WORDS)
        assert done["usage"]["total_tokens"] == len(SIX_WORDS) + done["usage"]["output_tokens"]

    run(test)


@pytest.mark.parametrize(
    ("fields", "status", "kind", "param", "code"),
    [
        ({"input": ""}, 400, "invalid_request_error", "input", "string_below_min_length"),
        ({"input": "a" * 4_097}, 400, "invalid_request_error", "input", "string_above_max_length"),
        ({"speed": 5}, 400, "invalid_request_error", "speed", "decimal_above_max_value"),
        ({"response_format": "ogg"}, 400, "invalid_request_error", "response_format", "invalid_value"),
        ({"voice": "anna"}, 400, "invalid_request_error", "voice", "voice_not_found"),
        ({"voice": {"id": "anna"}}, 400, "invalid_request_error", "voice", "voice_not_found"),
        ({"model": "whisper-1"}, 404, "invalid_request_error", "model", "model_not_found"),
    ],
)
def test_what_is_wrong_is_answered_in_openais_words(
    fields: dict[str, Any], status: int, kind: str, param: str, code: str, run: Any
) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(**fields)
        error = error_of(answer)
        assert (answer.status_code, error["type"], error["param"], error["code"]) == (
            status,
            kind,
            param,
            code,
        )
        assert served.backend.steps == 0

    run(test)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"input": NaN}', b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_answered_in_openais_words(body: bytes, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post("/v1/audio/speech", content=body)
        assert answer.status_code == 400
        assert error_of(answer)["type"] == "invalid_request_error"

    run(test)


def test_a_body_without_end_is_not_read_to_its_end(run: Any) -> None:
    async def test(served: Any) -> None:
        sent = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 2**20
                yield b"x" * 2**20

        try:
            answer = await served.client.post("/v1/audio/speech", content=endless())
            assert answer.status_code == 413
        except httpx.TransportError:
            pass  # the answer came while the client was still sending, and the server closed
        assert sent < 2**26

    run(test)


def keys(tmp_path: Path, *scopes: Scope, **limits: Any) -> tuple[AccessControl, str]:
    file = KeysFile(tmp_path / "keys.json")
    key = file.add("test", scopes or (Scope.SPEAK,), KeyLimits(**limits))
    return AccessControl(file), key


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"}, {"X-API-Key": "a b"}]
)
def test_no_key_and_a_wrong_key_are_answered_401(headers: dict[str, str], tmp_path: Path, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(headers)
        assert answer.status_code == 401
        assert error_of(answer)["code"] == "invalid_api_key"
        listed = await served.client.get("/v1/models", headers=headers)
        assert (listed.status_code, error_of(listed)["code"]) == (401, "invalid_api_key")

    run(test, access=keys(tmp_path)[0])


def test_a_key_without_the_scope_is_answered_403_and_a_good_one_speaks(tmp_path: Path, run: Any) -> None:
    access, key = keys(tmp_path, Scope.CALLS)

    async def test(served: Any) -> None:
        answer = await served.post({"Authorization": f"Bearer {key}"})
        assert (answer.status_code, error_of(answer)["code"]) == (403, "insufficient_permissions")

    run(test, access=access)


def test_limits_of_a_key_are_answered_429_with_a_time(tmp_path: Path, run: Any) -> None:
    access, key = keys(tmp_path, requests_per_minute=2)

    async def test(served: Any) -> None:
        headers = {"Authorization": f"bearer {key}"}
        assert (await served.post(headers, input="Hi.")).status_code == 200
        assert (await served.post(headers, input="Hi.")).status_code == 200
        answer = await served.post(headers, input="Hi.")
        assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(answer.headers["retry-after"]) <= 30

    run(test, access=access)


def test_characters_of_a_key_are_limited_too(tmp_path: Path, run: Any) -> None:
    access, key = keys(tmp_path, characters_per_minute=100)

    async def test(served: Any) -> None:
        answer = await served.post({"Authorization": f"Bearer {key}"}, input="a" * 101)
        assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limit_exceeded")

    run(test, access=access)


def test_a_full_house_is_answered_503_with_a_time(house: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post()
        assert answer.status_code == 503
        assert error_of(answer)["type"] == "server_error"
        assert int(answer.headers["retry-after"]) >= 1

    async def with_one_stream_open() -> None:
        async with asyncio.timeout(TIMEOUT_S), house(max_streams=1) as served:
            async with served.api.engine.stream():
                await test(served)
            assert (await served.post()).status_code == 200

    asyncio.run(with_one_stream_open())


def test_a_voice_that_fails_before_its_first_sound_is_answered_500(run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post()
        assert answer.status_code == 500
        assert error_of(answer)["type"] == "server_error"

    run(test, broken_after=0)


def test_a_voice_that_fails_later_ends_the_events_with_an_error(run: Any) -> None:
    async def test(served: Any) -> None:
        *_, last = events_of((await served.post(stream_format="sse")).text)
        assert last["type"] == "speech.audio.error"
        assert last["error"]["type"] == "server_error"

    run(test, broken_after=3)


def test_a_voice_that_fails_later_cuts_the_audio_off_so_that_the_client_knows(run: Any) -> None:
    async def test(served: Any) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await served.post()

    run(test, broken_after=3)


def test_models_are_listed_and_looked_up(run: Any) -> None:
    async def test(served: Any) -> None:
        listed = (await served.client.get("/v1/models")).json()
        assert listed["object"] == "list"
        ids = [model["id"] for model in listed["data"]]
        assert {"vivavoce", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"} <= set(ids)
        for model in ids:
            assert (await served.client.get(f"/v1/models/{model}")).json()["id"] == model
        missing = await served.client.get("/v1/models/gpt-4")
        assert (missing.status_code, error_of(missing)["code"]) == (404, "model_not_found")

    run(test)


async def leave_after_first_audio(served: Any, **fields: Any) -> None:
    """Ask for a long text, and leave at the first byte of audio."""
    body = {"input": "word " * 800, "response_format": "pcm", **fields}
    async with served.client.stream("POST", "/v1/audio/speech", json=body) as answer:
        async for _ in answer.aiter_bytes():
            break


@pytest.mark.parametrize("fields", [{}, {"response_format": "mp3"}, {"stream_format": "sse"}])
def test_a_client_that_leaves_frees_the_voice_within_a_step(fields: dict[str, Any], run: Any) -> None:
    async def test(served: Any) -> None:
        await leave_after_first_audio(served, **fields)
        await until(lambda: served.backend.open_slots == 0)
        steps = served.backend.steps
        await asyncio.sleep(0.1)
        assert served.backend.steps == steps < 200
        await until(lambda: not served.api.active_responses)

    run(test, step_s=0.02)


def test_a_client_that_stops_reading_stops_its_voice_and_nobody_elses(run: Any) -> None:
    async def test(served: Any) -> None:
        reader, writer = await asyncio.open_connection(*served.address, limit=2**14)
        body = json.dumps({"input": "word " * 800, "response_format": "pcm"}).encode()
        head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await reader.readuntil(b"\r\n\r\n")
        before = -1
        while before != served.backend.steps:  # until what lies between is full
            before = served.backend.steps
            await asyncio.sleep(0.3)
        assert before < 799
        assert served.backend.open_slots == 1
        assert (await served.post()).status_code == 200
        writer.close()
        await until(lambda: served.backend.open_slots == 0)

    run(test)


def test_requests_side_by_side_are_not_mixed_up(run: Any) -> None:
    async def test(served: Any) -> None:
        voices = ["tone-440", "tone-330"] * 20
        answers = await asyncio.gather(*(served.post(voice=voice) for voice in voices))
        for voice, answer in zip(voices, answers, strict=True):
            pitch = pitch_of(answer.content)
            assert pitch == pytest.approx(float(voice.removeprefix("tone-")), abs=2)

    run(test)


def test_a_server_that_ends_takes_nothing_new_and_finishes_what_is_under_way(run: Any) -> None:
    async def test(served: Any) -> None:
        under_way = asyncio.create_task(served.post())
        await until(lambda: bool(served.api.active_responses))
        await served.api.finish(TIMEOUT_S)
        assert (await under_way).status_code == 200
        refused = await served.post()
        assert (refused.status_code, error_of(refused)["code"]) == (503, "overloaded_shutting_down")

    run(test)
