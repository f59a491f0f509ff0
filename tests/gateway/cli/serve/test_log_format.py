"""Lines of the log with text of peers in them."""

import asyncio
import json
import logging

import pytest

from vivavoce.gateway.cli.commands.serve.log_format import (
    JsonLineFormatter,
    PlainLineFormatter,
    has_no_text,
)
from vivavoce.gateway.operation.log_fields import set_log_fields


def line_of(message: str, *values: object) -> str:
    record = logging.LogRecord("vivavoce.test", logging.INFO, "file.py", 1, message, values, None)
    return PlainLineFormatter().format(record)


def test_text_of_a_peer_cannot_look_like_another_record() -> None:
    forged = "1 opened\n2026-01-01 00:00:00,000 ERROR vivavoce.gateway: all is lost"
    first, second = line_of("Call %s closed", forged).split("\n")
    assert first.endswith("INFO vivavoce.test: Call 1 opened")
    assert second == "    2026-01-01 00:00:00,000 ERROR vivavoce.gateway: all is lost closed"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\rb", "a\\rb"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\u202eabc", "\\u202eabc"),
        ("\x9b", "\\x9b"),
        ("Zoë 東京", "Zoë 東京"),
    ],
)
def test_control_characters_are_shown_and_others_stay(text: str, shown: str) -> None:
    assert line_of("Call %s", text).endswith(f"INFO vivavoce.test: Call {shown}")


def test_a_traceback_follows_its_record() -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        record = logging.LogRecord(
            "vivavoce.test",
            logging.ERROR,
            "file.py",
            1,
            "failed",
            (),
            (type(error), error, error.__traceback__),
        )
    assert PlainLineFormatter().format(record).split("\n")[1] == "Traceback (most recent call last):"


def json_line(message: str, *values: object, extra: dict[str, str] | None = None) -> dict[str, str]:
    record = logging.LogRecord("vivavoce.test", logging.INFO, "file.py", 1, message, values, None)
    record.__dict__.update(extra or {})
    line = JsonLineFormatter().format(record)
    assert line.isascii() and "\n" not in line
    parsed: dict[str, str] = json.loads(line)
    assert parsed.pop("time").endswith("+00:00")
    return parsed


def test_a_json_line_has_the_fields_of_its_task_and_its_own() -> None:
    async def request(key: str) -> dict[str, str]:
        set_log_fields(key=key, trace="a trace")
        await asyncio.sleep(0)
        return json_line("Call %s closed", "7\n\u2028", extra={"call": "7"})

    async def two() -> list[dict[str, str]]:
        return await asyncio.gather(request("reception"), request("clinic"))

    first, second = asyncio.run(two())
    assert first == {
        "level": "INFO",
        "logger": "vivavoce.test",
        "message": "Call 7\n\u2028 closed",
        "call": "7",
        "key": "reception",
        "trace": "a trace",
    }
    assert second["key"] == "clinic"
    assert "key" not in json_line("outside of any request")


def test_a_field_of_another_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="not text"):
        set_log_fields(text="Hello.")


def test_messages_that_libraries_log_at_debug_are_left_out() -> None:
    def record(name: str, level: int) -> logging.LogRecord:
        return logging.LogRecord(name, level, "file.py", 1, "< TEXT 'Hello.'", (), None)

    assert not has_no_text(record("websockets.server", logging.DEBUG))
    assert has_no_text(record("websockets.server", logging.WARNING))
    assert has_no_text(record("vivavoce.gateway.serve", logging.DEBUG))
