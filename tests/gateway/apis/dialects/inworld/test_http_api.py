"""Inworld's HTTP endpoints: encodings, times of words, voices and errors."""

import asyncio
import base64
import io
import json
from pathlib import Path
from typing import Any

import av
import pytest

from shared.engine.standin_backend import WORD_S
from vivavoce.adapters.audio.pcm import WAV_HEADER_BYTES, wav_file
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

TEXT = "One two, three."
PCM = {"audioEncoding": "PCM", "sampleRateHertz": 24_000}
BODY = {"text": TEXT, "voiceId": "tone-440", "modelId": "inworld-tts-2", "audioConfig": PCM}
WHOLE = "/tts/v1/voice"
LINES = "/tts/v1/voice:stream"
PATHS = (WHOLE, LINES)
SPEECH_S = 3 * WORD_S + 0.25  # with the pause of the comma


def seconds_of(audio: bytes) -> float:
    with av.open(io.BytesIO(audio)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


async def speak_whole(served: Any, **fields: Any) -> dict[str, Any]:
    answer = await served.client.post(WHOLE, json=BODY | fields)
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    spoken: dict[str, Any] = answer.json()
    return spoken


async def speak_lines(served: Any, **fields: Any) -> list[dict[str, Any]]:
    answer = await served.client.post(LINES, json=BODY | fields)
    assert answer.status_code == 200
    return [json.loads(line)["result"] for line in answer.text.splitlines()]


def audio_of(speech: dict[str, Any]) -> bytes:
    return base64.b64decode(speech["audioContent"])


def test_speech_in_lines_is_that_of_one_object(run: Any) -> None:
    async def test(served: Any) -> None:
        whole = await speak_whole(served, timestampType="WORD")
        lines = await speak_lines(served, timestampType="WORD")
        assert len(lines) > 1 and b"".join(map(audio_of, lines)) == audio_of(whole)
        assert len(audio_of(whole)) == pytest.approx(48_000 * SPEECH_S, abs=10_000)
        assert (
            whole["usage"]
            == lines[-1]["usage"]
            == {
                "processedCharactersCount": len(TEXT),
                "modelId": "inworld-tts-2",
            }
        )
        alignment = whole["timestampInfo"]["wordAlignment"]
        assert alignment["words"] == ["One", " ", "two", ", ", "three", "."]
        starts, ends = (alignment[f"word{edge}TimeSeconds"] for edge in ("Start", "End"))
        assert starts[4] == pytest.approx(2 * WORD_S + 0.25, abs=0.02)
        assert starts == sorted(starts) and ends == sorted(ends) and ends[-1] <= len(audio_of(whole)) / 48_000
        timed = [line["timestampInfo"]["wordAlignment"] for line in lines if "timestampInfo" in line]
        assert [word for one in timed for word in one["words"]] == alignment["words"]
        assert [time for one in timed for time in one["wordStartTimeSeconds"]] == starts

    run(test)


def test_words_of_an_ssml_document_are_those_of_its_text(run: Any) -> None:
    async def test(served: Any) -> None:
        document = '<speak>One <break time="1s"/>two, <sub alias="three">3</sub>.</speak>'
        whole = await speak_whole(served, text=document, timestampType="WORD")
        words = whole["timestampInfo"]["wordAlignment"]["words"]
        assert words == ["One", " ", "two", ", ", "3", "."]
        lines = await speak_lines(served, text=document, timestampType="WORD")
        timed = [line["timestampInfo"]["wordAlignment"] for line in lines if "timestampInfo" in line]
        assert [word for one in timed for word in one["words"]] == words
        assert whole["usage"]["processedCharactersCount"] == len(document)

    run(test)


def test_times_are_sent_only_if_they_are_asked_for(run: Any) -> None:
    async def test(served: Any) -> None:
        assert "timestampInfo" not in await speak_whole(served)
        assert not any("timestampInfo" in line for line in await speak_lines(served))

    run(test)


@pytest.mark.parametrize("encoding", ["LINEAR16", "WAV", "MP3", "OGG_OPUS", "FLAC"])
def test_every_encoding_has_the_length_of_the_speech(run: Any, encoding: str) -> None:
    async def test(served: Any) -> None:
        config = {"audioEncoding": encoding, "sampleRateHertz": 48_000, "bitRate": 64_000}
        whole = audio_of(await speak_whole(served, audioConfig=config))
        assert seconds_of(whole) == pytest.approx(SPEECH_S, abs=0.2)
        pieces = [audio_of(line) for line in await speak_lines(served, audioConfig=config)]
        if encoding == "LINEAR16":
            samples = [piece[WAV_HEADER_BYTES:] for piece in pieces]
            assert pieces == [wav_file(one, 48_000) for one in samples]
            assert whole == wav_file(b"".join(samples), 48_000)
        else:
            assert seconds_of(b"".join(pieces)) == pytest.approx(SPEECH_S, abs=0.2)

    run(test)


def test_the_default_is_mp3_at_48_khz_and_g711_has_no_header(run: Any) -> None:
    async def test(served: Any) -> None:
        with av.open(io.BytesIO(audio_of(await speak_whole(served, audioConfig={})))) as container:
            assert container.streams.audio[0].rate == 48_000
            assert container.streams.audio[0].codec_context.name.startswith("mp3")
        for encoding in ("ALAW", "MULAW"):
            config = {"audioEncoding": encoding, "sampleRateHertz": 8_000}
            audio = audio_of(await speak_whole(served, audioConfig=config))
            assert len(audio) == pytest.approx(8_000 * SPEECH_S, abs=2_000)

    run(test)


def test_the_rate_is_applied_and_a_catalogue_voice_is_the_default_voice(run: Any) -> None:
    async def test(served: Any) -> None:
        usual = audio_of(await speak_whole(served))
        slow = await speak_whole(served, voiceId="Ashley", audioConfig=PCM | {"speakingRate": 0.4})
        assert len(audio_of(slow)) > len(usual)

    run(test)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"voiceId": "nobody"}, 404, 5),
        ({"voiceId": None}, 400, 3),
        ({"text": ""}, 400, 3),
        ({"text": 5}, 400, 3),
        ({"audioConfig": {"audioEncoding": "AAC"}}, 400, 3),
        ({"audioConfig": {"sampleRateHertz": 7}}, 400, 3),
        ({"audioConfig": {"speakingRate": 9.0}}, 400, 3),
        ({"text": "\u4f60\u597d"}, 400, 3),
        ({"text": "x" * MAX_MESSAGE_BYTES}, 413, 3),
    ],
)
def test_errors_have_inworlds_fields(
    run: Any, path: str, fields: dict[str, Any], status: int, code: int
) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(path, json=BODY | fields)
        body = answer.json()
        assert (answer.status_code, body["code"], body["details"]) == (status, code, [])
        assert body["message"]

    run(test)


def test_unknown_paths_and_methods_have_inworlds_fields(run: Any) -> None:
    async def test(served: Any) -> None:
        missing = await served.client.get("/tts/v1/nothing")
        assert (missing.status_code, missing.json()["code"]) == (404, 5)
        wrong = await served.client.get(WHOLE)
        assert (wrong.status_code, wrong.json()["code"]) == (405, 12)

    run(test)


def test_speech_that_fails_ends_with_an_error(run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(LINES, json=BODY | {"text": "One two three four five. " * 20})
        last = json.loads(answer.text.splitlines()[-1])
        assert answer.status_code == 200 and last["error"]["code"] == 13
        whole = await served.client.post(WHOLE, json=BODY)
        assert (whole.status_code, whole.json()["code"]) == (500, 13)

    run(test, broken_after=10)


def test_a_shutdown_refuses_requests_and_waits_for_speech(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        speaking = asyncio.create_task(served.client.post(LINES, json=BODY | {"text": TEXT * 5}))
        http = served.apis.opened["inworld"].apis[0]
        while not http.active_responses:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        finishing = asyncio.create_task(served.apis.finish(20.0))
        await asyncio.sleep(0)
        refused = await served.client.post(WHOLE, json=BODY)
        assert (refused.status_code, refused.json()["code"]) == (503, 14) and refused.headers["retry-after"]
        assert (await speaking).status_code == 200
        await finishing

    run_every_api(test, step_s=0.02)


def test_voices_are_listed_by_language(run: Any) -> None:
    async def test(served: Any) -> None:
        listed = (await served.client.get("/tts/v1/voices")).json()["voices"]
        assert [voice["voiceId"] for voice in listed] == ["tone-440", "tone-330"]
        assert set(listed[0]) == {"voiceId", "displayName", "description", "languages", "tags", "isCustom"}
        language = listed[0]["languages"][0]
        for wanted, found in ((language, listed), ("xx", [])):
            answer = await served.client.get("/tts/v1/voices", params={"filter": f"language={wanted}"})
            assert answer.json()["voices"] == found

    run(test)


def test_a_key_is_needed_where_there_are_keys(run: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("client", (Scope.SPEAK,), KeyLimits())

    async def test(served: Any) -> None:
        for method, path in (("GET", "/tts/v1/voices"), ("POST", WHOLE), ("POST", LINES)):
            for scheme in ("Basic", "Bearer"):
                headers = {"Authorization": f"{scheme} wrong"}
                refused = await served.client.request(method, path, json=BODY, headers=headers)
                assert (refused.status_code, refused.json()["code"]) == (401, 16)
                headers = {"Authorization": f"{scheme} {key}"}
                assert (await served.client.request(method, path, json=BODY, headers=headers)).is_success

    run(test, access=AccessControl(keys))
