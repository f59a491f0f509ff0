"""The JSON of DashScope's WebSocket: valid frames become events, wrong ones a refusal with a sentence."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.dashscope.connection import (
    MAX_FRAME_CHARACTERS,
    MAX_TASK_ID_CHARACTERS,
    DashScopeConnection,
    DashScopeProtocolError,
    DashScopeState,
)
from vivavoce.adapters.dashscope.events import (
    CancelTask,
    ContinueTask,
    DashScopeErrorCode,
    DashScopeEvent,
    DashScopeIdleTimeout,
    FinishTask,
    FlushTask,
    RunTask,
    SentenceBegin,
    SentenceEnd,
    SentenceSynthesis,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from vivavoce.gateway.apis.dashscope.errors import InvalidDashScopeField
from vivavoce.gateway.apis.dashscope.frames import DashScopeFrameCodec
from vivavoce.gateway.apis.dashscope.parameters import MAX_TEXT_CHARACTERS, SpeechParameters
from vivavoce.tts_engine.chunk import Word

CODEC = DashScopeFrameCodec()
A, B = "0a" * 16, "1f6c21a8-4c3e-4d2b-9f50-0123456789ab"  # as the Python and the Java SDK write task ids


def frame(action: str, task_id: str = A, input: Any = None, **payload: Any) -> str:
    header = {"action": action, "task_id": task_id, "streaming": "duplex"}
    return json.dumps({"header": header, "payload": {"input": {} if input is None else input, **payload}})


def run(task_id: str = A, input: Any = None, model: Any = "cosyvoice-v3-flash", **parameters: Any) -> str:
    parameters = {"voice": "longanyang", **parameters}
    return frame(
        "run-task",
        task_id,
        input,
        model=model,
        task_group="audio",
        task="tts",
        function="SpeechSynthesizer",
        parameters=parameters,
    )


def text(words: Any, task_id: str = A) -> str:
    return frame("continue-task", task_id, {"text": words})


class Client:
    """Sends JSON to a connection with the real codec."""

    def __init__(self) -> None:
        self.connection = DashScopeConnection(CODEC, 0.0)

    def send(self, data: str | bytes) -> list[DashScopeEvent[SpeechParameters]]:
        self.connection.receive_data(data, 0.0)
        return list(self.connection.events())

    def refusal_of(self, data: str | bytes) -> TaskFailed:
        with pytest.raises(DashScopeProtocolError) as caught:
            self.send(data)
        return caught.value.reply

    def reply(self, event: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = json.loads(self.connection.send(event, 0.0))
        return answer

    def in_state(self, state: DashScopeState) -> "Client":
        if state is not DashScopeState.IDLE:
            self.send(run())
            self.reply(TaskStarted(A))
        if state is DashScopeState.FINISHING:
            self.send(frame("finish-task"))
        return self


# Frames of a client


def test_a_task_from_its_beginning_to_its_end() -> None:
    client = Client()
    (begun,) = client.send(run())
    assert isinstance(begun, RunTask)
    assert begun.model == "cosyvoice-v3-flash"
    assert client.reply(TaskStarted(A))["header"]["event"] == "task-started"
    assert client.send(text("Hello, ")) == [ContinueTask(A, "Hello, ")]
    assert client.send(frame("continue-task", A, {"flush": True})) == [FlushTask(A)]
    assert client.send(text("world.")) == [ContinueTask(A, "world.")]
    assert client.send(frame("finish-task")) == [FinishTask(A)]
    assert client.reply(TaskFinished(A, 13))["payload"]["usage"] == {"characters": 13}
    assert client.connection.state is DashScopeState.IDLE


def test_the_defaults_of_a_task_are_those_of_the_sdk() -> None:
    begun = Client().send(run())[0]
    assert isinstance(begun, RunTask)
    assert begun.parameters == SpeechParameters(voice="longanyang", format="mp3", sample_rate=22_050)


@pytest.mark.parametrize(
    "input", [{"flush": False}, {"flush": "yes"}, {"flush": None}, {"text": ""}, {"text": None}]
)
def test_a_continue_task_without_text_or_flush_is_no_event(input: Any) -> None:
    assert Client().in_state(DashScopeState.OPEN).send(frame("continue-task", A, input)) == []


def test_cancelling_is_a_directive_of_finish_task() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    assert client.send(frame("finish-task", A, {"directive": "cancel"})) == [CancelTask(A)]


def test_the_java_sdk_sends_the_first_text_in_run_task() -> None:
    begun, pushed = Client().send(run(B, {"text": "Hello."}))
    assert isinstance(begun, RunTask)
    assert pushed == ContinueTask(B, "Hello.")


def test_fields_that_the_sdks_add_may_be_left_out() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    bare = {"header": {"action": "continue-task", "task_id": A}, "payload": {"input": {"text": "hi"}}}
    assert client.send(json.dumps(bare)) == [ContinueTask(A, "hi")]


def test_frames_of_an_ended_task_are_ignored_whatever_they_contain() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.reply(TaskFinished(A, 0))
    assert client.send(text(3)) == client.send(text("too late")) == []


@pytest.mark.parametrize("character", ["x", "\N{SNOWMAN}", "\N{GRINNING FACE}"])
def test_20000_characters_fit_one_frame_however_they_are_escaped(character: str) -> None:
    (pushed,) = Client().in_state(DashScopeState.OPEN).send(text(character * MAX_TEXT_CHARACTERS))
    assert pushed == ContinueTask(A, character * MAX_TEXT_CHARACTERS)


def test_20001_characters_are_refused() -> None:
    refusal = Client().in_state(DashScopeState.OPEN).refusal_of(text("x" * (MAX_TEXT_CHARACTERS + 1)))
    assert refusal == TaskFailed(
        A,
        DashScopeErrorCode.INVALID_PARAMETER,
        "input.text: 20001 characters in one frame; at most 20000 are allowed",
    )


def test_the_longest_task_id_is_echoed() -> None:
    client, longest = Client(), "x" * MAX_TASK_ID_CHARACTERS
    client.send(run(longest))
    assert client.reply(TaskStarted(longest))["header"]["task_id"] == longest


def test_half_a_utf16_pair_becomes_a_replacement_character() -> None:
    (pushed,) = Client().in_state(DashScopeState.OPEN).send(text("a\ud83d!"))
    assert pushed == ContinueTask(A, "a\N{REPLACEMENT CHARACTER}!")


# SSML


@pytest.mark.parametrize(
    ("parameters", "words", "is_ssml"),
    [
        ({"enable_ssml": True}, "<speak>Hi</speak>", True),
        ({"enable_ssml": True}, " \n<speak>Hi</speak>", True),
        ({"enable_ssml": True}, "Plain, as every call() of the SDK.", False),
        ({}, "<speak>Hi</speak>", False),
        ({"text_type": "SSML"}, "<speak>Hi</speak>", True),
    ],
)
def test_a_text_is_ssml_if_the_task_allows_it_and_it_looks_like_it(
    parameters: dict[str, Any], words: str, is_ssml: bool
) -> None:
    client = Client()
    (begun,) = client.send(run(**parameters))
    assert isinstance(begun, RunTask)
    assert client.send(text(words)) == [ContinueTask(A, words)]
    assert begun.parameters.is_ssml(words) is is_ssml


def test_plain_text_is_refused_where_the_task_demands_ssml() -> None:
    (begun,) = Client().send(run(text_type="SSML"))
    assert isinstance(begun, RunTask)
    with pytest.raises(InvalidDashScopeField, match="must be a <speak> document"):
        begun.parameters.is_ssml("plain")


# Wrong frames

UNREADABLE = {
    "not JSON": ("{", "the frame is not JSON"),
    "empty": ("", "the frame is not JSON"),
    "binary": (b"{}", "a binary frame; send JSON in text frames"),
    "a number": ("3", "the frame is not a JSON object"),
    "a list": ("[]", "the frame is not a JSON object"),
    "not a number": ('{"header": NaN}', "the frame is not JSON"),
    "deep": ("[" * 100_000, "the frame is not JSON"),
    "long digits": ("9" * 5_000, "the frame is not JSON"),
    "no header": ("{}", "header.task_id must be a string of 1 to 64 characters"),
    "header of another type": ('{"header": []}', "header must be an object"),
    "no task id": ('{"header": {"action": "run-task"}}', "header.task_id must be"),
    "task id of another type": ('{"header": {"action": "run-task", "task_id": 3}}', "header.task_id must be"),
    "empty task id": ('{"header": {"action": "run-task", "task_id": ""}}', "header.task_id must be"),
    "long task id": (frame("run-task", "x" * (MAX_TASK_ID_CHARACTERS + 1)), "header.task_id must be"),
    "no action": (
        json.dumps({"header": {"task_id": B}}),
        "header.action must be one of run-task, continue-task, finish-task",
    ),
    "unknown action": (frame("stop-task", B), "header.action must be one of"),
    "action of another type": (
        json.dumps({"header": {"task_id": B, "action": ["run-task"]}}),
        "header.action must be one of",
    ),
    "payload of another type": (
        json.dumps({"header": {"task_id": B, "action": "run-task"}, "payload": []}),
        "payload must be an object",
    ),
    "too long": (
        " " * (MAX_FRAME_CHARACTERS + 1),
        "a frame of 524289 characters; at most 524288 are allowed",
    ),
}


@pytest.mark.parametrize("state", DashScopeState)
@pytest.mark.parametrize(("data", "sentence"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_frame_is_refused_in_every_state_and_fails_the_open_task(
    state: DashScopeState, data: str | bytes, sentence: str
) -> None:
    client = Client().in_state(state)
    refusal = client.refusal_of(data)
    assert refusal.code == "InvalidParameter"
    assert refusal.message.startswith(sentence)
    assert refusal.task_id == ("" if state is DashScopeState.IDLE else A)
    client.reply(refusal)
    assert isinstance(client.send(run(B))[0], RunTask)


INVALID_RUNS = {
    "no model": (run(model=None), "payload.model is required"),
    "model of another type": (run(model=7), "payload.model is required"),
    "another task": (
        frame("run-task", A, model="m", task="asr", parameters={"voice": "v"}),
        "payload.task must be 'tts'",
    ),
    "no voice": (run(voice=None), "parameters.voice is required"),
    "no parameters": (frame("run-task", A, model="m"), "parameters.voice is required"),
    "parameters of null": (frame("run-task", A, model="m", parameters=None), "parameters.voice is required"),
    "empty parameters": (frame("run-task", A, model="m", parameters={}), "parameters.voice is required"),
    "voice of another type": (
        run(voice=["v"]),
        "parameters.voice must be a string of at most 128 characters",
    ),
    "parameters of another type": (
        frame("run-task", A, model="m", parameters=[]),
        "parameters must be an object",
    ),
    "input of another type": (run(input=[1]), "input must be an object"),
    "text of another type": (run(input={"text": 7}), "input.text must be a string"),
    "20,001 characters": (
        run(input={"text": "x" * (MAX_TEXT_CHARACTERS + 1)}),
        "input.text: 20001 characters in one frame",
    ),
    "format": (run(format="amr"), "parameters.format"),
    "sample rate": (run(sample_rate=11_025), "parameters.sample_rate"),
    "volume": (run(volume=101), "parameters.volume"),
    "rate": (run(rate=2.01), "parameters.rate"),
    "pitch": (run(pitch=0.49), "parameters.pitch"),
    "seed": (run(seed=65_536), "parameters.seed"),
    "instruction": (run(instruction="x" * 129), "parameters.instruction"),
    "SSML demanded": (run(input={"text": "plain"}, text_type="SSML"), "input.text: text_type is SSML"),
}


@pytest.mark.parametrize(("data", "sentence"), INVALID_RUNS.values(), ids=INVALID_RUNS)
def test_an_invalid_run_task_fails_that_task_and_the_next_one_runs(data: str, sentence: str) -> None:
    client = Client()
    refusal = client.refusal_of(data)
    assert (refusal.task_id, refusal.code) == (A, "InvalidParameter")
    assert refusal.message.startswith(sentence)
    client.reply(refusal)
    assert isinstance(client.send(run(B))[0], RunTask)


@pytest.mark.parametrize(
    "input", [{"text": 3}, {"text": ["x"]}, [], "text", {"text": "x" * (MAX_TEXT_CHARACTERS + 1)}]
)
def test_an_invalid_continue_task_fails_its_task(input: Any) -> None:
    client = Client().in_state(DashScopeState.OPEN)
    refusal = client.refusal_of(frame("continue-task", A, input))
    assert (refusal.task_id, refusal.code) == (A, "InvalidParameter")


def test_another_directive_than_cancel_is_refused() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    refusal = client.refusal_of(frame("finish-task", A, {"directive": "pause"}))
    assert refusal.message == "input.directive must be 'cancel'"


# Frames of the server

WORD = Word("there", 0.2504, 0.4, 6, 11)
STARTED = TaskStarted(A)
BEGUN = SentenceBegin(A, 0, "Hi there.")
SPOKEN = SentenceSynthesis(A, 0)
ENDED = SentenceEnd(A, 0, "Hi there.", (WORD,), 9)
FAILED = TaskFailed(A, DashScopeErrorCode.THROTTLED, "Requests rate limit exceeded, please try again later")
FINISHED = TaskFinished(A, 9)


@pytest.mark.parametrize(
    "event", [STARTED, BEGUN, SPOKEN, ENDED, FAILED, FINISHED], ids=lambda event: type(event).__name__
)
def test_every_frame_has_an_object_as_payload_and_echoes_the_task(event: Any) -> None:
    answer = json.loads(CODEC.encode(event))
    assert isinstance(answer["payload"], dict)
    assert answer["header"]["task_id"] == A
    assert answer["header"]["attributes"] == {}
    assert answer["header"]["event"] in {"task-started", "result-generated", "task-finished", "task-failed"}


def test_frames_are_compact_ascii_json() -> None:
    assert CODEC.encode(SentenceBegin(A, 0, "Grüß")) == (
        f'{{"header":{{"task_id":"{A}","event":"result-generated","attributes":{{}}}},'
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
        "task_id": st.sampled_from([A, B]),
    }
)


@given(st.lists(st.fixed_dictionaries({"header": HEADERS, "payload": PAYLOADS}) | JSON, max_size=6))
def test_valid_headers_with_any_payload_are_accepted_or_refused(frames: list[Any]) -> None:
    client = Client()
    for one in frames:
        try:
            events = client.send(json.dumps(one))
        except DashScopeProtocolError as error:
            client.reply(error.reply)
            continue
        for event in events:
            assert not isinstance(event, DashScopeIdleTimeout)
            assert event.task_id == client.connection.task_id


@given(st.text() | st.binary())
def test_any_data_is_accepted_or_refused(data: str | bytes) -> None:
    assert Client().refusal_of(data).code == "InvalidParameter"
