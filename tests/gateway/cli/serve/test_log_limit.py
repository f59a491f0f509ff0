"""The limit of repeated warnings and errors in the log."""

import asyncio
import logging
from collections.abc import Iterator

import pytest

from vivavoce.gateway.cli.commands.serve.log_limit import MAX_RECORDS, PERIOD_S, LimitedHandler

logger = logging.getLogger("tested")


class ListHandler(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


class LimitedLog:
    def __init__(self) -> None:
        self.now = 0.0
        self.written = ListHandler()
        self.handler = LimitedHandler(self.written, now=lambda: self.now)

    @property
    def lines(self) -> list[str]:
        return self.written.lines


@pytest.fixture
def log() -> Iterator[LimitedLog]:
    limited = LimitedLog()
    logging.getLogger().addHandler(limited.handler)
    yield limited
    logging.getLogger().removeHandler(limited.handler)


def warn(call: int) -> None:
    logger.warning("call %d sends nonsense", call)


def test_repeated_warnings_are_counted_in_the_end(log: LimitedLog) -> None:
    for call in range(1_000):
        warn(call)
    logger.warning("another cause")
    assert log.lines == [*(f"call {call} sends nonsense" for call in range(MAX_RECORDS)), "another cause"]
    log.handler.close()
    assert log.lines[-1] == "990 more lines within 60 s were left out, like: call 0 sends nonsense"


def test_the_next_period_begins_with_the_count(log: LimitedLog) -> None:
    for call in range(12):
        warn(call)
    log.now += PERIOD_S
    logger.warning("another cause")
    warn(12)
    assert log.lines[-3:] == [
        "2 more lines within 60 s were left out, like: call 0 sends nonsense",
        "another cause",
        "call 12 sends nonsense",
    ]


def test_lines_about_calls_and_requests_are_not_limited(
    log: LimitedLog, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for call in range(100):
            logger.info("call %d opened", call)
    assert len(log.lines) == 100


def test_writing_to_a_peer_that_has_gone_is_not_logged_for_each_write(log: LimitedLog) -> None:
    async def scenario() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.transport.abort(), "127.0.0.1", 0)
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            for _ in range(2_000):
                writer.write(b"x")  # asyncio warns of each write after the fifth that fails
                await asyncio.sleep(0)

    asyncio.run(scenario())
    log.handler.close()
    assert MAX_RECORDS < len(log.lines) <= MAX_RECORDS + 1
    assert "socket.send() raised exception" in log.lines[-1]


def test_tracebacks_are_limited(log: LimitedLog) -> None:
    for _ in range(100):
        try:
            raise ValueError("nonsense")
        except ValueError:
            logger.exception("a call failed")
    log.handler.close()
    assert sum("Traceback" in line for line in log.lines) == MAX_RECORDS
    assert len(log.lines) == MAX_RECORDS + 1
