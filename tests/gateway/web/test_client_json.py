"""JSON of clients: a message with more values than any request has is refused before it is parsed."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from vivavoce.gateway.apis.dialects.dashscope.client_frames import DashScopeFrameCodec
from vivavoce.gateway.apis.kits.error_table import InvalidField
from vivavoce.gateway.apis.kits.openai.errors import InvalidRequestError
from vivavoce.gateway.apis.kits.openai.request_parsing import parse_json_object
from vivavoce.gateway.apis.kits.request_fields import load_json, parse_json, parse_json_fields
from vivavoce.gateway.calls.api.messages import BadCallMessage, parse_client_message
from vivavoce.gateway.web.client_json import MAX_VALUES

UNITS = ("1,", "{},", "[],", "1e9,", '{"a":1},', '"",', '"\\\\",', "[1,")


def dense_message(unit: str) -> str:
    """A message of 512 KB, or so, that repeats a value."""
    return '{"text": "a", "x": [' + unit * (2**19 // len(unit))


@pytest.mark.parametrize("unit", UNITS)
def test_a_message_of_many_values_is_refused_unparsed(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("the message is parsed"))
    for message in (dense_message(unit), dense_message(unit).encode()):
        with pytest.raises(ValueError, match=f"more than {MAX_VALUES} values"):
            load_json(message)


@pytest.mark.parametrize("text", [",", "[", "{", '"', '\\"', "\\", '{"a":1},', "é,", '",'])
def test_a_text_may_be_of_any_characters(text: str) -> None:
    message = {"text": text * 60_000, "x": [1, {"a": "b"}] * 1_000}
    assert load_json(json.dumps(message)) == message
    assert load_json(json.dumps(message, ensure_ascii=False).encode()) == message


@pytest.mark.parametrize(
    ("parse", "error"),
    [
        (lambda message: parse_json(message, 2**20, AssertionError), AssertionError),
        (parse_json_fields, InvalidField),
        (parse_json_object, InvalidRequestError),
        (parse_client_message, BadCallMessage),
    ],
)
def test_each_parser_refuses_it_in_its_own_terms(parse: Callable[[str], Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=f"more than {MAX_VALUES} values"):
        parse(dense_message("[],")[: 2**18])


def test_dashscope_s_frames_are_parsed_alike() -> None:
    frame = DashScopeFrameCodec().decode(dense_message("[],") + "1]}")
    assert "not JSON" in str(frame)
