"""DashScope's WebSocket frames to clients, and random frames from clients."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.gateways.dashscope_frames import CODEC, JAVA_TASK_ID, TASK_ID, Client
from vivavoce.adapters.dashscope.connection import (
    DashScopeProtocolError,
)
from vivavoce.adapters.dashscope.events import (
    DashScopeErrorCode,
    DashScopeIdleTimeout,
    SentenceBegin,
    SentenceEnd,
    SentenceSynthesis,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from vivavoce.tts_engine.chunk import Word

# Frames of the server


WORD = Word("there", 0.2504, 0.4, 6, 11)
STARTED = TaskStarted(TASK_ID)
BEGUN = SentenceBegin(TASK_ID, 0, "Hi there.")
SPOKEN = SentenceSynthesis(TASK_ID, 0)
ENDED = SentenceEnd(TASK_ID, 0, "Hi there.", (WORD,), 9)
FAILED = TaskFailed(
    TASK_ID, DashScopeErrorCode.THROTTLED, "Requests rate limit exceeded, please try again later"
)
FINISHED = TaskFinished(TASK_ID, 9)


@pytest.mark.parametrize(
    "event", [STARTED, BEGUN, SPOKEN, ENDED, FAILED, FINISHED], ids=lambda event: type(event).__name__
)
def test_every_frame_has_an_object_as_payload_and_echoes_the_task(event: Any) -> None:
    answer = json.loads(CODEC.encode(event))
    assert isinstance(answer["payload"], dict)
    assert answer["header"]["task_id"] == TASK_ID
    assert answer["header"]["attributes"] == {}
    assert answer["header"]["event"] in {"task-started", "result-generated", "task-finished", "task-failed"}


def test_frames_are_compact_ascii_json() -> None:
    assert CODEC.encode(SentenceBegin(TASK_ID, 0, "Grüß")) == (
        f'{{"header":{{"task_id":"{TASK_ID}","event":"result-generated","attributes":{{}}}},'
        '"payload":{"output":{"type":"sentence-begin","original_text":"Gr\\u00fc\\u00df",'
        '"sentence":{"index":0,"words":[]}}}}'
    )


def test_task_started_has_neither_output_nor_usage() -> None:
    assert json.loads(CODEC.encode(STARTED))["payload"] == {}


def test_a_failure_has_code_and_message_as_strings() -> None:
    header = json.loads(CODEC.encode(FAILED))["header"]
    assert header["error_code"] == "Throttling.RateQuota"
    assert header["error_message"] == "Requests rate limit exceeded, please try again later"


def test_the_end_of_a_sentence_has_word_times_in_milliseconds_and_the_characters_so_far() -> None:
    payload = json.loads(CODEC.encode(ENDED))["payload"]
    assert payload == {
        "output": {
            "type": "sentence-end",
            "original_text": "Hi there.",
            "sentence": {
                "index": 0,
                "words": [
                    {"text": "there", "begin_index": 6, "end_index": 11, "begin_time": 250, "end_time": 400}
                ],
            },
        },
        "usage": {"characters": 9},
    }


def test_the_other_events_are_as_documented() -> None:
    assert json.loads(CODEC.encode(BEGUN))["payload"] == {
        "output": {
            "type": "sentence-begin",
            "original_text": "Hi there.",
            "sentence": {"index": 0, "words": []},
        }
    }
    assert json.loads(CODEC.encode(SPOKEN))["payload"] == {
        "output": {"type": "sentence-synthesis", "sentence": {"index": 0, "words": []}}
    }
    assert json.loads(CODEC.encode(FINISHED))["payload"] == {
        "output": {"sentence": {"words": []}},
        "usage": {"characters": 9},
    }


# Random input


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
PARAMETERS = st.dictionaries(
    st.sampled_from(["voice", "format", "sample_rate", "bit_rate", "volume", "rate", "pitch", "seed"])
    | st.sampled_from(["text_type", "enable_ssml", "language_hints", "word_timestamp_enabled"])
    | st.text(),
    JSON | st.sampled_from(["mp3", "opus", "SSML", "64k", "²k", 1e999, 22_050, ["zh"], True]),
)
PAYLOADS = JSON | st.fixed_dictionaries(
    {},
    optional={
        "model": JSON | st.just("cosyvoice-v3"),
        "task": JSON,
        "input": JSON
        | st.fixed_dictionaries(
            {},
            optional={"text": JSON, "flush": JSON, "directive": JSON | st.just("cancel")},
        ),
        "parameters": JSON | PARAMETERS,
    },
)
HEADERS = st.fixed_dictionaries(
    {
        "action": st.sampled_from(["run-task", "continue-task", "finish-task"]),
        "task_id": st.sampled_from([TASK_ID, JAVA_TASK_ID]),
    }
)


@given(st.lists(st.fixed_dictionaries({"header": HEADERS, "payload": PAYLOADS}) | JSON, max_size=6))
def test_valid_headers_with_any_payload_are_accepted_or_refused(frames: list[Any]) -> None:
    client = Client()
    for data in frames:
        try:
            events = client.send(json.dumps(data))
        except DashScopeProtocolError as error:
            client.reply(error.reply)
            continue
        for event in events:
            assert not isinstance(event, DashScopeIdleTimeout)
            assert event.task_id == client.connection.task_id


@given(st.text() | st.binary())
def test_any_data_is_accepted_or_refused(data: str | bytes) -> None:
    assert Client().refusal_of(data).code == "InvalidParameter"
