"""The native stream's messages: parsing, their order, and the server's messages."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.audio.encoders import AudioFormat
from vivavoce.gateway.apis.dialects.native_stream.connection import (
    CloseRequested,
    ConfigAccepted,
    InputCancel,
    InputDone,
    InputFlush,
    InputText,
    NativeStreamConnection,
    NativeStreamEvent,
)
from vivavoce.gateway.apis.dialects.native_stream.models import (
    MAX_TEXT_CHARACTERS,
    AudioDone,
    AudioStart,
    AudioWords,
    StreamErrorReport,
    UtteranceDone,
    WordTime,
    parse_message,
)
from vivavoce.gateway.apis.kits.openai.errors import InvalidRequestError
from vivavoce.tts_engine.chunk import Word


def receive(connection: NativeStreamConnection, message_type: str, **fields: Any) -> NativeStreamEvent:
    return connection.receive(parse_message(json.dumps({"type": message_type, **fields})))


def configured(**fields: Any) -> NativeStreamConnection:
    connection = NativeStreamConnection()
    receive(connection, "session.config", **fields)
    return connection


def test_a_conversation_of_two_utterances() -> None:
    connection = NativeStreamConnection()
    first = receive(connection, "session.config", model="vivavoce", voice="alloy", word_times=True)
    assert isinstance(first, ConfigAccepted)
    assert first.configuration.word_times
    assert first.configuration.audio == AudioFormat("wav")
    events = [
        receive(connection, message_type, **fields)
        for message_type, fields in [
            ("input.text", {"text": "Hel"}),
            ("input.text", {"text": "lo."}),
            ("input.flush", {}),
            ("input.done", {}),
            ("input.text", {"text": "Bye."}),
            ("input.cancel", {}),
            ("session.close", {}),
        ]
    ]
    assert events == [
        InputText(0, "Hel", first.configuration),
        InputText(0, "lo.", first.configuration),
        InputFlush(0),
        InputDone(0),
        InputText(1, "Bye.", first.configuration),
        InputCancel(1),
        CloseRequested(),
    ]


@pytest.mark.parametrize("message_type", ["input.text", "input.flush", "input.done", "input.cancel"])
def test_input_before_a_configuration_is_refused(message_type: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"Expected session.config, got: {message_type}"):
        receive(NativeStreamConnection(), message_type, text="Hello.")


def test_a_configuration_changes_between_utterances_and_not_within_one() -> None:
    connection = configured(voice="alloy")
    receive(connection, "input.text", text="Hello")
    with pytest.raises(
        InvalidRequestError, match=r"while an utterance is in progress; send input\.done first"
    ):
        receive(connection, "session.config", voice="ash")
    receive(connection, "input.done")
    receive(connection, "session.config", voice="ash")
    pushed = receive(connection, "input.text", text="Hello")
    assert isinstance(pushed, InputText)
    assert pushed.configuration.voice == "ash"


def test_a_bad_configuration_leaves_the_one_before() -> None:
    connection = configured(voice="alloy")
    with pytest.raises(InvalidRequestError):
        receive(connection, "session.config", speed=9)
    pushed = receive(connection, "input.text", text="Hello")
    assert isinstance(pushed, InputText)
    assert pushed.configuration.voice == "alloy"


def text_of(message_type: str, **fields: Any) -> str:
    return json.dumps({"type": message_type, **fields})


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\0\0", "got a binary message"),
        ("", "could not parse the JSON"),
        ("[]", "got JSON that is a list; an object is needed"),
        ("{}", "Unknown message type: None"),
        ('{"type": 5}', "Unknown message type: 5"),
        (
            text_of("input.audio"),
            "Unknown message type: 'input.audio'; there are session.config, input.text, input.flush, "
            "input.done, input.cancel, session.close",
        ),
        (text_of("input.text"), "input.text requires a string value"),
        (text_of("input.text", text=None), "input.text requires a string value"),
        (text_of("input.text", text=5), "'text' is of type int"),
        (text_of("input.text", text="\ud800"), "half a surrogate pair"),
        (
            text_of("input.text", text="a" * (MAX_TEXT_CHARACTERS + 1)),
            f"at most {MAX_TEXT_CHARACTERS} are allowed",
        ),
        (text_of("session.config", speed=9), "'speed' is 9; allowed is 0.25 to 4"),
        (text_of("session.config", word_times=1), "'word_times' is of type int; true or false is needed"),
        (text_of("session.config", word_timestamps=True), "set 'word_times' to receive audio.words"),
        (text_of("session.config", ref_audio=5), "'ref_audio' is of type int; a string is needed"),
        (text_of("session.config", response_format="amr"), "'response_format' is 'amr'"),
    ],
)
def test_a_malformed_message_is_refused_with_a_reason(data: str | bytes, sentence: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        parse_message(data)
    assert sentence in str(raised.value)


def test_a_text_of_the_greatest_length_is_accepted() -> None:
    assert receive(configured(), "input.text", text="a" * MAX_TEXT_CHARACTERS)


types = st.sampled_from(
    "session.config input.text input.flush input.done input.cancel session.close other".split()
)
values = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=2)


@given(st.lists(st.tuples(types, st.dictionaries(st.sampled_from(["text", "voice", "speed"]), values))))
def test_utterances_count_up_by_one_whatever_is_sent(messages: list[tuple[str, dict[str, Any]]]) -> None:
    connection, last = NativeStreamConnection(), 0
    for message_type, fields in messages:
        try:
            event = receive(connection, message_type, **fields)
        except InvalidRequestError:
            continue
        if isinstance(event, InputText | InputFlush | InputDone | InputCancel):
            assert event.utterance in (last, last + 1)
            last = event.utterance


def test_the_servers_messages_have_vllm_omnis_fields() -> None:
    messages = [
        AudioStart(utterance_index=2, sentence_text="Hello", format="pcm", sample_rate=24_000),
        AudioWords(utterance_index=2, words=[WordTime.from_word(Word("Hello", 0.0204, 0.31, 0, 5))]),
        AudioDone(utterance_index=2, total_bytes=960),
        UtteranceDone(utterance_index=2, total_sentences=1),
        StreamErrorReport(
            message="too fast", code="invalid_value", param="speed", utterance_index=2, retry_after_s=1.5
        ),
        StreamErrorReport(message="no"),
    ]
    assert [json.loads(message.encode()) for message in messages] == [
        {
            "type": "audio.start",
            "utterance_index": 2,
            "sentence_index": 0,
            "sentence_text": "Hello",
            "format": "pcm",
            "sample_rate": 24_000,
            "channels": 1,
        },
        {
            "type": "audio.words",
            "utterance_index": 2,
            "words": [{"word": "Hello", "start_ms": 20, "end_ms": 310, "text_start": 0, "text_end": 5}],
        },
        {"type": "audio.done", "utterance_index": 2, "sentence_index": 0, "total_bytes": 960, "error": False},
        {"type": "session.done", "utterance_index": 2, "total_sentences": 1, "cancelled": False},
        {
            "type": "error",
            "message": "too fast",
            "code": "invalid_value",
            "param": "speed",
            "utterance_index": 2,
            "retry_after_s": 1.5,
        },
        {"type": "error", "message": "no"},
    ]
