"""What a language model's server sends, and what it is sent; whole answers are in test_calls.py."""

import json

import pytest

from vivavoce.gateway.browser.chat import ChatFailed, ChatHistory, parse_token


def event(**delta: object) -> str:
    return json.dumps({"choices": [{"delta": delta}]})


@pytest.mark.parametrize(
    ("data", "token"),
    [
        (event(content=" hello"), " hello"),
        (event(role="assistant"), ""),
        (event(content=None), ""),
        (event(content=""), ""),
        ('{"choices": []}', ""),
        ('{"choices": [], "usage": {"total_tokens": 9}}', ""),
        ('{"choices": [{"delta": null}]}', ""),
    ],
)
def test_an_event_gives_its_text_and_one_without_text_gives_none(data: str, token: str) -> None:
    assert parse_token(data) == token


@pytest.mark.parametrize(
    "data", ["", "hello", "[]", "5", '{"choices": 5}', '{"choices": ["x"]}', "[" * 9_000]
)
def test_what_is_no_completion_is_one_clear_failure(data: str) -> None:
    with pytest.raises(ChatFailed, match="not a chat completion"):
        parse_token(data)


def test_an_error_in_the_middle_of_an_answer_is_a_failure_that_repeats_nothing_of_it() -> None:
    with pytest.raises(ChatFailed) as failure:
        parse_token('{"error": {"message": "key sk-123 is over its limit"}}')
    assert "sk-123" not in str(failure.value)


def test_a_history_begins_with_the_prompt_and_holds_the_newest_turns() -> None:
    conversation = ChatHistory("Be brief.")
    for number in range(60):
        conversation.add_question(f"question {number}")
        conversation.add_heard_answer(f" answer {number} ")
    assert len(conversation.entries) == 40
    messages = conversation.request_messages()
    assert messages[0] == {"role": "system", "content": "Be brief."}
    assert messages[1] == {"role": "user", "content": "question 40"}
    assert messages[-1] == {"role": "assistant", "content": "answer 59"}


def test_an_answer_of_which_nothing_was_heard_was_not_given() -> None:
    conversation = ChatHistory("")
    conversation.add_heard_answer(" ")
    assert not conversation.entries
