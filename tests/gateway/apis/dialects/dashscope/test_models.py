"""DashScope's HTTP messages: accepted values, error messages of refusals, and schemas."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from vivavoce.gateway.apis.dialects.dashscope.models import (
    CreateVoiceInput,
    ListVoiceInput,
    NoVoiceOutput,
    SpeechSynthesizerRequest,
    SpeechSynthesizerResponse,
    VoiceCustomizationRequest,
    VoiceCustomizationResponse,
)
from vivavoce.gateway.apis.dialects.dashscope.request_mapping import voice_of_dashscope_model
from vivavoce.gateway.apis.kits.dashscope.errors import (
    DASHSCOPE_ERRORS,
    DashScopeErrorBody,
    DashScopeModelNotFound,
    InvalidDashScopeField,
)
from vivavoce.gateway.apis.kits.dashscope.validation import DashScopeMessage, parse_message
from vivavoce.gateway.apis.shell.speech_server import ModelNames
from vivavoce.tts_engine.errors import Overloaded

SPEECH = {"text": "Hello.", "voice": "anna"}
VOICE = {
    "action": "create_voice",
    "target_model": "cosyvoice-v3",
    "prefix": "anna",
    "url": "data:,x",
    "voice_id": "v",
}


def speech(**fields: Any) -> SpeechSynthesizerRequest:
    return parse_message(SpeechSynthesizerRequest, {"model": "cosyvoice-v3", "input": SPEECH | fields})


def voice(**fields: Any) -> VoiceCustomizationRequest:
    return parse_message(VoiceCustomizationRequest, {"input": VOICE | fields})


def test_the_defaults_over_http_are_wav_at_24000_hz() -> None:
    sent = speech(format="", sample_rate=None).input
    assert (sent.format, sent.sample_rate, sent.volume) == ("wav", 24_000, 50)
    assert speech(format="Default", sample_rate=0).input.sample_rate == 22_050


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ([], "the request is not a JSON object"),
        ({}, "input must be an object"),
        ({"model": "cosyvoice-v3", "input": [1]}, "input must be an object"),
        ({"input": SPEECH}, "model is required"),
        ({"model": 7, "input": {}}, "model is required"),
        ({"model": "cosyvoice-v3", "input": {"voice": "anna"}}, "text is required"),
        ({"model": "cosyvoice-v3", "input": SPEECH | {"text": 7}}, "text is required"),
        (
            {"model": "cosyvoice-v3", "input": SPEECH | {"text": "x" * 20_001}},
            "input.text: 20001 characters; at most 20000 are allowed",
        ),
        (
            {"model": "cosyvoice-v3", "input": SPEECH | {"rate": 3, "text": ""}},
            "parameters.rate must be a number from 0.5 to 2.0",
        ),
    ],
)
def test_an_invalid_synthesis_request_is_refused_for_its_outermost_fault(body: Any, sentence: str) -> None:
    with pytest.raises(InvalidDashScopeField) as refusal:
        parse_message(SpeechSynthesizerRequest, body)
    assert str(refusal.value) == sentence


@pytest.mark.parametrize("model", ["cosyvoice", "cosyvoice-v3-flash", "CosyVoice.2", "vivavoce"])
def test_every_cosyvoice_is_accepted_as_model(model: str) -> None:
    assert parse_message(SpeechSynthesizerRequest, {"model": model, "input": SPEECH}).model == model


def test_another_model_is_not_found() -> None:
    with pytest.raises(DashScopeModelNotFound, match="Model not exist: 'paraformer-v2'"):
        voice_of_dashscope_model(ModelNames(), "paraformer-v2")
    assert voice_of_dashscope_model(ModelNames(), "cosyvoice-v3-flash") is None
    assert voice_of_dashscope_model(ModelNames({"german": "otto"}), "german") == "otto"


def test_an_action_is_parsed_to_the_model_of_that_action() -> None:
    created = voice().input
    assert isinstance(created, CreateVoiceInput)
    assert (created.max_prompt_audio_length, created.language_hints) == (10.0, ())
    listed = voice(action="list_voice", prefix=None, page_size=5.0).input
    assert listed == ListVoiceInput(action="list_voice", page_size=5)


def test_only_the_first_language_of_a_recording_is_read() -> None:
    sent = voice(language_hints=["en", 7]).input
    assert isinstance(sent, CreateVoiceInput)
    assert sent.language_hints == ("en",)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"action": "steal_voice"},
            "input.action must be one of create_voice, list_voice, query_voice, update_voice, delete_voice",
        ),
        (
            {"action": None},
            "input.action must be one of create_voice, list_voice, query_voice, update_voice, delete_voice",
        ),
        ({"prefix": "Anna"}, "input.prefix must match [a-z0-9]{1,10}"),
        ({"target_model": "../x"}, "input.target_model must match [A-Za-z0-9][A-Za-z0-9._-]{0,63}"),
        ({"url": ""}, "input.url is required: http, https or data"),
        ({"transcript": "x" * 1_001}, "input.transcript must be a string of at most 1000 characters"),
        ({"consent": 7}, "input.consent must be a string of at most 2000 characters"),
        ({"language_hints": ["x" * 17]}, "input.language_hints must be a list of language codes"),
        ({"max_prompt_audio_length": 2}, "input.max_prompt_audio_length must be a number from 3 to 30"),
        ({"action": "list_voice", "page_size": 0}, "input.page_size must be a number from 1 to 1000"),
        ({"action": "list_voice", "page_index": 0.5}, "input.page_index must be a whole number"),
        ({"action": "query_voice", "voice_id": None}, "input.voice_id is required"),
    ],
)
def test_an_invalid_action_is_refused_with_what_is_allowed(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidDashScopeField) as refusal:
        voice(**fields)
    assert str(refusal.value) == sentence


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.fixed_dictionaries(
    {"action": st.sampled_from(["create_voice", "list_voice", "update_voice"])},
    optional={
        name: JSON for name in ("target_model", "prefix", "url", "voice_id", "text", "voice", "format")
    },
)


@given(st.fixed_dictionaries({"input": FIELDS | JSON}, optional={"model": JSON}) | JSON)
@pytest.mark.parametrize("model", [SpeechSynthesizerRequest, VoiceCustomizationRequest])
def test_any_body_is_accepted_or_refused(model: type[DashScopeMessage], body: Any) -> None:
    try:
        parse_message(model, body)
    except (InvalidDashScopeField, DashScopeModelNotFound) as refusal:
        assert str(refusal)


@pytest.mark.parametrize(
    "model",
    [
        SpeechSynthesizerRequest,
        SpeechSynthesizerResponse,
        VoiceCustomizationRequest,
        VoiceCustomizationResponse,
        DashScopeErrorBody,
    ],
)
def test_every_model_has_a_json_schema_with_a_description(model: type[BaseModel]) -> None:
    schema = model.model_json_schema()
    assert schema["description"]
    json.dumps(schema)


def test_the_schema_lists_what_is_accepted() -> None:
    schema = SpeechSynthesizerRequest.model_json_schema()
    fields = schema["$defs"]["SpeechSynthesizerInput"]["properties"]
    assert fields["format"]["enum"] == ["Default", "mp3", "pcm", "wav", "opus"]
    assert (fields["seed"]["minimum"], fields["seed"]["maximum"]) == (0, 65_535)
    assert fields["text"]["maxLength"] == 20_000


def test_an_update_answers_an_empty_output() -> None:
    answer = VoiceCustomizationResponse(request_id="r", output=NoVoiceOutput())
    assert answer.model_dump() == {"request_id": "r", "output": {}, "usage": {"count": 1}}


@pytest.mark.parametrize(("reason", "status"), [("device", 503), ("process", 503), ("streams", 429)])
def test_a_server_that_cannot_speak_is_unavailable_and_a_full_one_limits_requests(
    reason: str, status: int
) -> None:
    described = DASHSCOPE_ERRORS.describe(Overloaded("not now", reason=reason, retry_after_s=1.0))
    assert (described.status, described.code) == (status, "Throttling.RateQuota")
