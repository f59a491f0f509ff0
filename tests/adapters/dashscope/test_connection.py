"""The tasks of one DashScope socket: order, limits and timeouts, on values instead of JSON."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivavoce.adapters.dashscope.connection import (
    MAX_FRAME_CHARACTERS,
    MAX_TASK_CHARACTERS,
    TRANSITIONS,
    DashScopeConnection,
    DashScopeProtocolError,
    DashScopeState,
    DashScopeTimeouts,
)
from vivavoce.adapters.dashscope.events import (
    CancelTask,
    ContinueTask,
    DashScopeClientFrame,
    DashScopeErrorCode,
    DashScopeEvent,
    DashScopeIdleTimeout,
    DashScopeServerEvent,
    FinishTask,
    FlushTask,
    InvalidFrame,
    KeepTaskAlive,
    RunTask,
    SentenceBegin,
    SentenceEnd,
    SentenceSynthesis,
    TaskFailed,
    TaskFinished,
    TaskStarted,
    UnreadableFrame,
)

INPUT_TIMEOUT_S, IDLE_TIMEOUT_S = 23.0, 60.0
A, B = "0a" * 16, "1f6c21a8-4c3e-4d2b-9f50-0123456789ab"  # as the Python and the Java SDK write task ids
MAX_TEXT = "x" * 20_000

Frame = DashScopeClientFrame[str]


class ValueCodec:
    """Decodes every frame to the value that the test set."""

    frame: Frame

    def decode(self, text: str) -> Frame:
        return self.frame

    def encode(self, event: DashScopeServerEvent) -> str:
        return type(event).__name__


def run(task_id: str = A, text: str = "") -> RunTask[str]:
    return RunTask(task_id, "cosyvoice-v3-flash", "the parameters", text)


class Client:
    """Feeds a connection and collects its events."""

    def __init__(self) -> None:
        self.codec = ValueCodec()
        self.connection: DashScopeConnection[str] = DashScopeConnection(self.codec, 0.0)
        self.now = 0.0

    def send(self, frame: Frame | bytes | str) -> list[DashScopeEvent[str]]:
        self.receive(frame)
        return list(self.connection.events())

    def receive(self, frame: Frame | bytes | str) -> None:
        if isinstance(frame, bytes | str):
            self.connection.receive_data(frame, self.now)
        else:
            self.codec.frame = frame
            self.connection.receive_data("{}", self.now)

    def refusal_of(self, frame: Frame | bytes | str) -> TaskFailed:
        with pytest.raises(DashScopeProtocolError) as caught:
            self.send(frame)
        return caught.value.reply

    def wait(self, seconds: float) -> list[DashScopeEvent[str]]:
        self.now += seconds
        self.connection.receive_time(self.now)
        return list(self.connection.events())

    def reply(self, event: Any) -> str:
        return self.connection.send(event, self.now)

    def in_state(self, state: DashScopeState) -> "Client":
        if state is not DashScopeState.IDLE:
            self.send(run())
            self.reply(TaskStarted(A))
        if state is DashScopeState.FINISHING:
            self.send(FinishTask(A))
        return self


def test_a_task_runs_from_run_task_to_task_finished() -> None:
    client = Client()
    assert client.send(run()) == [run()]
    assert client.reply(TaskStarted(A)) == "TaskStarted"
    assert client.send(ContinueTask(A, "Hello, ")) == [ContinueTask(A, "Hello, ")]
    assert client.send(FlushTask(A)) == [FlushTask(A)]
    assert client.send(ContinueTask(A, "world.")) == [ContinueTask(A, "world.")]
    assert client.send(FinishTask(A)) == [FinishTask(A)]
    assert client.reply(TaskFinished(A, 13)) == "TaskFinished"
    assert client.connection.state is DashScopeState.IDLE


def test_many_tasks_follow_each_other_on_one_socket() -> None:
    client = Client()
    for number in range(100):
        task_id = f"task-{number}"
        client.send(run(task_id))
        client.send(FinishTask(task_id))
        client.reply(TaskFinished(task_id, 0))
        assert client.connection.task_id is None


def test_the_socket_is_free_before_task_finished_is_written() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.reply(TaskFinished(A, 0))  # the frame exists, nothing has been written yet
    assert client.send(run(B)) == [run(B)]


def test_a_frame_is_judged_by_the_state_in_which_it_is_handled() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.receive(run(B))  # arrives while the first task is open
    client.reply(TaskFinished(A, 0))
    assert next(client.connection.events()) == run(B)


@pytest.mark.parametrize("second", [run(B), InvalidFrame(B, "run-task", "no voice")])
def test_a_second_task_is_refused_and_the_first_goes_on(second: Frame) -> None:
    client = Client().in_state(DashScopeState.OPEN)
    refusal = client.refusal_of(second)
    assert refusal == TaskFailed(
        B, DashScopeErrorCode.INVALID_PARAMETER, f"task {A} of this connection is not finished"
    )
    client.reply(refusal)
    assert client.send(ContinueTask(A, "on")) == [ContinueTask(A, "on")]


@pytest.mark.parametrize("state", [DashScopeState.OPEN, DashScopeState.FINISHING])
def test_a_task_can_be_cancelled_before_and_after_the_end_of_its_text(state: DashScopeState) -> None:
    client = Client().in_state(state)
    assert client.send(CancelTask(A)) == [CancelTask(A)]
    assert client.reply(TaskFinished(A, 0)) == "TaskFinished"


@pytest.mark.parametrize("end", [TaskFinished(A, 0), TaskFailed(A, DashScopeErrorCode.INTERNAL, "no")])
@pytest.mark.parametrize(
    "late",
    [
        ContinueTask(A, "too late"),
        FlushTask(A),
        FinishTask(A),
        CancelTask(A),
        InvalidFrame(A, "continue-task", "text of another type"),
    ],
)
def test_frames_of_an_ended_task_are_ignored(end: Any, late: Frame) -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.reply(end)
    assert client.send(late) == []
    client.send(run(B))
    assert client.send(late) == []
    assert client.send(ContinueTask(B, "on")) == [ContinueTask(B, "on")]


@pytest.mark.parametrize("frame", [ContinueTask(B, "hello"), InvalidFrame(B, "finish-task", "bad")])
def test_a_frame_of_a_task_that_was_never_run_is_refused(frame: Frame) -> None:
    refusal = Client().refusal_of(frame)
    assert (refusal.task_id, refusal.code) == (B, "InvalidParameter")
    assert "run-task" in refusal.message


def test_text_in_run_task_is_delivered_as_its_first_text() -> None:
    assert Client().send(run(B, "Hello.")) == [run(B, "Hello."), ContinueTask(B, "Hello.")]


def test_text_in_a_run_task_that_is_not_admitted_is_dropped() -> None:
    client = Client()
    client.receive(run(B, "Hello."))
    events = client.connection.events()
    assert next(events) == run(B, "Hello.")
    client.reply(TaskFailed(B, DashScopeErrorCode.THROTTLED, "too many"))
    assert list(events) == []


def test_text_after_finish_task_fails_the_task() -> None:
    refusal = Client().in_state(DashScopeState.FINISHING).refusal_of(ContinueTask(A, "more"))
    assert (refusal.task_id, refusal.message) == (A, "continue-task after finish-task")


# Wrong frames

UNREADABLE = {
    "without a header": UnreadableFrame("the frame is not JSON"),
    "binary": b"{}",
    "too long": " " * (MAX_FRAME_CHARACTERS + 1),
}


@pytest.mark.parametrize("state", DashScopeState)
@pytest.mark.parametrize("frame", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_frame_fails_the_open_task(state: DashScopeState, frame: Any) -> None:
    client = Client().in_state(state)
    refusal = client.refusal_of(frame)
    assert refusal.code == "InvalidParameter"
    assert refusal.task_id == ("" if state is DashScopeState.IDLE else A)
    client.reply(refusal)
    assert client.send(run(B)) == [run(B)]


def test_an_invalid_run_task_fails_that_task_and_the_next_one_runs() -> None:
    client = Client()
    refusal = client.refusal_of(InvalidFrame(A, "run-task", "payload.model is required"))
    assert refusal == TaskFailed(A, DashScopeErrorCode.INVALID_PARAMETER, "payload.model is required")
    client.reply(refusal)
    assert client.send(run(B)) == [run(B)]


def test_an_invalid_frame_fails_its_task() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    refusal = client.refusal_of(InvalidFrame(A, "continue-task", "input.text must be a string"))
    assert (refusal.task_id, refusal.message) == (A, "input.text must be a string")


def test_a_task_takes_200000_characters_and_not_one_more() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    for _ in range(MAX_TASK_CHARACTERS // len(MAX_TEXT)):
        client.send(ContinueTask(A, MAX_TEXT))
    assert "200001 characters in one task" in client.refusal_of(ContinueTask(A, "x")).message


def test_each_task_counts_its_own_text() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    client.send(ContinueTask(A, MAX_TEXT))
    client.send(FinishTask(A))
    client.reply(TaskFinished(A, 0))
    client.send(run(B))
    for _ in range(MAX_TASK_CHARACTERS // len(MAX_TEXT)):
        client.send(ContinueTask(B, MAX_TEXT))


# Timeouts


def test_a_task_without_input_for_23_seconds_fails() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    assert client.wait(INPUT_TIMEOUT_S - 0.01) == []
    with pytest.raises(DashScopeProtocolError) as caught:
        client.wait(0.01)
    assert caught.value.reply == TaskFailed(
        A, DashScopeErrorCode.INVALID_PARAMETER, "request timeout after 23 seconds"
    )


@pytest.mark.parametrize("frame", [ContinueTask(A, "on"), FlushTask(A), KeepTaskAlive(A)])
def test_every_input_restarts_the_input_timeout(frame: Frame) -> None:
    client = Client().in_state(DashScopeState.OPEN)
    client.wait(20.0)
    client.send(frame)
    assert client.connection.deadline == 20.0 + INPUT_TIMEOUT_S


def test_what_the_server_sends_does_not_restart_the_input_timeout() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    client.wait(20.0)
    client.reply(SentenceSynthesis(A, 0))
    assert client.connection.deadline == INPUT_TIMEOUT_S


def test_a_task_that_has_all_its_text_may_be_spoken_for_hours() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    assert client.connection.deadline is None
    assert client.wait(7200.0) == []


def test_the_timeouts_can_be_set() -> None:
    timeouts = DashScopeTimeouts(input_timeout_s=1.0, idle_timeout_s=2.0)
    assert DashScopeConnection(ValueCodec(), 5.0, timeouts).deadline == 7.0


def test_a_socket_is_idle_after_a_minute_without_a_task() -> None:
    client = Client()
    assert client.wait(IDLE_TIMEOUT_S - 0.01) == []
    assert client.wait(0.01) == [DashScopeIdleTimeout()]


def test_the_idle_timeout_begins_when_the_last_task_ends() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.now = 100.0
    client.reply(TaskFinished(A, 0))
    assert client.connection.deadline == 100.0 + IDLE_TIMEOUT_S


def test_frames_of_ended_tasks_do_not_keep_a_socket_open() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.reply(TaskFinished(A, 0))
    client.now = 30.0
    client.send(ContinueTask(A, "late"))
    assert client.connection.deadline == IDLE_TIMEOUT_S


# The server's side


def test_a_task_cannot_be_finished_before_its_text_has_ended() -> None:
    with pytest.raises(ValueError, match="TaskFinished while a task takes text"):
        Client().in_state(DashScopeState.OPEN).reply(TaskFinished(A, 0))


@pytest.mark.parametrize(
    "event",
    [TaskStarted(A), SentenceBegin(A, 0, "Hi."), SentenceSynthesis(A, 0), SentenceEnd(A, 0, "Hi.", (), 3)],
    ids=lambda event: type(event).__name__,
)
def test_an_event_of_a_task_that_is_not_open_is_an_error_of_the_caller(event: Any) -> None:
    with pytest.raises(ValueError, match="open is None"):
        Client().reply(event)


def test_the_events_of_a_frame_must_be_taken_before_the_next_frame() -> None:
    client = Client()
    client.receive(run())
    with pytest.raises(ValueError, match="take events"):
        client.receive(run())


def test_the_transition_table_has_every_state() -> None:
    assert set(TRANSITIONS) == set(DashScopeState)


IDS = st.sampled_from([A, B])
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    st.builds(run, IDS, st.sampled_from(["", "Hello."])),
    st.builds(ContinueTask, IDS, st.just("text")),
    *(st.builds(kind, IDS) for kind in (FlushTask, KeepTaskAlive, FinishTask, CancelTask)),
    st.builds(
        InvalidFrame, IDS, st.sampled_from(["run-task", "continue-task", "finish-task"]), st.just("no")
    ),
    st.just(UnreadableFrame("no")),
)


@given(st.lists(FRAMES, max_size=12))
def test_any_sequence_of_frames_is_accepted_or_refused(frames: list[Frame]) -> None:
    client = Client()
    for frame in frames:
        try:
            events = client.send(frame)
        except DashScopeProtocolError as error:
            client.reply(error.reply)
            continue
        for event in events:
            assert not isinstance(event, DashScopeIdleTimeout)
            assert event.task_id == client.connection.task_id
