"""``vivavoce compare-runs``: where two runs of the same input part, by the records of streams in their logs.

Streams are compared in the order in which they were opened. Times are not compared.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import BadRequest

_RECORD: Final = re.compile(r"stream (?P<id>\S+) (?P<kind>opened|chunk): (?P<fields>\{.*\})")
_TIMES: Final = ("wall_s", "device_s")

Fields = dict[str, Any]


@dataclass(slots=True)
class LoggedStream:
    """The records of a stream."""

    id: str
    opened: Fields
    chunks: list[Fields] = field(default_factory=list)


def read_streams(log: Path) -> list[LoggedStream]:
    """Read the streams of a log of either format; raises BadRequest if there is none with chunks."""
    streams: dict[str, LoggedStream] = {}
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            for stream_id, kind, fields in _records(lines):
                if kind == "opened":
                    streams[stream_id] = LoggedStream(stream_id, fields)
                elif stream_id in streams:
                    streams[stream_id].chunks.append(fields)
    except OSError as error:
        raise BadRequest(f"cannot read {log}: {error.strerror}") from None
    spoken = [stream for stream in streams.values() if stream.chunks]
    if not spoken:
        raise BadRequest(f"{log} has no records of chunks; the server writes them at server.log_level DEBUG")
    return spoken


def difference(first: LoggedStream, second: LoggedStream) -> str | None:
    """Return where two streams part; None if they are alike."""
    if changed := _changed(first.opened, second.opened):
        return f"opened differently: {changed}"
    for one, other in zip(first.chunks, second.chunks, strict=False):
        if changed := _changed(one, other):
            start_s = one["samples"][0] / SAMPLE_RATE
            return f"chunk {one['index']}, from {start_s:.2f} s: {changed}"
    if len(first.chunks) != len(second.chunks):
        return f"{len(first.chunks)} chunks and {len(second.chunks)}, the common ones alike"
    return None


def _changed(one: Fields, other: Fields) -> str:
    names = [name for name in one if name not in _TIMES and one[name] != other.get(name)]
    return ", ".join(f"{name} {one[name]!r} and {other.get(name)!r}" for name in names)


def _records(lines: Iterable[str]) -> Iterator[tuple[str, str, Fields]]:
    for line in lines:
        if found := _RECORD.search(_message(line)):
            yield found["id"], found["kind"], json.loads(found["fields"])


def _message(line: str) -> str:
    """Return the message of a line of JSON, or the line itself."""
    if not line.startswith("{"):
        return line
    try:
        return str(json.loads(line).get("message", ""))
    except ValueError:
        return ""


def _report(pairs: Sequence[tuple[LoggedStream, LoggedStream]]) -> int:
    """Print each pair of streams; return how many part."""
    parted = 0
    for number, (first, second) in enumerate(pairs, 1):
        found = difference(first, second)
        parted += found is not None
        click.echo(
            f"stream {number} ({first.id}, {second.id}): {found or f'alike, {len(first.chunks)} chunks'}"
        )
    return parted


@click.command("compare-runs", epilog="Example: vivavoce compare-runs monday.log tuesday.log")
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
def compare_runs(first: Path, second: Path) -> None:
    """Tell where two runs part, from logs written at server.log_level DEBUG; exit with 1 if they do."""
    one, other = read_streams(first), read_streams(second)
    parted = _report(list(zip(one, other, strict=False)))
    if len(one) != len(other):
        raise BadRequest(f"{first} has {len(one)} streams, {second} has {len(other)}")
    if parted:
        raise BadRequest(f"{parted} of {len(one)} streams part")
