"""Upstream CosyVoice's HTTP endpoints: the requests of its published client, and errors."""

from typing import Any

import pytest

from shared.audio.recordings import recording
from shared.audio.tones import pitch_of
from shared.engine.standin_backend import WORD_S
from vivavoce.tts_engine.stream_request import DeliveryMode
from vivavoce.tts_engine.voices.store import VoiceStore

TEXT = "One two three."
FILES = {"prompt_wav": ("prompt_wav", recording(), "application/octet-stream")}
SPOKEN: dict[str, tuple[dict[str, str], bool, DeliveryMode | None, str]] = {
    "inference_sft": ({"spk_id": "tone-330"}, False, None, ""),
    "inference_zero_shot": ({"prompt_text": "Words."}, True, DeliveryMode.ZERO_SHOT, ""),
    "inference_cross_lingual": ({}, True, DeliveryMode.CROSS_LINGUAL, ""),
    "inference_instruct": ({"spk_id": "tone-330", "instruct_text": "Softly."}, False, None, "Softly."),
    "inference_instruct2": ({"instruct_text": "Softly."}, True, None, "Softly."),
}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", SPOKEN)
def test_the_published_client_is_answered_with_samples(
    run_every_api: Any, store: VoiceStore, name: str, method: str
) -> None:
    fields, has_recording, mode, instruction = SPOKEN[name]

    async def test(served: Any) -> None:
        files = FILES if has_recording else None
        data = {"tts_text": TEXT, **fields}
        answer = await served.client.request(method, f"/{name}", data=data, files=files)
        assert answer.status_code == 200, answer.text
        assert len(answer.content) >= 3 * WORD_S * 48_000
        assert pitch_of(answer.content) == pytest.approx(220 if has_recording else 330, rel=0.02)
        delivery = served.backend.requests[-1].delivery
        assert (delivery.mode, delivery.instruction) == (mode, instruction)
        assert len(list(served.voices.bundle_voices())) == 2 and not store.list(None)

    run_every_api(test, store=store)


@pytest.mark.parametrize(
    ("name", "fields", "status", "word"),
    [
        ("inference_sft", {"spk_id": "tone-330"}, 422, "tts_text"),
        ("inference_sft", {"tts_text": TEXT}, 422, "spk_id"),
        ("inference_sft", {"tts_text": TEXT, "spk_id": "nobody"}, 404, "nobody"),
        ("inference_sft", {"tts_text": " ", "spk_id": "tone-330"}, 400, "tts_text"),
        ("inference_cross_lingual", {"tts_text": TEXT}, 422, "prompt_wav"),
        ("inference_cross_lingual", {"tts_text": TEXT, "prompt_wav": "a path"}, 422, "prompt_wav"),
    ],
)
def test_errors_have_fastapis_field(
    run_every_api: Any, name: str, fields: dict[str, str], status: int, word: str
) -> None:
    async def test(served: Any) -> None:
        answer = await served.client.post(f"/{name}", data=fields)
        assert (answer.status_code, set(answer.json())) == (status, {"detail"}), answer.text
        assert word in answer.json()["detail"]

    run_every_api(test)


def test_a_model_that_clones_no_voice_says_so(run_every_api: Any) -> None:
    async def test(served: Any) -> None:
        data = {"tts_text": TEXT, "prompt_text": "Words."}
        answer = await served.client.post("/inference_zero_shot", data=data, files=FILES)
        assert (answer.status_code, "cannot clone" in answer.json()["detail"]) == (400, True)

    run_every_api(test)
