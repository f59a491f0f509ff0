"""OpenAI's speech API on a real socket: audio, events, errors, keys, disconnects and shutdown."""

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_args

import av
import httpx
import numpy as np
import pytest

from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from shared.unreadable_texts import UNREADABLE_TEXTS
from vivavoce.adapters.audio.encoders import Codec
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.shell import speech_job
from vivavoce.gateway.voice_registry import OPENAI_VOICE_NAMES

TIMEOUT_S = 30.0
SIX_WORDS = "One two three four five six."


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer whose shape is exactly OpenAI's."""
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
        ("m4a", "audio/mp4", "mp4"),
        ("WebM", "audio/webm", "webm"),
        ("flac", "audio/flac", "flac"),
        ("wav", "audio/wav", "wav"),
    ],
)
def test_every_format_matches_its_media_type(
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
def test_the_named_voice_speaks(voice: object, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(voice=voice)
        assert pitch_of(answer.content) == pytest.approx(330, abs=2)

    run(test)


@pytest.mark.parametrize("name", OPENAI_VOICE_NAMES)
def test_every_voice_name_of_openai_speaks(name: str, run: Any) -> None:
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


def test_fields_of_other_servers_are_honoured_or_ignored(run: Any) -> None:
    async def test(served: Any) -> None:
        normal = (await served.post()).content
        ignored = await served.post(
            stream=True, lang_code="a", normalization_options={}, instructions="Sing."
        )
        assert ignored.content == normal
        eighth = await served.post(sample_rate=8_000, volume_multiplier=0.5)
        assert len(eighth.content) == pytest.approx(len(normal) / 3, abs=4)

    run(test)


def events_of(content: str) -> list[dict[str, Any]]:
    lines = [line for line in content.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line[6:]) for line in lines]


def test_server_sent_events_carry_the_same_audio_and_end_with_the_usage(run: Any) -> None:
    async def test(served: Any) -> None:
        normal = (await served.post()).content
        answer = await served.post(stream_format="sse")
        assert answer.headers["content-type"] == "text/event-stream"
        *deltas, done = events_of(answer.text)
        assert {event["type"] for event in deltas} == {"speech.audio.delta"}
        assert b"".join(base64.b64decode(event["audio"]) for event in deltas) == normal
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
        ({"response_format": "amr"}, 400, "invalid_request_error", "response_format", "invalid_value"),
        ({"voice": "anna"}, 400, "invalid_request_error", "voice", "voice_not_found"),
        ({"voice": {"id": "anna"}}, 400, "invalid_request_error", "voice", "voice_not_found"),
    ],
)
def test_invalid_requests_get_openais_errors(
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
def test_a_body_that_is_not_a_json_object_gets_openais_error(body: bytes, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post("/v1/audio/speech", content=body)
        assert answer.status_code == 400
        assert error_of(answer)["type"] == "invalid_request_error"

    run(test)


def test_an_endless_body_is_read_up_to_the_limit(run: Any) -> None:
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
            pass  # the server answered and closed while the client was sending
        assert sent < 2**26

    run(test)


def access_with_key(tmp_path: Path, *scopes: Scope, **limits: Any) -> tuple[AccessControl, str]:
    file = KeysFile(tmp_path / "keys.json")
    key = file.add("test", scopes or (Scope.SPEAK,), KeyLimits(**limits))
    return AccessControl(file), key


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer"}, {"X-API-Key": "a b"}]
)
def test_a_missing_and_a_wrong_key_get_401(headers: dict[str, str], tmp_path: Path, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(headers)
        assert answer.status_code == 401
        assert error_of(answer)["code"] == "invalid_api_key"
        listed = await served.client.get("/v1/models", headers=headers)
        assert (listed.status_code, error_of(listed)["code"]) == (401, "invalid_api_key")

    run(test, access=access_with_key(tmp_path)[0])


def test_a_key_without_the_scope_gets_403(tmp_path: Path, run: Any) -> None:
    access, key = access_with_key(tmp_path, Scope.CALLS)

    async def test(served: Any) -> None:
        answer = await served.post({"Authorization": f"Bearer {key}"})
        assert (answer.status_code, error_of(answer)["code"]) == (403, "insufficient_permissions")

    run(test, access=access)


def test_a_key_over_its_request_limit_gets_429_with_retry_after(tmp_path: Path, run: Any) -> None:
    access, key = access_with_key(tmp_path, requests_per_minute=2)

    async def test(served: Any) -> None:
        headers = {"Authorization": f"bearer {key}"}
        assert (await served.post(headers, input="Hi.")).status_code == 200
        assert (await served.post(headers, input="Hi.")).status_code == 200
        answer = await served.post(headers, input="Hi.")
        assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limit_exceeded")
        assert 1 <= int(answer.headers["retry-after"]) <= 30

    run(test, access=access)


def test_a_key_over_its_character_limit_gets_429(tmp_path: Path, run: Any) -> None:
    access, key = access_with_key(tmp_path, characters_per_minute=100)

    async def test(served: Any) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        assert (await served.post(headers, input="a" * 60)).status_code == 200
        answer = await served.post(headers, input="a" * 60)
        assert (answer.status_code, error_of(answer)["code"]) == (429, "rate_limit_exceeded")

    run(test, access=access)


def test_a_server_at_capacity_gives_503_with_retry_after(serve_apis: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post()
        assert answer.status_code == 503
        assert error_of(answer)["type"] == "server_error"
        assert int(answer.headers["retry-after"]) >= 1

    async def with_one_stream_open() -> None:
        async with asyncio.timeout(TIMEOUT_S), serve_apis(max_streams=1) as served:
            async with served.engine.stream():
                await test(served)
            assert (await served.post()).status_code == 200

    asyncio.run(with_one_stream_open())


def test_a_failure_before_the_first_audio_gives_500(run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post()
        assert answer.status_code == 500
        assert error_of(answer)["type"] == "server_error"

    run(test, broken_after=0)


def test_a_later_failure_ends_the_events_with_an_error(run: Any) -> None:
    async def test(served: Any) -> None:
        *_, last = events_of((await served.post(stream_format="sse")).text)
        assert last["type"] == "speech.audio.error"
        assert last["error"]["type"] == "server_error"

    run(test, broken_after=3)


def test_a_later_failure_leaves_the_audio_body_incomplete(run: Any) -> None:
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

    run(test)


async def disconnect_after_first_audio(served: Any, **fields: Any) -> None:
    """Request a long text and disconnect at the first byte of audio."""
    body = {"input": "word " * 800, "response_format": "pcm", **fields}
    async with served.client.stream("POST", "/v1/audio/speech", json=body) as answer:
        async for _ in answer.aiter_bytes():
            break


@pytest.mark.parametrize("fields", [{}, {"response_format": "mp3"}, {"stream_format": "sse"}])
def test_a_client_that_disconnects_frees_the_engine_within_a_step(fields: dict[str, Any], run: Any) -> None:
    async def test(served: Any) -> None:
        await disconnect_after_first_audio(served, **fields)
        await until(lambda: served.backend.open_slots == 0)
        steps = served.backend.steps
        await asyncio.sleep(0.1)
        assert served.backend.steps == steps < 200
        await until(lambda: not served.api.active_responses)

    run(test, step_s=0.02)


def test_a_client_that_stops_reading_pauses_its_own_request_only(run: Any) -> None:
    async def test(served: Any) -> None:
        reader, writer = await asyncio.open_connection(*served.address, limit=2**14)
        body = json.dumps({"input": "word " * 800, "response_format": "pcm"}).encode()
        head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await reader.readuntil(b"\r\n\r\n")
        before = -1
        while before != served.backend.steps:  # until the buffers between are full
            before = served.backend.steps
            await asyncio.sleep(0.3)
        assert before < 799
        assert served.backend.open_slots == 1
        assert (await served.post()).status_code == 200
        writer.close()
        await until(lambda: served.backend.open_slots == 0)

    run(test)


def test_concurrent_requests_are_not_mixed_up(run: Any) -> None:
    async def test(served: Any) -> None:
        voices = ["tone-440", "tone-330"] * 20
        answers = await asyncio.gather(*(served.post(voice=voice) for voice in voices))
        for voice, answer in zip(voices, answers, strict=True):
            pitch = pitch_of(answer.content)
            assert pitch == pytest.approx(float(voice.removeprefix("tone-")), abs=2)

    run(test)


def test_a_draining_server_refuses_new_requests_and_finishes_those_under_way(run: Any) -> None:
    async def test(served: Any) -> None:
        under_way = asyncio.create_task(served.post())
        await until(lambda: bool(served.api.active_responses))
        await served.api.finish(TIMEOUT_S)
        assert (await under_way).status_code == 200
        refused = await served.post()
        assert (refused.status_code, error_of(refused)["code"]) == (503, "overloaded_shutting_down")

    run(test)


@pytest.mark.parametrize("language", UNREADABLE_TEXTS)
@pytest.mark.parametrize("fields", [{}, {"stream_format": "sse"}, {"stream": False}])
def test_a_text_that_the_voice_cannot_read_is_refused(fields: Any, language: str, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(input=UNREADABLE_TEXTS[language], **fields)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("input", "invalid_value")
        assert "can read no word of the text" in error["message"]
        assert (await served.post(input="One.", **fields)).status_code == 200

    run(test)


@pytest.mark.parametrize("fields", [{}, {"stream_format": "sse"}, {"stream": False}])
def test_words_that_the_voice_cannot_read_are_left_out_and_counted_in_a_header(
    fields: Any, run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(served: Any) -> None:
        whole = await served.post(input="One two.", **fields)
        assert "x-unread-characters" not in whole.headers
        for _ in range(3):
            partial = await served.post(input="One 你好世界 two. 再见。", **fields)
            assert partial.status_code == 200
            assert partial.headers["x-unread-characters"] == "6"
        assert served.engine.metrics.unread_characters._value.get() == 18
        warnings = [record for record in caplog.records if "cannot read" in record.message]
        assert len(warnings) == 1 and "你" not in caplog.text

    run(test)


@pytest.mark.parametrize("text", ["...", "\N{GRINNING FACE}", "?!", " \n "])
def test_a_text_without_any_word_is_20_ms_of_silence(text: str, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(input=text)
        assert answer.content == bytes(2 * 480)

    run(test)


@pytest.mark.parametrize("speed", [0.25, 1.0, 4.0])
def test_a_text_without_any_word_is_answered_in_every_format(speed: float, run: Any) -> None:
    async def test(served: Any) -> None:
        for text in ("\ufeff", '<voice rate="9">', "-" * 300):
            for codec in get_args(Codec):
                for fields in ({}, {"stream": False}, {"stream_format": "sse"}, {"sample_rate": 8_000}):
                    answer = await served.post(input=text, speed=speed, response_format=codec, **fields)
                    assert (answer.status_code, text, codec, fields) == (200, text, codec, fields)
                    assert answer.content

    run(test)


def frames_of(audio: bytes) -> tuple[float, float]:
    """The duration that the header states and that of the decoded samples, in seconds."""
    with av.open(io.BytesIO(audio)) as container:
        stated = container.duration / av.time_base
        return stated, sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


@pytest.mark.parametrize("codec", ["wav", "flac", "mp3", "opus", "aac", "pcm"])
def test_a_whole_file_has_a_content_length_and_states_its_duration(codec: str, run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(response_format=codec, stream=False, sample_rate=16_000)
        assert answer.status_code == 200
        assert int(answer.headers["content-length"]) == len(answer.content) > 0
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["x-request-id"].startswith("req_")
        if codec in ("wav", "flac"):
            stated, heard = frames_of(answer.content)
            assert stated == pytest.approx(heard, abs=1e-5)
            assert heard == pytest.approx(6 * WORD_S + 0.02, abs=0.001)
        if codec == "wav":
            with wave.open(io.BytesIO(answer.content)) as file:
                assert 2 * file.getnframes() == len(answer.content) - 44
        if codec == "mp3":
            stated, _ = frames_of(answer.content)
            assert b"Info" in answer.content[:200]
            assert stated == pytest.approx(6 * WORD_S + 0.02, abs=0.08)

    run(test)


def test_a_whole_file_that_is_too_long_is_refused(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speech_job, "MAX_FILE_S", 1)

    async def test(served: Any) -> None:
        answer = await served.post(stream=False)
        assert answer.status_code == 400 and "longer than 1 s" in error_of(answer)["message"]
        await until(lambda: served.backend.open_slots == 0)

    run(test)


def test_an_ssml_document_is_spoken_and_a_fault_is_an_error_with_its_place(run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(input='<speak>One<break time="1s"/> two.</speak>')
        assert len(answer.content) / 48_000 == pytest.approx(2 * WORD_S + 1 + 0.02, abs=0.001)
        answer = await served.post(input='<speak>One<phoneme ph="QQ">two</phoneme></speak>')
        assert answer.status_code == 400
        assert "line 1, column 31: 'QQ' is not IPA" in error_of(answer)["message"]

    run(test)
