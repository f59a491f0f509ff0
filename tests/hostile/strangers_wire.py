"""Peers that say nothing or too little, forged headers, and strangers who send RTP to a call of another."""

import asyncio
import json
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from random import Random
from typing import Any, Final

import httpx

from hostile.server import AttackedServer
from shared.calls.rtp_phone import bind_pair
from shared.calls.rtp_stream import RtpSource
from vivavoce.adapters.rtp.packet import encode_packet
from vivavoce.adapters.rtp.rtcp import encode_bye

_SLOW_HEADERS: Final = (b"GET /v1/calls HTTP/1.1\r\nHost: x\r\n", b"POST / HTTP/1.1\r\nX-", b"G", b"")
_HALF_AN_ID: Final = (b"", b"\x01", b"\x01\x00\x10", b"\x01\x00\x10" + bytes(15))
_ANSWER_S: Final = 10.0
_NESTINGS: Final = (b"[" * 50_000, b'{"a":' * 20_000, b'{"input": ' + b"[" * 20_000, b"9" * 20_000)
_COSTLY_TEXTS: Final = (
    "½",
    "1e",
    "$1.234,5 ",
    "a",
    "Hello there. ",
    "ß",
    "9",
    "(",
    "vrrp\u05c3",
    "10:30-11:45 ",
)
CROSS_SITE: Final[Mapping[str, str]] = {
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "no-cors",
    "sec-fetch-dest": "image",
}


def forwarded_headers(random: Random) -> dict[str, str]:
    """Return headers of a proxy that is none, or that passes on what it got."""
    address = random.choice(
        ("", "evil", "198.51.100.7", "a" * 5_000, "1.2.3.4, ::1, x", "[::1", "Call 1 closed")
    )
    return {"x-forwarded-for": address, "x-forwarded-proto": random.choice(("https", "gopher", "wss", ""))}


def nested_body(random: Random) -> bytes:
    """Return JSON that is nested too deeply, or a number that is too long."""
    return random.choice(_NESTINGS)


def costly_speech_body(random: Random) -> bytes:
    """Return a body of ``POST /v1/audio/speech`` with a long text that is costly to read."""
    text = random.choice(_COSTLY_TEXTS)
    return json.dumps({"model": "tts-1", "voice": "alloy", "input": text * (4_096 // len(text))}).encode()


async def stay_silent(server: AttackedServer, random: Random, stays_s: float) -> int:
    """Open connections to a listener, begin a message at most, stay, and leave; return how many."""
    is_http = random.random() < 0.5
    address = server.http if is_http else server.audiosocket
    beginnings = _SLOW_HEADERS if is_http else _HALF_AN_ID
    writers: list[asyncio.StreamWriter] = []
    for _ in range(random.randrange(1, 20)):
        with suppress(OSError):
            _, writer = await asyncio.open_connection(*address)
            writer.write(random.choice(beginnings))
            writers.append(writer)
    await asyncio.sleep(stays_s)
    for writer in writers:
        writer.transport.abort()
    return len(writers)


async def disturb_rtp_call(client: httpx.AsyncClient, random: Random, report: Callable[[str], None]) -> int:
    """Open an RTP call whose peer sends, disturb it from other ports, and hang up; return the datagrams sent.

    Reports a call that ends, or speech that a stranger gets.
    """
    with ExitStack() as stack:
        peer, peer_reports, stranger, other = (
            stack.enter_context(sock) for pair in (bind_pair(), bind_pair()) for sock in pair
        )
        for sock in (peer, peer_reports, stranger, other):
            sock.setblocking(False)
        is_named = random.random() < 0.5
        wanted = {"over": "rtp"} | ({"peer": "{}:{}".format(*peer.getsockname())} if is_named else {})
        answer = await client.post("/v1/calls", json=wanted, timeout=_ANSWER_S)
        if answer.status_code == 503:  # the server is busy
            return 1
        if answer.status_code != 201:
            report(f"POST /v1/calls {wanted}: {answer.status_code} {answer.text[:200]}")
            return 1
        place = answer.json()
        sent = await _send_both(peer, stranger, place, random)
        heard = _received(peer)
        async with asyncio.timeout(_ANSWER_S):
            while not heard:
                await asyncio.sleep(0.02)
                heard = _received(peer)
        await _check_rtp_call(client, place, _received(stranger), report)
        source = RtpSource()
        peer_reports.sendto(encode_bye(source.ssrc, "peer"), (place["address"], place["port"] + 1))
        await client.delete(f"/v1/calls/{place['call']}", timeout=_ANSWER_S)
        return sent + 1


async def _send_both(
    peer: socket.socket, stranger: socket.socket, place: Mapping[str, Any], random: Random
) -> int:
    """Send packets of the peer, each 20 ms after the one before, and what a stranger sends between them."""
    server = (place["address"], place["port"])
    reports = (place["address"], place["port"] + 1)
    source, sent = RtpSource(), 0
    stranger.sendto(encode_packet(RtpSource(ssrc=random.getrandbits(32)).next(b"\x55" * 160)), server)
    for number in range(20):
        peer.sendto(encode_packet(source.next(b"\xff" * 160)), server)
        forged = random.choice(
            (
                encode_bye(source.ssrc, "stranger"),
                encode_packet(RtpSource(ssrc=source.ssrc, sequence=random.getrandbits(16)).next(b"x" * 160)),
                encode_packet(RtpSource(ssrc=number, sequence=number).next(b"x" * 160)),
                random.randbytes(random.randrange(1, 300)),
            )
        )
        if number > 3:  # the peer's address is known by then
            stranger.sendto(forged, random.choice((server, reports)))
        sent += 2
        await asyncio.sleep(0.02)
    return sent


async def _check_rtp_call(
    client: httpx.AsyncClient,
    place: Mapping[str, Any],
    overheard: int,
    report: Callable[[str], None],
) -> None:
    call = await client.get(f"/v1/calls/{place['call']}", timeout=_ANSWER_S)
    if call.status_code != 200:
        report(f"an RTP call with a stranger beside its peer: {call.status_code} {call.text[:200]}")
    if overheard:
        report(f"an RTP call: a stranger got {overheard} packets")


def _received(sock: socket.socket) -> int:
    count = 0
    with suppress(BlockingIOError):
        while True:
            sock.recv(2048)
            count += 1
    return count
