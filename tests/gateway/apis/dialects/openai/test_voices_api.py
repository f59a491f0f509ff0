"""Voices over HTTP: listed, created from an upload and deleted, with OpenAI's and vLLM-Omni's fields."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from shared.audio.recordings import as_data_url, recording
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


def test_bundled_voices_are_listed_by_id_and_name(run: Any) -> None:
    async def test(served: Any) -> None:
        body = await listed(served)
        assert [voice["id"] for voice in body["voices"]] == ["tone-440", "tone-330"]
        assert all(voice["name"] for voice in body["voices"])
        assert body["uploaded_voices"] == []

    run(test)


def test_a_voice_is_created_listed_used_and_deleted(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        answer = await create(served, ref_text="What is said.")
        assert answer.status_code == 200
        created = answer.json()
        # OpenAI's fields, then vLLM-Omni's
        assert (created["object"], created["type"], created["name"]) == (
            "audio.voice",
            "audio_sample",
            "Anna",
        )
        assert isinstance(created["created_at"], int)
        assert (created["success"], created["voice"]["name"], created["voice"]["consent"]) == (
            True,
            "Anna",
            "I agree.",
        )
        assert created["voice"]["ref_text"] == "What is said."
        body = await listed(served)
        assert body["voices"][-1]["id"] == body["uploaded_voices"][0]["id"] == created["id"]
        for voice in (created["id"], "Anna", {"id": created["id"]}):
            pcm = np.frombuffer((await served.post(voice=voice)).content, "<i2")
            assert np.argmax(np.abs(np.fft.rfft(pcm))) * 24_000 / len(pcm) == pytest.approx(220, abs=2)
        removed = await served.client.delete(f"{PATH}/{created['id']}")
        gone = {"id": created["id"], "object": "audio.voice.deleted", "deleted": True, "success": True}
        assert removed.json() == gone
        assert (await listed(served))["uploaded_voices"] == []
        assert (await served.post(voice=created["id"])).status_code == 400

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
def test_invalid_uploads_get_openais_errors(
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
def test_a_malformed_form_gets_400(content_type: str, body: bytes, run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(PATH, content=body, headers={"content-type": content_type})
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")

    run(test, store=store)


def test_an_excessive_upload_gets_413_and_is_not_stored(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        answer = await create(served, audio_sample=("a.wav", bytes(17 * 2**20), "audio/wav"))
        assert answer.status_code == 413
        assert store.list() == ()

    run(test, store=store)


def test_a_model_that_does_not_clone_names_one_that_does(run: Any) -> None:
    async def test(served: Any) -> None:
        answer = await create(served)
        assert answer.status_code == 400
        assert "CosyVoice 2 or 3" in answer.json()["error"]["message"]

    run(test)


@pytest.mark.parametrize("voice_id", ["nobody", "tone-440", "..%2f..%2fetc", "a" * 300])
def test_only_enrolled_voices_can_be_deleted(voice_id: str, run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.delete(f"{PATH}/{voice_id}")
        assert answer.status_code == 404

    run(test, store=store)


def test_a_key_sees_its_own_voices_and_needs_the_scope(run: Any, store: VoiceStore, tmp_path: Path) -> None:
    file = KeysFile(tmp_path / "keys.json")

    def key(*scopes: Scope) -> dict[str, str]:
        return {"Authorization": f"Bearer {file.add('test', scopes, KeyLimits())}"}

    anna, bo, speaker = key(Scope.SPEAK, Scope.ENROLL), key(Scope.SPEAK, Scope.ENROLL), key(Scope.SPEAK)

    async def test(served: Any) -> None:
        created = (await create(served, headers=anna)).json()["id"]
        assert [voice["id"] for voice in (await listed(served, anna))["uploaded_voices"]] == [created]
        assert (await listed(served, bo))["uploaded_voices"] == []
        assert (await served.post(bo, voice=created)).status_code == 400
        assert (await served.client.delete(f"{PATH}/{created}", headers=bo)).status_code == 404
        assert (await create(served, headers=speaker)).status_code == 403
        assert (await create(served)).status_code == 401
        assert (await served.client.delete(f"{PATH}/{created}", headers=anna)).status_code == 200

    run(test, store=store, access=AccessControl(file))


def test_consent_and_transcript_are_shown_to_the_owner_only(
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
    store.add(prompt, name="Operator", about=VoiceMetadata("en", "", "The operator's consent.", "", ""))

    async def test(served: Any) -> None:
        await create(served, headers=anna, ref_text="What I say.")
        operators, own = (await listed(served, anna))["uploaded_voices"]
        assert (operators["name"], own["name"]) == ("Operator", "Anna")
        assert not {"consent", "ref_text"} & operators.keys()
        assert (own["consent"], own["ref_text"]) == ("I agree.", "What I say.")

    run(test, store=store, access=AccessControl(file))


def test_a_voice_is_deleted_by_name_too(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        created = (await create(served)).json()["id"]
        removed = await served.client.delete(f"{PATH}/Anna")
        assert (removed.status_code, removed.json()["id"]) == (200, created)
        assert (await listed(served))["uploaded_voices"] == []

    run(test, store=store)


def test_a_request_with_a_recording_uses_its_voice_and_drops_it(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        answers = await asyncio.gather(
            *(served.post(ref_audio=as_data_url(recording()), ref_text="What is said.") for _ in range(3))
        )
        for answer in answers:
            pcm = np.frombuffer(answer.content, "<i2")
            assert np.argmax(np.abs(np.fft.rfft(pcm))) * 24_000 / len(pcm) == pytest.approx(220, abs=2)
        while len(served.backend.voices) > 2:  # the backend's own; no temporary one is left
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
def test_an_unusable_or_forbidden_reference_is_refused(url: str, run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        answer = await served.post(ref_audio=url)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        assert served.backend.steps == 0
        assert store.list() == ()

    run(test, store=store)


def test_a_reference_needs_the_scope_and_a_cloning_model(run: Any, store: VoiceStore, tmp_path: Path) -> None:
    file = KeysFile(tmp_path / "keys.json")
    speaker = {"Authorization": f"Bearer {file.add('test', (Scope.SPEAK,), KeyLimits())}"}

    async def without_the_scope(served: Any) -> None:
        assert (await served.post(speaker, ref_audio=as_data_url(recording()))).status_code == 403

    async def without_a_cloning_model(served: Any) -> None:
        answer = await served.post(ref_audio="http://127.0.0.1/never-fetched")
        assert "CosyVoice 2 or 3" in answer.json()["error"]["message"]

    run(without_the_scope, store=store, access=AccessControl(file))
    run(without_a_cloning_model)
