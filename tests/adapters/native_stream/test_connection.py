"""The socket's messages: what each says in its place, and what is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.audio.encoders import AudioFormat
from vivavoce.adapters.native_stream.connection import MAX_TEXT_CHARACTERS, NativeStreamConnection
from vivavoce.adapters.native_stream.encoding import encode
from vivavoce.adapters.native_stream.events import (
    AudioDone,
    AudioStart,
    AudioWords,
    CloseRequested,
    ConfigAccepted,
    InputCancel,
    InputDone,
    InputFlush,
    InputText,
    StreamErrorReport,
    UtteranceDone,
)
from vivavoce.adapters.openai.json_fields import InvalidRequestError
from vivavoce.tts_engine.chunk import Word


def message(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields})


def configured(**fields: Any) -> NativeStreamConnection:
    core = NativeStreamConnection()
    core.receive_data(message("session.config", **fields))
    return core


def test_a_conversation_of_two_utterances() -> None:
    core = NativeStreamConnection()
    first = core.receive_data(message("session.config", model="vivavoce", voice="alloy", word_times=True))
    assert isinstance(first, ConfigAccepted)
    assert first.configuration.word_times
    assert first.configuration.settings.audio == AudioFormat("wav")
    events = [
        core.receive_data(message(kind, **fields))
        for kind, fields in [
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


@pytest.mark.parametrize("kind", ["input.text", "input.flush", "input.done", "input.cancel"])
def test_nothing_is_said_before_a_configuration(kind: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"Expected session.config, got: {kind}"):
        NativeStreamConnection().receive_data(message(kind, text="Hello."))


def test_a_configuration_changes_between_utterances_and_not_within_one() -> None:
    core = configured(voice="alloy")
    core.receive_data(message("input.text", text="Hello"))
    with pytest.raises(
        InvalidRequestError, match=r"while an utterance is in progress; send input\.done first"
    ):
        core.receive_data(message("session.config", voice="ash"))
    core.receive_data(message("input.done"))
    core.receive_data(message("session.config", voice="ash"))
    pushed = core.receive_data(message("input.text", text="Hello"))
    assert isinstance(pushed, InputText)
    assert pushed.configuration.settings.voice == "ash"


def test_a_bad_configuration_leaves_the_one_before() -> None:
    core = configured(voice="alloy")
    with pytest.raises(InvalidRequestError):
        core.receive_data(message("session.config", speed=9))
    pushed = core.receive_data(message("input.text", text="Hello"))
    assert isinstance(pushed, InputText)
    assert pushed.configuration.settings.voice == "alloy"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"\0\0", "got a binary message"),
        ("", "could not parse the JSON"),
        ("[]", "got JSON that is a list; an object is needed"),
        ("{}", "Unknown message type: None"),
        (message("input.audio"), "Unknown message type: 'input.audio'; there are session.config"),
        (message("input.text"), "input.text requires a string value"),
        (message("input.text", text=5), "'text' is of type int"),
        (message("input.text", text="\ud800"), "half a surrogate pair"),
        (
            message("input.text", text="a" * (MAX_TEXT_CHARACTERS + 1)),
            f"at most {MAX_TEXT_CHARACTERS} are allowed",
        ),
        (message("session.config", word_times=1), "'word_times' is of type int; true or false is needed"),
        (message("session.config", word_timestamps=True), "'word_times' tells times beside it"),
        (message("session.config", ref_audio=5), "'ref_audio' is of type int; a string is needed"),
        (message("session.config", response_format="ogg"), "'response_format' is 'ogg'"),
    ],
)
def test_what_is_no_message_is_refused_and_changes_nothing(data: str | bytes, sentence: str) -> None:
    core = configured()
    with pytest.raises(InvalidRequestError) as raised:
        core.receive_data(data)
    assert sentence in str(raised.value)
    assert core.receive_data(message("input.text", text="a" * MAX_TEXT_CHARACTERS))


kinds = st.sampled_from(
    "session.config input.text input.flush input.done input.cancel session.close other".split()
)
values = st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.lists(st.integers(), max_size=2)


@given(st.lists(st.tuples(kinds, st.dictionaries(st.sampled_from(["text", "voice", "speed"]), values))))
def test_whatever_comes_utterances_only_count_up(messages: list[tuple[str, dict[str, Any]]]) -> None:
    core, last = NativeStreamConnection(), 0
    for kind, fields in messages:
        try:
            event = core.receive_data(message(kind, **fields))
        except InvalidRequestError:
            continue
        if isinstance(event, InputText | InputFlush | InputDone | InputCancel):
            assert event.utterance in (last, last + 1)
            last = event.utterance


def test_events_are_told_in_vllm_omnis_fields() -> None:
    told = [
        AudioStart(2, "Hello", "pcm", 24_000),
        AudioWords(2, (Word("Hello", 0.0204, 0.31, 0, 5),)),
        AudioDone(2, 960),
        UtteranceDone(2, 1),
        StreamErrorReport("too fast", "invalid_value", "speed", 2, 1.5),
        StreamErrorReport("no"),
    ]
    assert [json.loads(encode(event)) for event in told] == [
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
