"""Voices over HTTP: listed, made of an upload and removed, in the fields of both kinds of clients."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shared.recordings import as_data_url, recording
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.models.cosyvoice.config import CosyVoiceVersion
from vivavoce.models.cosyvoice.front_end.voice_prompt import VoicePrompt
from vivavoce.tts_engine.voices.store import VoiceMetadata, VoiceStore

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")

PATH = "/v1/audio/voices"


async def create(served: Any, *, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    sample = fields.pop("audio_sample", ("a.wav", recording(), "audio/wav"))
    data = {"name": "Anna", "consent": "I agree.", **fields}
    answer: httpx.Response = await served.client.post(
        PATH,
        data={name: value for name, value in data.items() if value is not None},
        files={"audio_sample": sample} if sample else None,
        headers=headers,
    )
    return answer


async def listed(served: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    body: dict[str, Any] = (await served.client.get(PATH, headers=headers)).json()
    return body


def test_the_voices_of_the_house_are_listed_by_id_and_name(run: Any) -> None:
    async def test(served: Any) -> None:
        body = await listed(served)
        assert [voice["id"] for voice in body["voices"]] == ["tone-440", "tone-330"]
        assert all(voice["name"] for voice in body["voices"])
        assert body["uploaded_voices"] == []

    run(test)


def test_a_voice_is_made_listed_spoken_with_and_removed(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        answer = await create(served, ref_text="What is said.")
        assert answer.status_code == 200
        made = answer.json()
        # OpenAI's fields, then vLLM-Omni's
        assert (made["object"], made["type"], made["name"]) == ("audio.voice", "audio_sample", "Anna")
        assert isinstance(made["created_at"], int)
        assert (made["success"], made["voice"]["name"], made["voice"]["consent"]) == (
            True,
            "Anna",
            "I agree.",
        )
        assert made["voice"]["ref_text"] == "What is said."
        body = await listed(served)
        assert body["voices"][-1]["id"] == body["uploaded_voices"][0]["id"] == made["id"]
        for voice in (made["id"], "Anna", {"id": made["id"]}):
            pcm = np.frombuffer((await served.post(voice=voice)).content, "<i2")
            assert np.argmax(np.abs(np.fft.rfft(pcm))) * 24_000 / len(pcm) == pytest.approx(220, abs=2)
        removed = await served.client.delete(f"{PATH}/{made['id']}")
        gone = {"id": made["id"], "object": "audio.voice.deleted", "deleted": True, "success": True}
        assert removed.json() == gone
        assert (await listed(served))["uploaded_voices"] == []
        assert (await served.post(voice=made["id"])).status_code == 400

    run(test, store=store)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"name": None}, "name"),
        ({"name": " "}, "name"),
        ({"consent": None}, "consent"),
        ({"audio_sample": None}, "audio_sample"),
        ({"type": "prompt"}, "type"),
        ({"audio_sample": ("a.wav", b"no sound", "audio/wav")}, None),
        ({"audio_sample": ("../../a.wav", b"", "audio/wav")}, None),
        ({"audio_sample": ("a.wav", recording(0.1), "audio/wav")}, None),
    ],
)
def test_what_is_wrong_with_an_upload_is_answered_in_openais_words(
    fields: dict[str, Any], param: str | None, run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        answer = await create(served, **fields)
        error = answer.json()["error"]
        assert (answer.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
        assert store.list() == ()

    run(test, store=store)


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=a", b"garbage"),
        ("multipart/form-data; boundary=a", b"--a\r\ncontent-disposition: form-data\r\n\r\nx\r\n--a--\r\n"),
        ("multipart/form-data; boundary=a", b'--a\r\ncontent-disposition: form-data; name="' + b"n" * 70_000),
        ("application/json", b"{}"),
        ("text/plain", b"\xff"),
    ],
)
def test_a_form_that_is_none_is_answered_400(
    content_type: str, body: bytes, run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(PATH, content=body, headers={"content-type": content_type})
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")

    run(test, store=store)


def test_an_upload_that_is_too_large_is_not_kept(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        answer = await create(served, audio_sample=("a.wav", bytes(17 * 2**20), "audio/wav"))
        assert answer.status_code == 413
        assert store.list() == ()

    run(test, store=store)


def test_a_model_that_clones_nobody_says_which_does(run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await create(served)
        assert answer.status_code == 400
        assert "CosyVoice 2 or 3" in answer.json()["error"]["message"]

    run(test)


@pytest.mark.parametrize("voice_id", ["nobody", "tone-440", "..%2f..%2fetc", "a" * 300])
def test_a_voice_that_was_not_enrolled_is_not_there_to_be_removed(
    voice_id: str, run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.delete(f"{PATH}/{voice_id}")
        assert answer.status_code == 404

    run(test, store=store)


def test_keys_have_voices_of_their_own_and_need_the_scope(
    run: Any, store: VoiceStore, tmp_path: Path
) -> None:
    file = KeysFile(tmp_path / "keys.json")

    def key(*scopes: Scope) -> dict[str, str]:
        return {"Authorization": f"Bearer {file.add('test', scopes, KeyLimits())}"}

    anna, bo, speaker = key(Scope.SPEAK, Scope.ENROLL), key(Scope.SPEAK, Scope.ENROLL), key(Scope.SPEAK)

    async def test(served: Any) -> None:
        made = (await create(served, headers=anna)).json()["id"]
        assert [voice["id"] for voice in (await listed(served, anna))["uploaded_voices"]] == [made]
        assert (await listed(served, bo))["uploaded_voices"] == []
        assert (await served.post(bo, voice=made)).status_code == 400
        assert (await served.client.delete(f"{PATH}/{made}", headers=bo)).status_code == 404
        assert (await create(served, headers=speaker)).status_code == 403
        assert (await create(served)).status_code == 401
        assert (await served.client.delete(f"{PATH}/{made}", headers=anna)).status_code == 200

    run(test, store=store, access=AccessControl(file))


def test_the_speakers_statement_is_for_who_enrolled_the_voice(
    run: Any, store: VoiceStore, tmp_path: Path
) -> None:
    file = KeysFile(tmp_path / "keys.json")
    scopes = (Scope.SPEAK, Scope.ENROLL)
    anna = {"Authorization": f"Bearer {file.add('anna', scopes, KeyLimits())}"}
    prompt = VoicePrompt(
        CosyVoiceVersion.V2,
        "",
        np.ones(25, np.int32),
        np.zeros((80, 50), np.float32),
        np.ones(192, np.float32),
    )
    store.add(prompt, name="House", about=VoiceMetadata("en", "", "The operator's consent.", "", ""))

    async def test(served: Any) -> None:
        await create(served, headers=anna, ref_text="What I say.")
        house, own = (await listed(served, anna))["uploaded_voices"]
        assert (house["name"], own["name"]) == ("House", "Anna")
        assert not {"consent", "ref_text"} & house.keys()
        assert (own["consent"], own["ref_text"]) == ("I agree.", "What I say.")

    run(test, store=store, access=AccessControl(file))


def test_a_voice_is_removed_by_its_name_as_well(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        made = (await create(served)).json()["id"]
        removed = await served.client.delete(f"{PATH}/Anna")
        assert (removed.status_code, removed.json()["id"]) == (200, made)
        assert (await listed(served))["uploaded_voices"] == []

    run(test, store=store)


def test_a_recording_that_comes_with_a_request_is_spoken_like_and_forgotten(
    run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        answers = await asyncio.gather(
            *(served.post(ref_audio=as_data_url(recording()), ref_text="What is said.") for _ in range(3))
        )
        for answer in answers:
            pcm = np.frombuffer(answer.content, "<i2")
            assert np.argmax(np.abs(np.fft.rfft(pcm))) * 24_000 / len(pcm) == pytest.approx(220, abs=2)
        while len(served.backend.voices) > 2:  # two of the house, and none that is lent
            await asyncio.sleep(0.001)
        assert store.list() == ()

    run(test, store=store)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/a.wav",
        "http://[::1]/a.wav",
        "http://2130706433/a.wav",
        "http://0x7f.1/a.wav",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "/etc/passwd",
        "data:audio/wav;base64,???",
        as_data_url(b"no sound"),
    ],
)
def test_a_reference_that_is_no_recording_or_is_nobodys_business_is_refused(
    url: str, run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(ref_audio=url)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        assert served.backend.steps == 0
        assert store.list() == ()

    run(test, store=store)


def test_a_reference_needs_the_scope_and_a_model_that_clones(
    run: Any, store: VoiceStore, tmp_path: Path
) -> None:
    file = KeysFile(tmp_path / "keys.json")
    speaker = {"Authorization": f"Bearer {file.add('test', (Scope.SPEAK,), KeyLimits())}"}

    async def without_the_scope(served: Any) -> None:
        assert (await served.post(speaker, ref_audio=as_data_url(recording()))).status_code == 403

    async def of_a_model_that_clones_nobody(served: Any) -> None:
        answer = await served.post(ref_audio="http://127.0.0.1/never-fetched")
        assert "CosyVoice 2 or 3" in answer.json()["error"]["message"]

    run(without_the_scope, store=store, access=AccessControl(file))
    run(of_a_model_that_clones_nobody)
