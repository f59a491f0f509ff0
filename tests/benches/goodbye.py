"""Goodbye, then hang-up: ``PYTHONPATH=tests python -m benches goodbye --goodbyes 100``.

On every way into a call that loopback has, a program says ten words and ``hang_up`` with ``after_speech``.
The far end measures whether it heard all of them, and how long after the last sound its call was closed. The
gateway is in this process, with the stand-in voice, whose words are tones of 0.2 s; phones of blocking wires
are on threads. Asterisk, the carriers and the SIP phone are the simulated ones of the tests, the browser is
aiortc. The 14 ways one after another take about an hour; ``--over`` measures one, so that they may run side
by side.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final
from uuid import UUID

import numpy as np
from rich.console import Console

from shared.browser.calling_browser import CallingBrowser
from shared.calls.ari_server import AriServer, ari_server
from shared.calls.call_server import CallServer, call_server
from shared.calls.peers.wires import ALL_WIRES
from shared.calls.rtp_phone import PACKET_SAMPLES, RtpTestPhone
from shared.calls.simulated_media import RtpMedia
from shared.engine.standin_backend import WORD_S
from shared.event_loop import until
from shared.sip.network import RecordingListener
from shared.sip.phone import sip_phone
from vivavoce.adapters.audio.formats.g711 import ulaw_decode
from vivavoce.gateway.calls.ways_in.sip.server import SipCallServer
from vivavoce.gateway.cli.bench.report import BenchFailed, BenchFigure, BenchReport, run_parts
from vivavoce.gateway.cli.phones.received_audio import ReceivedPacket, audible_span
from vivavoce.tts_engine.errors import VivavoceError

GOODBYE: Final = "one two three four five six seven eight nine ten"
SPOKEN_S: Final = len(GOODBYE.split()) * WORD_S
MAX_CLOSE_MS: Final = 200.0
# Codecs and resamplers smear an edge, and Opus loses up to a packet at the beginning.
_TOLERANCE_S: Final = 0.03
_MAX_HOLE_S: Final = 0.01  # inside the words
_TIMEOUT_S: Final = 60.0
_PHONE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Goodbye:
    """One call, as the far end had it."""

    heard_s: float  # from the first audible sample to the last
    longest_hole_s: float  # of silence between them
    closed_ms: float  # from the last audible sample to the end of the call

    @property
    def is_whole(self) -> bool:
        """Whether all words were heard, without a hole."""
        return abs(self.heard_s - SPOKEN_S) <= _TOLERANCE_S and self.longest_hole_s <= _MAX_HOLE_S

    @classmethod
    def of(cls, packets: Sequence[ReceivedPacket], closed_at: float) -> "Goodbye":
        """Measure what arrived. closed_at: monotonic seconds."""
        spans = [audible_span(packet.pcm) for packet in packets]
        audible = [index for index, span in enumerate(spans) if span is not None]
        if not audible:
            return cls(0.0, 0.0, 0.0)
        last = packets[audible[-1]]
        last_span = spans[audible[-1]]
        assert last_span is not None
        pcm = b"".join(packet.pcm for packet in packets[audible[0] : audible[-1] + 1])
        span = audible_span(pcm)
        assert span is not None
        loud = np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(int)[span[0] : span[1]]) > 100)
        heard_until = last.arrived_at + last_span[1] / last.sample_rate
        return cls(
            (span[1] - span[0]) / last.sample_rate,
            float(np.diff(loud).max()) / last.sample_rate,
            1000 * (closed_at - heard_until),
        )


async def say_goodbye(server: CallServer, call_id: str) -> None:
    """Attach a program to the call, say the words, and hang up after them."""
    registry = server.gateway.calls.registry
    await until(lambda: call_id in [active.call.call_id for active in registry])
    async with server.socket(call_id) as socket:
        await socket.send(json.dumps({"type": "text", "text": GOODBYE}))
        await socket.send(json.dumps({"type": "end"}))
        await socket.send(json.dumps({"type": "hang_up", "after_speech": True}))
        async for _ in socket:
            pass


Call = Callable[[CallServer], Awaitable[Goodbye]]


async def _over_wire(wire: str, server: CallServer) -> Goodbye:
    """A call of ``vivavoce phone``, or of a simulated carrier."""
    addresses = server.gateway.addresses
    host, port = addresses.ways_in["audiosocket"] if wire == "audiosocket" else addresses.http
    loop, dialled = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def call() -> Goodbye:
        phones = ALL_WIRES[wire](host, port)
        try:
            call_id: UUID = phones.dial()
            loop.call_soon_threadsafe(dialled.set_result, str(call_id))
            phones.run(time.monotonic() + _PHONE_S)
            (received,) = phones.received_calls()
        finally:
            phones.close()
        return Goodbye.of(received.packets, received.ended_at)

    calling = asyncio.ensure_future(asyncio.to_thread(call))
    await asyncio.wait((calling, dialled), return_when=asyncio.FIRST_COMPLETED)
    if dialled.done():
        await say_goodbye(server, dialled.result())
    return await calling


async def _over_sip(server: CallServer) -> Goodbye:
    sip = server.gateway.calls.opened["sip"].server
    assert isinstance(sip, SipCallServer)
    registry = server.gateway.calls.registry
    async with sip_phone() as phone:
        session = phone.call(sip.sockets.port)
        listener = session.listener
        assert isinstance(listener, RecordingListener)
        await until(lambda: len(registry) > 0)
        (call_id,) = [active.call.call_id for active in registry]
        saying = asyncio.create_task(say_goodbye(server, call_id))
        await until(lambda: "ended" in listener.names(), every_s=0.001)
        closed_at = time.monotonic()
        await saying
        return _of_rtp(phone.rtp, closed_at)


async def _over_ari(running: AriServer, server: CallServer) -> Goodbye:
    caller = await running.ari.ring(f"1700.{time.monotonic_ns()}")
    await running.call_up(caller)
    (channel,) = running.ari.media
    assert isinstance(channel.media, RtpMedia)
    saying = asyncio.create_task(say_goodbye(server, caller.id))
    await until(lambda: not caller.is_in_application or caller.id not in running.ari.channels, every_s=0.001)
    closed_at = time.monotonic()
    await saying
    goodbye = _of_rtp(channel.media.phone, closed_at)
    await running.all_over()
    return goodbye


async def _over_browser(server: CallServer) -> Goodbye:
    async with CallingBrowser.call(server.gateway.addresses.http) as browser:
        await say_goodbye(server, browser.call_id)
        await asyncio.wait_for(browser.closed.wait(), _PHONE_S)
        return Goodbye.of(browser.packets, browser.closed_at)


def _of_rtp(phone: RtpTestPhone, closed_at: float) -> Goodbye:
    rate = 50 * PACKET_SAMPLES
    packets = [
        ReceivedPacket(arrived_at, rate, ulaw_decode(packet.payload))
        for arrived_at, packet in zip(phone.arrived, phone.packets, strict=False)
    ]
    return Goodbye.of(packets, closed_at)


WAYS: Final = (*ALL_WIRES, "sip", "ari", "browser")


def measure(overs: Sequence[str], goodbyes: int) -> BenchReport:
    """Say goodbye ``goodbyes`` times, one after another, on each way in. Raises BenchFailed."""
    parts = [(over, partial(_figures, over, goodbyes)) for over in overs]
    figures, failures = run_parts(parts, Console(stderr=True))
    return BenchReport("goodbye", tuple(chain.from_iterable(figures)), {"goodbyes": goodbyes}, failures)


def _figures(over: str, goodbyes: int) -> list[BenchFigure]:
    try:
        found = asyncio.run(_measure_way(over, goodbyes))
    except (OSError, AssertionError, VivavoceError) as error:  # OSError: timeouts too
        raise BenchFailed(repr(error)) from error
    closed = np.array([goodbye.closed_ms for goodbye in found])
    whole = sum(goodbye.is_whole for goodbye in found)
    return [
        BenchFigure(f"{over}: whole, of {goodbyes}", whole, "", at_least=goodbyes),
        BenchFigure(f"{over}: closed after the last sound, p50", float(np.median(closed)), "ms"),
        BenchFigure(f"{over}: the same, longest", float(closed.max()), "ms", at_most=MAX_CLOSE_MS),
    ]


async def _measure_way(over: str, goodbyes: int) -> list[Goodbye]:
    async with AsyncExitStack() as resources:
        call: Call
        if over == "ari":
            running = await resources.enter_async_context(ari_server())
            server, call = running.server, partial(_over_ari, running)
        else:
            server = await resources.enter_async_context(call_server(sip_port=0))
            others: Mapping[str, Call] = {"sip": _over_sip, "browser": _over_browser}
            call = others.get(over) or partial(_over_wire, over)
        found = []
        for _ in range(goodbyes):
            async with asyncio.timeout(_TIMEOUT_S):
                found.append(await call(server))
        return found
