"""DashScope's WebSocket frames from clients: valid frames become events, invalid ones a refusal."""

import json
from typing import Any

import pytest

from shared.gateways.dashscope_frames import JAVA_TASK_ID, TASK_ID, Client, frame, run, text
from vivavoce.adapters.dashscope.connection import (
    MAX_FRAME_CHARACTERS,
    MAX_TASK_ID_CHARACTERS,
    DashScopeState,
)
from vivavoce.adapters.dashscope.events import (
    CancelTask,
    ContinueTask,
    DashScopeErrorCode,
    FinishTask,
    FlushTask,
    RunTask,
    TaskFailed,
    TaskFinished,
    TaskStarted,
)
from vivavoce.gateway.apis.dialects.dashscope.parameters import SpeechParameters
from vivavoce.gateway.apis.kits.dashscope.errors import InvalidDashScopeField
from vivavoce.gateway.apis.kits.dashscope.frames import MAX_TEXT_CHARACTERS

# Frames of a client


def test_a_task_runs_from_run_task_to_task_finished() -> None:
    client = Client()
    (run_task,) = client.send(run())
    assert isinstance(run_task, RunTask)
    assert run_task.model == "cosyvoice-v3-flash"
    assert client.reply(TaskStarted(TASK_ID))["header"]["event"] == "task-started"
    assert client.send(text("Hello, ")) == [ContinueTask(TASK_ID, "Hello, ")]
    assert client.send(frame("continue-task", TASK_ID, {"flush": True})) == [FlushTask(TASK_ID)]
    assert client.send(text("world.")) == [ContinueTask(TASK_ID, "world.")]
    assert client.send(frame("finish-task")) == [FinishTask(TASK_ID)]
    assert client.reply(TaskFinished(TASK_ID, 13))["payload"]["usage"] == {"characters": 13}
    assert client.connection.state is DashScopeState.IDLE


def test_the_defaults_of_a_task_are_those_of_the_sdk() -> None:
    run_task = Client().send(run())[0]
    assert isinstance(run_task, RunTask)
    assert run_task.parameters == SpeechParameters(voice="longanyang", format="mp3", sample_rate=22_050)


@pytest.mark.parametrize(
    "input", [{"flush": False}, {"flush": "yes"}, {"flush": None}, {"text": ""}, {"text": None}]
)
def test_a_continue_task_without_text_or_flush_is_no_event(input: Any) -> None:
    assert Client().in_state(DashScopeState.OPEN).send(frame("continue-task", TASK_ID, input)) == []


def test_cancelling_is_a_directive_of_finish_task() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    assert client.send(frame("finish-task", TASK_ID, {"directive": "cancel"})) == [CancelTask(TASK_ID)]


def test_the_java_sdk_sends_the_first_text_in_run_task() -> None:
    run_task, pushed = Client().send(run(JAVA_TASK_ID, {"text": "Hello."}))
    assert isinstance(run_task, RunTask)
    assert pushed == ContinueTask(JAVA_TASK_ID, "Hello.")


def test_fields_that_the_sdks_add_may_be_left_out() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    bare = {"header": {"action": "continue-task", "task_id": TASK_ID}, "payload": {"input": {"text": "hi"}}}
    assert client.send(json.dumps(bare)) == [ContinueTask(TASK_ID, "hi")]


def test_frames_of_an_ended_task_are_ignored_with_any_content() -> None:
    client = Client().in_state(DashScopeState.FINISHING)
    client.reply(TaskFinished(TASK_ID, 0))
    assert client.send(text(3)) == client.send(text("too late")) == []


@pytest.mark.parametrize("character", ["x", "\N{SNOWMAN}", "\N{GRINNING FACE}"])
def test_20000_characters_fit_one_frame_with_any_escapes(character: str) -> None:
    (pushed,) = Client().in_state(DashScopeState.OPEN).send(text(character * MAX_TEXT_CHARACTERS))
    assert pushed == ContinueTask(TASK_ID, character * MAX_TEXT_CHARACTERS)


def test_20001_characters_are_refused() -> None:
    refusal = Client().in_state(DashScopeState.OPEN).refusal_of(text("x" * (MAX_TEXT_CHARACTERS + 1)))
    assert refusal == TaskFailed(
        TASK_ID,
        DashScopeErrorCode.INVALID_PARAMETER,
        "input.text: 20001 characters in one frame; at most 20000 are allowed",
    )


def test_the_longest_task_id_is_echoed() -> None:
    client, longest = Client(), "x" * MAX_TASK_ID_CHARACTERS
    client.send(run(longest))
    assert client.reply(TaskStarted(longest))["header"]["task_id"] == longest


def test_half_a_utf16_pair_becomes_a_replacement_character() -> None:
    (pushed,) = Client().in_state(DashScopeState.OPEN).send(text("a\ud83d!"))
    assert pushed == ContinueTask(TASK_ID, "a\N{REPLACEMENT CHARACTER}!")


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
    (run_task,) = client.send(run(**parameters))
    assert isinstance(run_task, RunTask)
    assert client.send(text(words)) == [ContinueTask(TASK_ID, words)]
    assert run_task.parameters.is_ssml(words) is is_ssml


def test_plain_text_is_refused_where_the_task_demands_ssml() -> None:
    (run_task,) = Client().send(run(text_type="SSML"))
    assert isinstance(run_task, RunTask)
    with pytest.raises(InvalidDashScopeField, match="must be a <speak> document"):
        run_task.parameters.is_ssml("plain")


# Invalid frames


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
        json.dumps({"header": {"task_id": JAVA_TASK_ID}}),
        "header.action must be one of run-task, continue-task, finish-task",
    ),
    "unknown action": (frame("stop-task", JAVA_TASK_ID), "header.action must be one of"),
    "action of another type": (
        json.dumps({"header": {"task_id": JAVA_TASK_ID, "action": ["run-task"]}}),
        "header.action must be one of",
    ),
    "payload of another type": (
        json.dumps({"header": {"task_id": JAVA_TASK_ID, "action": "run-task"}, "payload": []}),
        "payload must be an object",
    ),
    "too long": (
        " " * (MAX_FRAME_CHARACTERS + 1),
        "a frame of 524289 characters; at most 524288 are allowed",
    ),
}


@pytest.mark.parametrize("state", DashScopeState)
@pytest.mark.parametrize(("data", "error_text"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_frame_is_refused_in_every_state_and_fails_the_open_task(
    state: DashScopeState, data: str | bytes, error_text: str
) -> None:
    client = Client().in_state(state)
    refusal = client.refusal_of(data)
    assert refusal.code == "InvalidParameter"
    assert refusal.message.startswith(error_text)
    assert refusal.task_id == ("" if state is DashScopeState.IDLE else TASK_ID)
    client.reply(refusal)
    assert isinstance(client.send(run(JAVA_TASK_ID))[0], RunTask)


INVALID_RUNS = {
    "no model": (run(model=None), "payload.model is required"),
    "model of another type": (run(model=7), "payload.model is required"),
    "another task": (
        frame("run-task", TASK_ID, model="m", task="asr", parameters={"voice": "v"}),
        "payload.task must be 'tts'",
    ),
    "no voice": (run(voice=None), "parameters.voice is required"),
    "no parameters": (frame("run-task", TASK_ID, model="m"), "parameters.voice is required"),
    "parameters of null": (
        frame("run-task", TASK_ID, model="m", parameters=None),
        "parameters.voice is required",
    ),
    "empty parameters": (
        frame("run-task", TASK_ID, model="m", parameters={}),
        "parameters.voice is required",
    ),
    "voice of another type": (
        run(voice=["v"]),
        "parameters.voice must be a string of at most 128 characters",
    ),
    "parameters of another type": (
        frame("run-task", TASK_ID, model="m", parameters=[]),
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


@pytest.mark.parametrize(("data", "error_text"), INVALID_RUNS.values(), ids=INVALID_RUNS)
def test_an_invalid_run_task_fails_that_task_and_the_next_one_runs(data: str, error_text: str) -> None:
    client = Client()
    refusal = client.refusal_of(data)
    assert (refusal.task_id, refusal.code) == (TASK_ID, "InvalidParameter")
    assert refusal.message.startswith(error_text)
    client.reply(refusal)
    assert isinstance(client.send(run(JAVA_TASK_ID))[0], RunTask)


@pytest.mark.parametrize(
    "input", [{"text": 3}, {"text": ["x"]}, [], "text", {"text": "x" * (MAX_TEXT_CHARACTERS + 1)}]
)
def test_an_invalid_continue_task_fails_its_task(input: Any) -> None:
    client = Client().in_state(DashScopeState.OPEN)
    refusal = client.refusal_of(frame("continue-task", TASK_ID, input))
    assert (refusal.task_id, refusal.code) == (TASK_ID, "InvalidParameter")


def test_another_directive_than_cancel_is_refused() -> None:
    client = Client().in_state(DashScopeState.OPEN)
    refusal = client.refusal_of(frame("finish-task", TASK_ID, {"directive": "pause"}))
    assert refusal.message == "input.directive must be 'cancel'"
