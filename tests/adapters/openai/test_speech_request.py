"""OpenAI's requests, read: every field and every limit from both sides, and garbage of every kind."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.audio.encoders import AudioFormat
from vivavoce.adapters.openai.json_fields import InvalidRequestError
from vivavoce.adapters.openai.responses import (
    audio_delta_event,
    audio_done_event,
    audio_error_event,
    error_body,
    models_body,
)
from vivavoce.adapters.openai.speech_request import (
    CreateSpeechRequest,
    OpenAIStreamFormat,
    parse_speech_request,
)

LONGEST = 4_096


def read(**fields: Any) -> CreateSpeechRequest:
    body = {"model": "tts-1", "input": "Hello.", "voice": "alloy", **fields}
    return parse_speech_request(json.dumps(body).encode(), LONGEST)


def refused(**fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as raised:
        read(**fields)
    return raised.value


def test_the_least_request_is_filled_with_openais_defaults() -> None:
    request = parse_speech_request(b'{"input": "Hello."}', LONGEST)
    assert request.text == "Hello."
    assert request.stream_format is OpenAIStreamFormat.AUDIO
    assert request.settings.audio == AudioFormat("mp3", 24_000)
    assert (request.settings.model, request.settings.voice) == (None, None)
    assert (request.settings.speed, request.settings.volume, request.settings.seed) == (1.0, 1.0, 0)


def test_a_whole_request_is_read() -> None:
    request = read(
        response_format="opus",
        speed=1.5,
        instructions="Whisper.",
        stream_format="sse",
        sample_rate=16_000,
        seed=7,
        language="en",
        volume_multiplier=2,
        ref_audio="https://example.org/a.wav",
        ref_text="Hello.",
    )
    settings = request.settings
    assert request.stream_format is OpenAIStreamFormat.SSE
    assert settings.audio == AudioFormat("opus", 16_000)
    assert (settings.speed, settings.seed, settings.volume) == (1.5, 7, 2.0)
    assert (settings.instructions, settings.language) == ("Whisper.", "en")
    assert (settings.ref_audio, settings.ref_text) == ("https://example.org/a.wav", "Hello.")


@pytest.mark.parametrize("voice", ["nova", {"id": "nova"}])
def test_a_voice_is_a_name_or_an_object_with_an_id(voice: object) -> None:
    assert read(voice=voice).settings.voice == "nova"


def test_a_voice_may_be_called_speaker() -> None:
    assert read(voice=None, speaker="nova").settings.voice == "nova"


def test_fields_that_mean_nothing_here_are_ignored() -> None:
    request = read(
        stream=True,
        lang_code="a",
        normalization_options={"normalize": True},
        return_download_link=False,
        initial_codec_chunk_frames=4,
        something_new=[1],
    )
    assert request == read()


@pytest.mark.parametrize(
    "name", ["model", "voice", "response_format", "speed", "instructions", "stream_format", "seed"]
)
def test_null_is_the_same_as_nothing(name: str) -> None:
    read(**{name: None})


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [("speed", 0.25, 4.0), ("volume_multiplier", 0, 10), ("seed", -(2**63), 2**63 - 1)],
)
def test_numbers_are_taken_up_to_their_limits_and_no_further(name: str, least: float, most: float) -> None:
    read(**{name: least})
    read(**{name: most})
    step = 1 if name == "seed" else 0.001
    for value in (least - step, most + step):
        assert refused(**{name: value}).param == name


def test_text_is_taken_up_to_its_limit_and_no_further() -> None:
    assert len(read(input="a" * LONGEST).text) == LONGEST
    error = refused(input="a" * (LONGEST + 1))
    assert (error.param, error.code) == ("input", "string_above_max_length")
    assert str(error) == "'input' has 4097 characters; at most 4096 are allowed"


def test_other_strings_have_limits_too() -> None:
    read(model="m" * 256, voice="v" * 256, instructions="i" * 4_096)
    assert refused(model="m" * 257).param == "model"
    assert refused(voice="v" * 257).param == "voice"
    assert refused(instructions="i" * 4_097).param == "instructions"


@pytest.mark.parametrize(
    ("fields", "param", "sentence"),
    [
        ({"input": None}, "input", "'input' is required"),
        ({"input": ""}, "input", "'input' is empty; at least 1 character is needed"),
        ({"input": 5}, "input", "'input' is of type int; a string is needed"),
        ({"input": ["a"]}, "input", "'input' is of type list; a string is needed"),
        ({"input": "\ud800"}, "input", "'input' has half a surrogate pair in it"),
        ({"model": 1}, "model", "'model' is of type int"),
        ({"voice": {}}, "voice", "'voice' is an object without an id"),
        ({"voice": {"id": 5}}, "voice", "'voice' is of type int"),
        ({"voice": True}, "voice", "'voice' is of type bool"),
        ({"speed": "fast"}, "speed", "'speed' is of type str; a number is needed"),
        ({"speed": True}, "speed", "'speed' is of type bool; a number is needed"),
        ({"speed": 1e400}, "", ""),
        ({"seed": 1.5}, "seed", "'seed' is of type float; a whole number is needed"),
        ({"response_format": "ogg"}, "response_format", "'response_format' is 'ogg'; allowed are pcm, wav"),
        ({"stream_format": "ws"}, "stream_format", "'stream_format' is 'ws'; allowed are audio, sse"),
        ({"sample_rate": 44_000}, "sample_rate", "got a sample rate of 44000 Hz; allowed are 8000"),
        ({"sample_rate": 0}, "sample_rate", "'sample_rate' is out of range"),
    ],
)
def test_what_is_wrong_is_said_with_the_field_and_what_is_allowed(
    fields: dict[str, Any], param: str, sentence: str
) -> None:
    error = refused(**fields)
    assert (error.param or "") == param
    assert sentence in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"input": NaN}',
        b"\xff\xfe\x00",
        b'{"input": "\xff"}',
        b"[" * 100_000,
        b'{"seed": ' + b"9" * 5_000 + b', "input": "a"}',
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        parse_speech_request(body, LONGEST)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    "model input voice speaker response_format speed stream_format seed sample_rate instructions language "
    "volume_multiplier ref_audio ref_text anything".split()
)


@given(st.dictionaries(names, values))
def test_whatever_the_fields_hold_it_is_read_or_refused(fields: dict[str, Any]) -> None:
    try:
        request = parse_speech_request(json.dumps(fields).encode(), LONGEST)
    except InvalidRequestError:
        return
    assert 1 <= len(request.text) <= LONGEST
    assert 0 <= request.settings.seed < 2**63


def test_events_are_those_that_clients_read() -> None:
    def parsed(event: bytes) -> Any:
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        return json.loads(event[6:])

    delta = parsed(audio_delta_event(b"\x00\xff"))
    assert (delta["type"], base64.b64decode(delta["audio"])) == ("speech.audio.delta", b"\x00\xff")
    usage = {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
    assert parsed(audio_done_event(2, 3)) == {"type": "speech.audio.done", "usage": usage}
    failure = parsed(audio_error_event(error_body("it broke", "server_error")))
    assert failure == {
        "type": "speech.audio.error",
        "error": {"message": "it broke", "type": "server_error", "param": None, "code": None},
    }


def test_models_are_listed_as_openai_lists_them() -> None:
    assert models_body(("tts-1",), 5) == {
        "object": "list",
        "data": [{"id": "tts-1", "object": "model", "created": 5, "owned_by": "vivavoce"}],
    }
