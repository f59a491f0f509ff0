"""OpenAI's requests: every field, each limit from both sides, OpenAI's error for each fault, random JSON."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.audio.encoders import AudioFormat
from vivavoce.gateway.apis.dialects.openai.models import (
    CreateSpeechRequest,
    SpeechAudioDelta,
    SpeechAudioDone,
    SpeechAudioError,
    SpeechUsage,
)
from vivavoce.gateway.apis.dialects.openai.request_reading import parse_speech_request
from vivavoce.gateway.apis.dialects.openai.speech_api import encode_server_sent_event
from vivavoce.gateway.apis.kits.openai.errors import (
    OPENAI_ERRORS,
    InvalidRequestError,
    OpenAIError,
)
from vivavoce.gateway.apis.kits.openai.voice_resolver import make_synthesis_options
from vivavoce.tts_engine.errors import Overloaded, UnknownVoice
from vivavoce.tts_engine.reading.pronunciation.entries import lexicon_of
from vivavoce.tts_engine.stream_request import Delivery

MAX_CHARACTERS = 4_096


def parse(**fields: Any) -> CreateSpeechRequest:
    body = {"model": "tts-1", "input": "Hello.", "voice": "alloy", **fields}
    return parse_speech_request(json.dumps(body).encode(), MAX_CHARACTERS)


def error_of(**fields: Any) -> InvalidRequestError:
    with pytest.raises(InvalidRequestError) as raised:
        parse(**fields)
    return raised.value


def test_parameters_of_sampling_reach_the_engine() -> None:
    request = parse(temperature=0.7, top_k=20, top_p=1, repetition_penalty=1.0, initial_codec_chunk_frames=50)
    delivery = make_synthesis_options(request, None).delivery
    assert (delivery.temperature, delivery.top_k, delivery.top_p) == (0.7, 20, 1.0)
    assert (delivery.repetition_window, delivery.first_hop) == (0, 50)
    assert delivery.repetition_penalty == 1.0
    assert make_synthesis_options(parse(repetition_penalty=None), None).delivery == Delivery()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0),
        ("temperature", 11),
        ("top_k", 0),
        ("top_p", 1.1),
        ("repetition_penalty", 0),
        ("initial_codec_chunk_frames", -1),
    ],
)
def test_parameters_of_sampling_have_openais_error_for_a_value_out_of_range(name: str, value: float) -> None:
    error = error_of(**{name: value})
    assert (error.param, name in str(error)) == (name, True)


def test_absent_fields_have_openais_defaults() -> None:
    request = parse_speech_request(b'{"input": "Hello."}', MAX_CHARACTERS)
    assert request.input == "Hello."
    assert request.stream_format == "audio"
    assert request.audio == AudioFormat("mp3", 24_000)
    assert (request.model, request.voice) == (None, None)
    assert (request.speed, request.volume_multiplier, request.seed) == (1.0, 1.0, 0)


def test_every_field_is_parsed() -> None:
    request = parse(
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
    assert request.stream_format == "sse"
    assert request.audio == AudioFormat("opus", 16_000)
    assert (request.speed, request.seed, request.volume_multiplier) == (1.5, 7, 2.0)
    assert (request.instructions, request.language) == ("Whisper.", "en")
    assert (request.ref_audio, request.ref_text) == ("https://example.org/a.wav", "Hello.")


def test_pronunciations_are_a_lexicon_ahead_of_the_others() -> None:
    entries = {"nginx": "engine x", "Siobhan": "/ʃɪˈvɔːn/"}
    assert make_synthesis_options(parse(pronunciations=entries), None).lexicon == lexicon_of(entries)
    assert make_synthesis_options(parse(), None).lexicon is None


@pytest.mark.parametrize(
    ("entries", "param", "problem"),
    [
        ({"x": "/SH IH/"}, "pronunciations", "pronunciation of 'x': '/SH IH/' is not IPA"),
        ({" ": "y"}, "pronunciations", "allowed are 1 to 64 characters"),
        ({str(number): "y" for number in range(101)}, "pronunciations", "101 pronunciations; at most 100"),
        ("x", "pronunciations", "an object is needed"),
        ({"x": 7}, "x", "a string is needed"),
    ],
)
def test_wrong_pronunciations_are_refused(entries: object, param: str, problem: str) -> None:
    error = error_of(pronunciations=entries)
    assert (error.param, problem in str(error)) == (param, True)


@pytest.mark.parametrize("voice", ["nova", {"id": "nova"}])
def test_a_voice_is_a_name_or_an_object_with_an_id(voice: object) -> None:
    assert parse(voice=voice).voice == "nova"


def test_a_voice_may_be_called_speaker() -> None:
    assert parse(voice=None, speaker="nova").voice == "nova"


def test_a_speaker_beside_a_voice_is_ignored() -> None:
    assert parse(voice="nova", speaker=5).voice == "nova"


def test_unknown_fields_are_ignored() -> None:
    request = parse(
        stream=True,
        lang_code="a",
        normalization_options={"normalize": True},
        return_download_link=False,
        something_new=[1],
    )
    assert request == parse()


@pytest.mark.parametrize(
    "name", ["model", "voice", "response_format", "speed", "instructions", "stream_format", "seed"]
)
def test_null_equals_an_absent_field(name: str) -> None:
    parse(**{name: None})


@pytest.mark.parametrize(
    ("name", "minimum", "maximum"),
    [
        ("speed", 0.25, 4.0),
        ("volume_multiplier", 0, 10),
        ("liveliness", 0.8, 1.6),
        ("seed", -(2**63), 2**63 - 1),
        ("leading_silence_ms", 0, 10_000),
        ("trailing_silence_ms", 0, 10_000),
    ],
)
def test_numbers_are_accepted_up_to_their_limits_and_no_further(
    name: str, minimum: float, maximum: float
) -> None:
    parse(**{name: minimum})
    parse(**{name: maximum})
    step = 1 if isinstance(maximum, int) and name != "volume_multiplier" else 0.001
    for value in (minimum - step, maximum + step):
        assert error_of(**{name: value}).param == name


@pytest.mark.parametrize(("speed", "side"), [(-(10**400), "below_min"), (10**400, "above_max")])
def test_an_integer_that_no_float_can_hold_is_out_of_range(speed: int, side: str) -> None:
    error = error_of(speed=speed)
    assert (error.param, error.code) == ("speed", f"decimal_{side}_value")


def test_a_negative_seed_becomes_one_of_the_engines() -> None:
    assert parse(seed=-1).seed == 2**63 - 1


def test_the_input_is_accepted_up_to_the_servers_limit_and_no_further() -> None:
    assert len(parse(input="a" * MAX_CHARACTERS).input) == MAX_CHARACTERS
    error = error_of(input="a" * (MAX_CHARACTERS + 1))
    assert (error.param, error.code) == ("input", "string_above_max_length")
    assert str(error) == "'input' has 4097 characters; at most 4096 are allowed"


def test_other_strings_have_limits_too() -> None:
    parse(model="m" * 256, voice="v" * 256, instructions="i" * 4_096)
    assert error_of(model="m" * 257).param == "model"
    assert error_of(voice="v" * 257).param == "voice"
    assert error_of(instructions="i" * 4_097).param == "instructions"
    error = error_of(response_format="f" * 257)
    assert str(error) == "'response_format' has 257 characters; at most 256 are allowed"


@pytest.mark.parametrize(
    ("fields", "param", "code", "sentence"),
    [
        ({"input": None}, "input", "missing_required_parameter", "'input' is required"),
        (
            {"input": ""},
            "input",
            "string_below_min_length",
            "'input' is empty; at least 1 character is needed",
        ),
        ({"input": 5}, "input", "invalid_type", "'input' is of type int; a string is needed"),
        ({"input": ["a"]}, "input", "invalid_type", "'input' is of type list; a string is needed"),
        ({"input": "\ud800"}, "input", "invalid_value", "'input' has half a surrogate pair in it"),
        (
            {"ref_audio": "\ud800"},
            "ref_audio",
            "invalid_value",
            "'ref_audio' has half a surrogate pair in it",
        ),
        ({"model": 1}, "model", "invalid_type", "'model' is of type int"),
        ({"voice": {}}, "voice", None, "'voice' is an object without an id"),
        ({"voice": {"id": 5}}, "voice", "invalid_type", "'voice' is of type int"),
        ({"voice": True}, "voice", "invalid_type", "'voice' is of type bool"),
        ({"voice": None, "speaker": 5}, "speaker", "invalid_type", "'speaker' is of type int"),
        ({"speed": "fast"}, "speed", "invalid_type", "'speed' is of type str; a number is needed"),
        ({"speed": "1.0"}, "speed", "invalid_type", "'speed' is of type str; a number is needed"),
        ({"speed": True}, "speed", "invalid_type", "'speed' is of type bool; a number is needed"),
        ({"speed": 5}, "speed", "decimal_above_max_value", "'speed' is 5; allowed is 0.25 to 4"),
        ({"speed": 0.1}, "speed", "decimal_below_min_value", "'speed' is 0.1; allowed is 0.25 to 4"),
        ({"speed": 1e400}, "", None, ""),
        ({"seed": 1.5}, "seed", "invalid_type", "'seed' is of type float; a whole number is needed"),
        (
            {"seed": 2**63},
            "seed",
            "invalid_value",
            "'seed' is out of range; allowed is -9223372036854775808 to",
        ),
        ({"response_format": 5}, "response_format", "invalid_type", "is of type int; a string is needed"),
        (
            {"response_format": "amr"},
            "response_format",
            "invalid_value",
            "'response_format' is 'amr'; allowed are pcm, wav, mp3, opus, webm, aac, m4a, flac, ulaw, alaw",
        ),
        (
            {"stream_format": "ws"},
            "stream_format",
            "invalid_value",
            "'stream_format' is 'ws'; allowed are audio, sse",
        ),
        (
            {"sample_rate": 44_000},
            "sample_rate",
            "invalid_value",
            "got a sample rate of 44000 Hz; allowed are 8000",
        ),
        ({"sample_rate": 0}, "sample_rate", "invalid_value", "'sample_rate' is out of range"),
    ],
)
def test_an_error_names_the_field_what_was_got_and_what_is_allowed(
    fields: dict[str, Any], param: str, code: str | None, sentence: str
) -> None:
    error = error_of(**fields)
    assert (error.param or "", error.code) == (param, code)
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
def test_a_body_that_is_not_a_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        parse_speech_request(body, MAX_CHARACTERS)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(
    "model input voice speaker response_format speed stream_format seed sample_rate instructions language "
    "volume_multiplier liveliness ref_audio ref_text anything".split()
)


@given(st.dictionaries(names, values))
def test_a_request_of_any_values_is_parsed_or_refused(fields: dict[str, Any]) -> None:
    try:
        request = parse_speech_request(json.dumps(fields).encode(), MAX_CHARACTERS)
    except InvalidRequestError:
        return
    assert 1 <= len(request.input) <= MAX_CHARACTERS
    assert 0 <= request.seed < 2**63


def test_events_have_the_shape_that_clients_read() -> None:
    def parsed(event: bytes) -> Any:
        assert event.startswith(b"data: ")
        assert event.endswith(b"\n\n")
        return json.loads(event[6:])

    audio = base64.b64encode(b"\x00\xff").decode()
    delta = parsed(encode_server_sent_event(SpeechAudioDelta(audio=audio)))
    assert delta == {"type": "speech.audio.delta", "audio": audio}
    usage = {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
    done = parsed(encode_server_sent_event(SpeechAudioDone(usage=SpeechUsage(**usage))))
    assert done == {"type": "speech.audio.done", "usage": usage}
    detail = OpenAIError(500, message="it broke", type="server_error").detail
    assert parsed(encode_server_sent_event(SpeechAudioError(error=detail))) == {
        "type": "speech.audio.error",
        "error": {"message": "it broke", "type": "server_error", "param": None, "code": None},
    }


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (UnknownVoice("no voice 'x'"), 400, "voice_not_found"),
        (Overloaded("full", reason="streams", retry_after_s=1.5), 503, "overloaded_streams"),
    ],
)
def test_errors_of_the_engine_have_openais_status_and_code(error: Exception, status: int, code: str) -> None:
    response = OPENAI_ERRORS.describe(error)
    assert (response.status, response.code) == (status, code)


def test_a_retry_is_advised_in_whole_seconds() -> None:
    error = Overloaded("full", reason="streams", retry_after_s=1.5)
    assert OPENAI_ERRORS.describe(error).headers == {"retry-after": "2"}


def test_the_text_of_an_unknown_exception_is_not_disclosed() -> None:
    response = OPENAI_ERRORS.describe(RuntimeError("a secret path"))
    assert (response.status, response.message) == (500, "the request failed inside the server")
