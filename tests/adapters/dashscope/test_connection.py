"""DashScope's protocol, frame by frame: what clients send, what they may not, and what they are told."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.dashscope.connection import (
    MAX_FRAME_CHARACTERS,
    MAX_TASK_CHARACTERS,
    MAX_TASK_ID_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    TRANSITIONS,
    DashScopeConnection,
    DashScopeProtocolError,
    DashScopeState,
    DashScopeTimeouts,
)
from vivavoce.adapters.dashscope.encoding import encode
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
from vivavoce.adapters.dashscope.parameters import TaskParameters
from vivavoce.tts_engine.chunk import Word

INPUT_GAP_S, IDLE_S = 23.0, 60.0
A, B = "0a" * 16, "1f6c21a8-4c3e-4d2b-9f50-0123456789ab"  # as Python writes a task's id, and as Java does


def frame(action: str, task_id: str = A, given: Any = None, **payload: Any) -> str:
    """A client's frame; ``given`` is its ``payload.input``."""
    header = {"action": action, "task_id": task_id, "streaming": "duplex"}
    return json.dumps({"header": header, "payload": {"input": {} if given is None else given, **payload}})


def run(task_id: str = A, given: Any = None, model: Any = "cosyvoice-v3-flash", **parameters: Any) -> str:
    parameters = {"voice": "longanyang", **parameters}
    return frame(
        "run-task",
        task_id,
        given,
        model=model,
        task_group="audio",
        task="tts",
        function="SpeechSynthesizer",
        parameters=parameters,
    )


def text(words: Any, task_id: str = A) -> str:
    return frame("continue-task", task_id, {"text": words})


class Client:
    """Feeds a connection and takes what it says."""

    def __init__(self) -> None:
        self.connection = DashScopeConnection(0.0)
        self.now = 0.0

    def sends(self, data: str | bytes) -> list[DashScopeEvent]:
        self.connection.receive_data(data, self.now)
        return list(self.connection.events())

    def is_refused(self, data: str | bytes) -> TaskFailed:
        with pytest.raises(DashScopeProtocolError) as caught:
            self.sends(data)
        return caught.value.reply

    def waits(self, seconds: float) -> list[DashScopeEvent]:
        self.now += seconds
        self.connection.receive_time(self.now)
        return list(self.connection.events())

    def hears(self, event: Any) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = json.loads(self.connection.send(event, self.now))
        return answer

    def in_state(self, state: DashScopeState) -> "Client":
        if state is not DashScopeState.IDLE:
            self.sends(run())
            self.hears(TaskStarted(A))
        if state is DashScopeState.FINISHING:
            self.sends(frame("finish-task"))
        return self


def test_a_task_from_its_beginning_to_its_end() -> None:
    client = Client()
    (begun,) = client.sends(run())
    assert isinstance(begun, RunTask)
    assert begun.model == "cosyvoice-v3-flash"
    assert client.hears(TaskStarted(A))["header"]["event"] == "task-started"
    assert client.sends(text("Hello, ")) == [ContinueTask(A, "Hello, ", False)]
    assert client.sends(frame("continue-task", A, {"flush": True})) == [FlushTask(A)]
    assert client.sends(text("world.")) == [ContinueTask(A, "world.", False)]
    assert client.sends(frame("finish-task")) == [FinishTask(A)]
    assert client.hears(TaskFinished(A, 13))["payload"]["usage"] == {"characters": 13}
    assert client.connection.state is DashScopeState.IDLE


def test_many_tasks_follow_each_other_on_one_socket() -> None:
    client = Client()
    for number in range(100):
        task_id = f"task-{number}"
        client.sends(run(task_id))
        client.sends(frame("finish-task", task_id))
        client.hears(TaskFinished(task_id, 0))
        assert client.connection.task_id is None


def test_the_socket_is_free_before_task_finished_is_written() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.connection.send(TaskFinished(A, 0), 0.0)  # the frame exists, nothing has been written yet
    assert isinstance(client.sends(run(B))[0], RunTask)


def test_whether_a_task_is_open_is_looked_at_when_the_next_frame_is_handled() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.connection.receive_data(run(B), 0.0)  # came while the first one was open
    client.hears(TaskFinished(A, 0))
    assert isinstance(next(client.connection.events()), RunTask)


def test_a_second_task_is_refused_and_the_first_goes_on() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    refusal = client.is_refused(run(B))
    assert refusal == TaskFailed(
        B, DashScopeErrorCode.INVALID_PARAMETER, f"task {A} of this connection is not finished"
    )
    client.hears(refusal)
    assert client.sends(text("on")) == [ContinueTask(A, "on", False)]


def test_cancelling_is_a_directive_of_finish_task() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    assert client.sends(frame("finish-task", A, {"directive": "cancel"})) == [CancelTask(A)]
    assert client.hears(TaskFinished(A, 0))["header"]["event"] == "task-finished"


def test_what_is_being_finished_can_still_be_cancelled() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    assert client.sends(frame("finish-task", A, {"directive": "cancel"})) == [CancelTask(A)]


@pytest.mark.parametrize("end", [TaskFinished(A, 0), TaskFailed(A, DashScopeErrorCode.INTERNAL, "no")])
@pytest.mark.parametrize(
    "late",
    [
        text("too late"),
        frame("continue-task", A, {"flush": True}),
        frame("finish-task"),
        frame("finish-task", A, {"directive": "cancel"}),
        text(3),
    ],
)
def test_frames_for_a_dead_task_are_ignored(end: Any, late: str) -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.hears(end)
    assert client.sends(late) == []
    client.sends(run(B))
    assert client.sends(late) == []
    assert client.sends(text("on", B)) == [ContinueTask(B, "on", False)]


def test_a_task_that_was_never_run_is_refused() -> None:
    refusal = Client().is_refused(text("hello", B))
    assert (refusal.task_id, refusal.code) == (B, "InvalidParameter")
    assert "run-task" in refusal.message


def test_text_in_run_task_is_spoken_as_java_sends_it() -> None:
    begun, pushed = Client().sends(run(B, {"text": "Hello."}))
    assert isinstance(begun, RunTask)
    assert pushed == ContinueTask(B, "Hello.", False)


def test_text_in_a_run_task_that_is_not_admitted_is_dropped() -> None:
    client = Client()
    client.connection.receive_data(run(B, {"text": "Hello."}), 0.0)
    events = client.connection.events()
    assert isinstance(next(events), RunTask)
    client.hears(TaskFailed(B, DashScopeErrorCode.THROTTLED, "too many"))
    assert list(events) == []


def test_raw_clients_may_send_the_input_alone() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    bare = {"header": {"action": "continue-task", "task_id": A}, "payload": {"input": {"text": "hi"}}}
    assert client.sends(json.dumps(bare)) == [ContinueTask(A, "hi", False)]


def test_text_after_finish_task_fails_the_task() -> None:
    refusal = Client().in_state(DashScopeState.FINISHING).is_refused(text("more"))
    assert (refusal.task_id, refusal.message) == (A, "continue-task after finish-task")


# Time


def test_a_task_without_input_for_23_seconds_fails() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    assert client.waits(INPUT_GAP_S - 0.01) == []
    with pytest.raises(DashScopeProtocolError) as caught:
        client.waits(0.01)
    assert caught.value.reply == TaskFailed(
        A, DashScopeErrorCode.INVALID_PARAMETER, "request timeout after 23 seconds"
    )


@pytest.mark.parametrize("given", [{"text": "on"}, {"flush": True}, {}, {"text": ""}])
def test_every_input_gives_23_seconds_more(given: Any) -> None:
    client = Client().in_state(DashScopeState.OPEN)
    client.waits(20.0)
    client.sends(frame("continue-task", A, given))
    assert client.connection.deadline == 20.0 + INPUT_GAP_S


def test_what_the_server_sends_gives_no_time() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    client.waits(20.0)
    client.hears(SentenceSynthesis(A, 0))
    assert client.connection.deadline == INPUT_GAP_S


def test_a_task_that_has_all_its_text_may_be_spoken_for_hours() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    assert client.connection.deadline is None
    assert client.waits(7200.0) == []


def test_patience_can_be_other() -> None:
    connection = DashScopeConnection(5.0, DashScopeTimeouts(input_timeout_s=1.0, idle_timeout_s=2.0))
    assert connection.deadline == 7.0


def test_a_socket_is_idle_after_a_minute_without_a_task() -> None:
    client = Client()
    assert client.waits(IDLE_S - 0.01) == []
    assert client.waits(0.01) == [DashScopeIdleTimeout()]


def test_the_minute_begins_when_the_last_task_ends() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.now = 100.0
    client.hears(TaskFinished(A, 0))
    assert client.connection.deadline == 100.0 + IDLE_S


def test_frames_of_dead_tasks_keep_no_socket_open() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.hears(TaskFinished(A, 0))
    client.now = 30.0
    client.sends(text("late"))
    assert client.connection.deadline == IDLE_S


# What may not be sent

NOT_FRAMES = {
    "not JSON": "{",
    "empty": "",
    "binary": b"{}",
    "a number": "3",
    "a list": "[]",
    "not a number": '{"header": NaN}',
    "deep": "[" * 100_000,
    "long digits": "9" * 5_000,
    "no header": "{}",
    "header of another kind": '{"header": []}',
    "no task id": '{"header": {"action": "run-task"}}',
    "task id of another kind": '{"header": {"action": "run-task", "task_id": 3}}',
    "empty task id": '{"header": {"action": "run-task", "task_id": ""}}',
    "long task id": json.dumps(
        {"header": {"action": "run-task", "task_id": "x" * (MAX_TASK_ID_CHARACTERS + 1)}}
    ),
    "no action": json.dumps({"header": {"task_id": B}}),
    "unknown action": frame("stop-task", B),
    "action of another kind": json.dumps({"header": {"task_id": B, "action": ["run-task"]}}),
    "payload of another kind": json.dumps({"header": {"task_id": B, "action": "run-task"}, "payload": []}),
    "too long": " " * (MAX_FRAME_CHARACTERS + 1),
}


@pytest.mark.parametrize("state", DashScopeState)
@pytest.mark.parametrize("data", NOT_FRAMES.values(), ids=NOT_FRAMES)
def test_a_frame_that_is_none_is_refused_in_every_state_and_fails_what_is_open(
    state: DashScopeState, data: str | bytes
) -> None:
    client = Client().in_state(state)
    refusal = client.is_refused(data)
    assert refusal.code == "InvalidParameter"
    assert refusal.task_id == ("" if state is DashScopeState.IDLE else A)
    client.hears(refusal)
    assert isinstance(client.sends(run(B))[0], RunTask)


BAD_RUNS = {
    "no model": run(model=None),
    "model of another kind": run(model=7),
    "another task": frame("run-task", A, model="m", task="asr", parameters={"voice": "v"}),
    "no voice": run(voice=None),
    "voice of another kind": run(voice=["v"]),
    "parameters of another kind": frame("run-task", A, model="m", parameters=[]),
    "input of another kind": run(given=[1]),
    "text of another kind": run(given={"text": 7}),
    "20,001 characters": run(given={"text": "x" * (MAX_TEXT_CHARACTERS + 1)}),
    "format": run(format="amr"),
    "sample rate": run(sample_rate=11_025),
    "volume": run(volume=101),
    "rate": run(rate=2.01),
    "pitch": run(pitch=0.49),
    "seed": run(seed=65_536),
    "instruction": run(instruction="x" * 129),
    "SSML demanded": run(given={"text": "plain"}, text_type="SSML"),
}


@pytest.mark.parametrize("data", BAD_RUNS.values(), ids=BAD_RUNS)
def test_a_bad_run_task_fails_that_task_and_the_next_one_runs(data: str) -> None:
    client = Client()
    refusal = client.is_refused(data)
    assert (refusal.task_id, refusal.code) == (A, "InvalidParameter")
    client.hears(refusal)
    assert isinstance(client.sends(run(B))[0], RunTask)


@pytest.mark.parametrize(
    "given", [{"text": 3}, {"text": ["x"]}, [], "text", {"text": "x" * (MAX_TEXT_CHARACTERS + 1)}]
)
def test_a_bad_continue_task_fails_its_task(given: Any) -> None:
    client = Client().in_state(DashScopeState.OPEN)
    refusal = client.is_refused(frame("continue-task", A, given))
    assert (refusal.task_id, refusal.code) == (A, "InvalidParameter")


def test_another_directive_is_refused() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    assert "cancel" in client.is_refused(frame("finish-task", A, {"directive": "pause"})).message


@pytest.mark.parametrize("character", ["x", "\N{SNOWMAN}", "\N{GRINNING FACE}"])
def test_20000_characters_fit_one_frame_however_they_are_escaped(character: str) -> None:
    (pushed,) = Client().in_state(DashScopeState.OPEN).sends(text(character * MAX_TEXT_CHARACTERS))
    assert pushed == ContinueTask(A, character * MAX_TEXT_CHARACTERS, False)


def test_20001_characters_are_refused() -> None:
    refusal = Client().in_state(DashScopeState.OPEN).is_refused(text("x" * (MAX_TEXT_CHARACTERS + 1)))
    assert refusal == TaskFailed(
        A,
        DashScopeErrorCode.INVALID_PARAMETER,
        "input.text: 20001 characters in one frame; at most 20000 are allowed",
    )


def test_a_task_takes_200000_characters_and_not_one_more() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    for _ in range(MAX_TASK_CHARACTERS // MAX_TEXT_CHARACTERS):
        client.sends(text("x" * MAX_TEXT_CHARACTERS))
    assert "200001 characters in one task" in client.is_refused(text("x")).message


def test_the_next_task_counts_its_text_anew() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    client.sends(text("x" * MAX_TEXT_CHARACTERS))
    client.sends(frame("finish-task"))
    client.hears(TaskFinished(A, 0))
    client.sends(run(B))
    for _ in range(MAX_TASK_CHARACTERS // MAX_TEXT_CHARACTERS):
        client.sends(text("x" * MAX_TEXT_CHARACTERS, B))


def test_the_longest_task_id_is_echoed() -> None:
    client, longest = Client(), "x" * MAX_TASK_ID_CHARACTERS
    client.sends(run(longest))
    assert client.hears(TaskStarted(longest))["header"]["task_id"] == longest


def test_half_a_utf16_pair_becomes_a_replacement_character() -> None:
    (pushed,) = Client().in_state(DashScopeState.OPEN).sends(text("a\ud83d!"))
    assert pushed == ContinueTask(A, "a�!", False)


# SSML


@pytest.mark.parametrize(
    ("parameters", "words", "as_ssml"),
    [
        ({"enable_ssml": True}, "<speak>Hi</speak>", True),
        ({"enable_ssml": True}, " \n<speak>Hi</speak>", True),
        ({"enable_ssml": True}, "Plain, as every call() of the SDK.", False),
        ({}, "<speak>Hi</speak>", False),
        ({"text_type": "SSML"}, "<speak>Hi</speak>", True),
    ],
)
def test_ssml_is_what_is_allowed_and_looks_so(parameters: dict[str, Any], words: str, as_ssml: bool) -> None:
    client = Client()
    client.sends(run(**parameters))
    assert client.sends(text(words)) == [ContinueTask(A, words, as_ssml)]


# What the server says

WORD = Word("there", 0.2504, 0.4, 6, 11)
SAID: list[Any] = [
    TaskStarted(A),
    SentenceBegin(A, 0, "Hi there."),
    SentenceSynthesis(A, 0),
    SentenceEnd(A, 0, "Hi there.", (WORD,), 9),
    TaskFailed(A, DashScopeErrorCode.THROTTLED, "Requests rate limit exceeded, please try again later"),
]


@pytest.mark.parametrize("event", [*SAID, TaskFinished(A, 9)], ids=lambda event: type(event).__name__)
def test_every_event_has_an_object_as_payload_and_echoes_the_task(event: Any) -> None:
    answer = json.loads(encode(event))
    assert isinstance(answer["payload"], dict)
    assert answer["header"]["task_id"] == A
    assert answer["header"]["attributes"] == {}
    assert answer["header"]["event"] in {"task-started", "result-generated", "task-finished", "task-failed"}


def test_task_started_has_neither_output_nor_usage() -> None:
    assert json.loads(encode(TaskStarted(A)))["payload"] == {}


def test_a_failure_has_code_and_message_as_strings() -> None:
    header = json.loads(encode(SAID[-1]))["header"]
    assert header["error_code"] == "Throttling.RateQuota"
    assert header["error_message"] == "Requests rate limit exceeded, please try again later"


def test_the_end_of_a_sentence_tells_words_in_milliseconds_and_the_characters_so_far() -> None:
    payload = json.loads(encode(SAID[3]))["payload"]
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
    assert json.loads(encode(SAID[1]))["payload"] == {
        "output": {
            "type": "sentence-begin",
            "original_text": "Hi there.",
            "sentence": {"index": 0, "words": []},
        }
    }
    assert json.loads(encode(SAID[2]))["payload"] == {
        "output": {"type": "sentence-synthesis", "sentence": {"index": 0, "words": []}}
    }
    assert json.loads(encode(TaskFinished(A, 9)))["payload"] == {
        "output": {"sentence": {"words": []}},
        "usage": {"characters": 9},
    }


def test_a_task_cannot_be_finished_before_its_text_is() -> None:
    with pytest.raises(ValueError, match="TaskFinished while a task takes text"):
        Client().in_state(DashScopeState.OPEN).hears(TaskFinished(A, 0))


@pytest.mark.parametrize("event", SAID[:4], ids=lambda event: type(event).__name__)
def test_nothing_is_said_about_a_task_that_is_not_open(event: Any) -> None:
    with pytest.raises(ValueError, match="open is None"):
        Client().hears(event)


def test_events_must_be_taken() -> None:
    connection = DashScopeConnection(0.0)
    connection.receive_data(run(), 0.0)
    with pytest.raises(ValueError, match="take events"):
        connection.receive_data(run(), 0.0)


def test_the_table_knows_every_state() -> None:
    assert set(TRANSITIONS) == set(DashScopeState)


# Whatever comes

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
def test_good_headers_with_any_payload_are_understood_or_refused(frames: list[Any]) -> None:
    client = Client()
    for one in frames:
        try:
            events = client.sends(json.dumps(one))
        except DashScopeProtocolError as error:
            client.hears(error.reply)
            continue
        for event in events:
            assert not isinstance(event, DashScopeIdleTimeout)
            assert event.task_id == client.connection.task_id


@given(st.text() | st.binary())
def test_any_frame_is_understood_or_refused(data: str | bytes) -> None:
    assert Client().is_refused(data).code == "InvalidParameter"


def test_defaults_are_those_of_the_sdk() -> None:
    begun = Client().sends(run())[0]
    assert isinstance(begun, RunTask)
    assert begun.parameters == TaskParameters("longanyang", "mp3", 22_050)
