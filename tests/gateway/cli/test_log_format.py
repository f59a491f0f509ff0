"""Lines of the log with text of peers in them."""

import logging

import pytest

from vivavoce.gateway.cli.log_format import PlainLineFormatter


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
