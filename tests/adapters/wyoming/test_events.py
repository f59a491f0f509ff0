"""Events of Wyoming: as the protocol's own package writes them, in any pieces, and within bounds."""

import asyncio
import json

import pytest

from vivavoce.adapters.wyoming.events import (
    MAX_HEADER_BYTES,
    BadWyomingEvent,
    WyomingEvent,
    WyomingReader,
)

EVENTS = [
    WyomingEvent("describe"),
    WyomingEvent("synthesize", {"text": "Grüße.", "voice": {"name": "heart"}}),
    WyomingEvent("audio-chunk", {"rate": 24_000, "width": 2, "channels": 1}, bytes(range(256))),
]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_events_are_read_in_any_pieces(size: int) -> None:
    sent, reader = b"".join(map(bytes, EVENTS)), WyomingReader()
    found = [
        event for begin in range(0, len(sent), size) for event in reader.push(sent[begin : begin + size])
    ]
    assert found == EVENTS


def test_data_in_the_header_is_merged_with_that_behind_it() -> None:
    data = json.dumps({"text": "b"}).encode()
    header = {"type": "x", "data": {"text": "a", "more": 1}, "data_length": len(data)}
    (event,) = WyomingReader().push(json.dumps(header).encode() + b"\n" + data)
    assert event == WyomingEvent("x", {"text": "b", "more": 1})


def test_the_protocols_own_package_reads_what_is_written() -> None:
    package = pytest.importorskip("wyoming.event", reason="needs the package wyoming")

    async def read() -> list[tuple[str, object, bytes]]:
        stream = asyncio.StreamReader()
        stream.feed_data(b"".join(map(bytes, EVENTS)))
        stream.feed_eof()
        read_events = [await package.async_read_event(stream) for _ in EVENTS]
        return [(event.type, event.data, event.payload or b"") for event in read_events]

    assert asyncio.run(read()) == [(event.type, event.data, event.payload) for event in EVENTS]


@pytest.mark.parametrize(
    "sent",
    [
        b"x" * (MAX_HEADER_BYTES + 1),
        b"\n",
        b"[1]\n",
        b'{"type": 1}\n',
        b'{"type": "x", "data": []}\n',
        b'{"type": "x", "data_length": -1}\n',
        b'{"type": "x", "data_length": 10000000}\n',
        b'{"type": "x", "payload_length": "many"}\n',
        b'{"type": "x", "payload_length": 10000000}\n',
        b'{"type": "x", "data_length": 2}\n12',
        b"[" * 60_000 + b"\n",
    ],
)
def test_what_is_no_event_is_refused(sent: bytes) -> None:
    with pytest.raises(BadWyomingEvent):
        list(WyomingReader().push(sent))
