"""Deepgram's HTTP endpoint: encodings, containers, voices and errors."""

import io
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import pytest

from shared.engine.standin_backend import WORD_S, StandInBackend
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES
from vivavoce.tts_engine.backends.base import SlotRequest
from vivavoce.tts_engine.voices.voices import Voice, Voices

BODY = {"text": "One two three."}
PATH = "/v1/speak?model=tone-440"


@pytest.mark.parametrize("path", ["/v1/speak", "/v2/speak"])
def test_every_encoding_has_the_length_of_the_speech(run: Any, path: str) -> None:
    encodings = (
        "encoding=mp3", "encoding=mp3&bit_rate=32000", "encoding=opus", "encoding=opus&container=ogg",
        "encoding=flac&sample_rate=16000", "encoding=aac", "encoding=linear16", "encoding=mulaw",
        "encoding=alaw&container=wav", "container=wav", "",
    )  # fmt: skip

    async def test(served: Any) -> None:
        for encoding in encodings:
            answer = await served.client.post(f"{path}?model=aura-2-thalia-en&{encoding}", json=BODY)
            assert answer.status_code == 200, answer.text
            assert answer.headers["dg-request-id"] and answer.headers["dg-char-count"] == "14"
            with av.open(io.BytesIO(answer.content)) as container:
                seconds = sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))
            assert seconds == pytest.approx(3 * WORD_S + 0.1, abs=0.25), encoding

    run(test)


def test_headers_of_wav_name_the_encoding_and_none_is_raw(run: Any) -> None:
    async def test(served: Any) -> None:
        for encoding, tag, rate in (("linear16", 1, 24_000), ("mulaw", 7, 8_000), ("alaw", 6, 8_000)):
            wav = await served.client.post(f"{PATH}&encoding={encoding}", json=BODY)
            raw = await served.client.post(f"{PATH}&encoding={encoding}&container=none", json=BODY)
            assert struct.unpack_from("<HHI", wav.content, 20) == (tag, 1, rate)
            assert wav.content[44:] == raw.content

    run(test)


class CyrillicBackend(StandInBackend):
    """Has one voice, whose id is not Latin."""

    def __init__(self) -> None:
        super().__init__()
        self.voices = Voices((Voice("Ирина", "zxx", "a tone"),))

    def open_slot(self, request: SlotRequest) -> int:
        return super().open_slot(replace(request, voice="tone-440"))


def test_a_voice_whose_id_no_header_can_hold_speaks(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post("/v1/speak?model=Ирина", json=BODY)
        assert (answer.status_code, answer.headers["dg-model-name"]) == (200, "?????")
        assert len(answer.content) > 0

    run_every_api(test, backend=CyrillicBackend())


FAULTS: list[tuple[str, Any, int, str]] = [
    ("model=nobody", BODY, 400, "MODEL_NOT_FOUND"),
    ("encoding=pcm", BODY, 400, "INVALID_QUERY_PARAMETER"),
    ("encoding=linear16&sample_rate=12345", BODY, 400, "INVALID_QUERY_PARAMETER"),
    ("encoding=mp3&container=wav", BODY, 400, "INVALID_QUERY_PARAMETER"),
    ("encoding=linear16&container=ogg", BODY, 400, "INVALID_QUERY_PARAMETER"),
    ("encoding=opus&bit_rate=1", BODY, 400, "INVALID_QUERY_PARAMETER"),
    ("speed=9", BODY, 400, "INVALID_QUERY_PARAMETER"),
    ("", {"text": ""}, 400, "INVALID_QUERY_PARAMETER"),
    ("", {"text": 5}, 400, "INVALID_QUERY_PARAMETER"),
    ("", [], 400, "INVALID_QUERY_PARAMETER"),
    ("", {"text": "\u4f60\u597d"}, 400, "INVALID_QUERY_PARAMETER"),
    ("", {"text": "x" * MAX_MESSAGE_BYTES}, 413, "PAYLOAD_TOO_LARGE"),
]


def test_errors_have_deepgrams_fields(run: Any) -> None:
    async def test(served: Any) -> None:
        for query, body, status, code in FAULTS:
            answer = await served.client.post(f"/v1/speak?{query}", json=body)
            error = answer.json()
            assert (answer.status_code, error["err_code"]) == (status, code), query
            assert error["err_msg"] and error["request_id"] == answer.headers["dg-request-id"]

    run(test)


def test_a_key_is_needed_where_there_are_keys(run: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("client", (Scope.SPEAK,), KeyLimits())

    async def test(served: Any) -> None:
        refused = await served.client.post(PATH, json=BODY, headers={"Authorization": "Token wrong"})
        assert (refused.status_code, refused.json()["err_code"]) == (401, "INVALID_AUTH")
        headers = {"Authorization": f"Token {key}"}
        assert (await served.client.post(PATH, json=BODY, headers=headers)).is_success

    run(test, access=AccessControl(keys))
