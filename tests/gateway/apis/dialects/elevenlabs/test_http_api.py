"""ElevenLabs' HTTP endpoints: formats, times of characters, lists and errors."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import av
import pytest

from shared.engine.standin_backend import WORD_S
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.dialects.elevenlabs.request_mapping import OUTPUT_FORMATS
from vivavoce.gateway.apis.kits.request_fields import MAX_MESSAGE_BYTES

TEXT = "One two, three."
BODY = {"text": TEXT, "model_id": "eleven_flash_v2_5", "voice_settings": {"stability": 0.5, "speed": 1.0}}
PATH = "/v1/text-to-speech/tone-440"
RAW = "output_format=pcm_24000"
# Fields without which ElevenLabs' SDK for Node.js raises an error
REQUIRED_OF_A_SUBSCRIPTION = set(
    "tier character_count character_limit max_credit_limit_extension can_extend_character_limit "
    "allowed_to_extend_character_limit voice_slots_used professional_voice_slots_used "
    "professional_voice_slots_used_in_workspace voice_limit voice_add_edit_counter professional_voice_limit "
    "can_extend_voice_limit can_use_instant_voice_cloning can_use_professional_voice_cloning current_overage "
    "status open_invoices has_open_invoices".split()
)
REQUIRED_OF_A_USER = set(
    "user_id workspace_id subscription is_new_user can_use_delayed_payment_methods is_onboarding_completed "
    "is_onboarding_checklist_completed created_at seat_type".split()
)


def words_of(alignment: dict[str, Any]) -> list[str]:
    return "".join(alignment["characters"]).split()


def seconds_of(audio: bytes, name: str) -> float:
    codec, rate, *_ = name.split("_")
    if codec in ("pcm", "ulaw", "alaw"):
        return len(audio) / int(rate) / (2 if codec == "pcm" else 1)
    with av.open(io.BytesIO(audio)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def test_every_format_has_the_length_of_the_speech(run: Any) -> None:
    async def test(served: Any) -> None:
        for name in OUTPUT_FORMATS:
            answer = await served.client.post(f"{PATH}/stream?output_format={name}", json=BODY)
            assert answer.status_code == 200
            assert seconds_of(answer.content, name) == pytest.approx(3 * WORD_S + 0.25, abs=0.2), (
                name
            )  # a pause

    run(test)


def test_the_default_is_mp3_with_and_without_stream(run: Any) -> None:
    async def test(served: Any) -> None:
        for path in (PATH, f"{PATH}/stream"):
            answer = await served.client.post(path, json=BODY)
            assert (answer.status_code, answer.headers["content-type"]) == (200, "audio/mpeg")
            assert answer.headers["request-id"] and answer.headers["character-cost"] == str(len(TEXT))
            with av.open(io.BytesIO(answer.content)) as container:
                assert container.streams.audio[0].rate == 44_100

    run(test)


def test_times_of_characters_cover_the_text_and_the_speech(run: Any) -> None:
    async def test(served: Any) -> None:
        whole = (await served.client.post(f"{PATH}/with-timestamps?{RAW}", json=BODY)).json()
        answer = await served.client.post(f"{PATH}/stream/with-timestamps?{RAW}", json=BODY)
        lines = [json.loads(line) for line in answer.text.splitlines()]
        pcm = (await served.client.post(f"{PATH}/stream?{RAW}", json=BODY)).content
        assert base64.b64decode(whole["audio_base64"]) == pcm
        assert b"".join(base64.b64decode(line["audio_base64"]) for line in lines) == pcm
        alignment = whole["alignment"]
        assert alignment == whole["normalized_alignment"]
        assert "".join(alignment["characters"]) == TEXT
        starts, ends = (alignment[f"character_{edge}_times_seconds"] for edge in ("start", "end"))
        assert starts == sorted(starts) and ends == sorted(ends) and ends[-1] <= len(pcm) / 48_000
        assert starts[TEXT.index("three")] == pytest.approx(
            2 * WORD_S + 0.25, abs=0.02
        )  # the comma is 0.25 s
        streamed = [line["alignment"] for line in lines if "alignment" in line]
        assert [one for part in streamed for one in part["characters"]] == alignment["characters"]
        assert [one for part in streamed for one in part["character_start_times_seconds"]] == starts

    run(test)


def test_times_of_an_ssml_document_are_those_of_its_text(run: Any) -> None:
    async def test(served: Any) -> None:
        body = BODY | {"text": '<speak>One <break time="1s"/>two, <sub alias="three">3</sub>.</speak>'}
        whole = (await served.client.post(f"{PATH}/with-timestamps?{RAW}", json=body)).json()
        assert "".join(whole["alignment"]["characters"]) == "One two, 3."
        answer = await served.client.post(f"{PATH}/stream/with-timestamps?{RAW}", json=body)
        lines = [json.loads(line) for line in answer.text.splitlines()]
        characters = [one for line in lines if "alignment" in line for one in line["alignment"]["characters"]]
        assert characters == whole["alignment"]["characters"]

    run(test)


def test_the_speed_is_applied_and_a_catalogue_voice_is_the_default_voice(run: Any) -> None:
    async def test(served: Any) -> None:
        usual = (await served.client.post(f"{PATH}/stream?{RAW}", json=BODY)).content
        slow = BODY | {"voice_settings": {"speed": 0.4}}
        path = f"/v1/text-to-speech/hpp4J3VqNfWAUOO0d1Us/stream?{RAW}"
        assert len((await served.client.post(path, json=slow)).content) > len(usual)

    run(test)


@pytest.mark.parametrize(
    ("path", "fields", "status", "word"),
    [
        ("/v1/text-to-speech/nobody", {}, 404, "voice_not_found"),
        (PATH, {"text": ""}, 422, None),
        (PATH, {"text": 5}, 422, None),
        (PATH, {"voice_settings": {"speed": 9.0}}, 422, None),
        (f"{PATH}/stream?output_format=ogg_1", {}, 400, "invalid_output_format"),
        (PATH, {"text": "\u4f60\u597d"}, 400, "invalid_request"),
        (PATH, {"text": "x" * MAX_MESSAGE_BYTES}, 413, "request_too_large"),
        (f"{PATH}/nothing", {}, 404, "not_found"),
    ],
)
def test_errors_have_elevenlabs_fields(
    run: Any, path: str, fields: dict[str, Any], status: int, word: str | None
) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(path, json=BODY | fields)
        detail = answer.json()["detail"]
        assert answer.status_code == status
        if word is None:
            assert detail[0]["loc"][:2] == ["body", next(iter(fields))]
        else:
            assert detail["status"] == word and detail["message"]

    run(test)


def test_voices_and_models_are_listed(run: Any) -> None:
    async def test(served: Any) -> None:
        listed = (await served.client.get("/v1/voices")).json()["voices"]
        assert [voice["voice_id"] for voice in listed] == ["tone-440", "tone-330"]
        assert (await served.client.get("/v1/voices/tone-330")).json() == listed[1]
        assert (await served.client.get("/v1/voices/nobody")).status_code == 404
        first = (await served.client.get("/v2/voices?page_size=1")).json()
        assert (first["has_more"], first["total_count"], len(first["voices"])) == (True, 2, 1)
        token = first["next_page_token"]
        second = (await served.client.get(f"/v2/voices?page_size=1&next_page_token={token}")).json()
        assert second["voices"] == listed[1:] and not second["has_more"]
        assert (await served.client.get("/v2/voices?search=330")).json()["total_count"] == 1
        assert (await served.client.get("/v2/voices?page_size=0")).status_code == 422
        subscription = (await served.client.get("/v1/user/subscription")).json()
        assert subscription.keys() >= REQUIRED_OF_A_SUBSCRIPTION and subscription["character_limit"] > 0
        user = (await served.client.get("/v1/user")).json()
        assert user.keys() >= REQUIRED_OF_A_USER and user["subscription"] == subscription
        for path in ("/v1/voices/settings/default", "/v1/voices/tone-330/settings"):
            assert (await served.client.get(path)).json()["speed"] == 1.0
        assert (await served.client.get("/v1/voices/nobody/settings")).status_code == 404
        models = (await served.client.get("/v1/models", headers={"xi-api-key": "any"})).json()
        assert all(model["can_do_text_to_speech"] for model in models)
        assert (await served.client.get("/v1/models")).json()["object"] == "list"  # OpenAI's

    run(test)


def test_a_key_is_needed_where_there_are_keys(run: Any, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("client", (Scope.SPEAK,), KeyLimits())

    async def test(served: Any) -> None:
        for method, path in (("GET", "/v1/voices"), ("POST", f"{PATH}/stream"), ("GET", "/v1/user")):
            refused = await served.client.request(method, path, json=BODY, headers={"xi-api-key": "wrong"})
            assert (refused.status_code, refused.json()["detail"]["status"]) == (401, "invalid_api_key")
            assert (
                await served.client.request(method, path, json=BODY, headers={"xi-api-key": key})
            ).is_success

    run(test, access=AccessControl(keys))
