"""Events of a language model's server, and the history; test_conversation.py has whole answers."""

import json

import pytest

from vivavoce.gateway.calls.ways_in.browser.chat import ChatFailed, ChatHistory, parse_token


def event(**delta: object) -> str:
    return json.dumps({"choices": [{"delta": delta}]})


@pytest.mark.parametrize(
    ("data", "token"),
    [
        (event(content=" hello"), " hello"),
        (event(role="assistant"), ""),
        (event(content=None), ""),
        (event(content="Hi \U0001f600"), "Hi \U0001f600"),
        (event(content="Hi \ud83d"), "Hi \ufffd"),
        (event(content=""), ""),
        ('{"choices": []}', ""),
        ('{"choices": [], "usage": {"total_tokens": 9}}', ""),
        ('{"choices": [{"delta": null}]}', ""),
    ],
)
def test_an_event_s_text_is_returned_and_empty_if_it_has_none(data: str, token: str) -> None:
    assert parse_token(data) == token


@pytest.mark.parametrize(
    "data", ["", "hello", "[]", "5", '{"choices": 5}', '{"choices": ["x"]}', "[" * 9_000]
)
def test_an_event_that_is_not_a_completion_raises(data: str) -> None:
    with pytest.raises(ChatFailed, match="not a chat completion"):
        parse_token(data)


def test_an_error_event_raises_without_the_server_s_message() -> None:
    with pytest.raises(ChatFailed) as failure:
        parse_token('{"error": {"message": "key sk-123 is over its limit"}}')
    assert "sk-123" not in str(failure.value)


def test_a_request_has_the_prompt_and_the_newest_40_messages() -> None:
    history = ChatHistory("Be brief.")
    for number in range(60):
        history.add_question(f"question {number}")
        history.add_heard_answer(f" answer {number} ")
    assert len(history.entries) == 40
    messages = history.request_messages()
    assert messages[0] == {"role": "system", "content": "Be brief."}
    assert messages[1] == {"role": "user", "content": "question 40"}
    assert messages[-1] == {"role": "assistant", "content": "answer 59"}


def test_an_answer_that_was_not_heard_is_not_in_the_history() -> None:
    history = ChatHistory("")
    history.add_heard_answer(" ")
    assert not history.entries
