"""Calls over SIP against other ways, all speaking: ``PYTHONPATH=tests python -m benches.sip_calls``.

A gateway in a process of its own speaks a text over and over on every call; phones in this process begin
calls at a rate. Over ARI they call a simulated Asterisk in this process, whose external media is RTP. Printed
are, for each way, the time from the INVITE (the request of the API, the connection, the caller's entry into
the application) to the answer (the bridge of caller and media) and the first audible packet, how much later
than over AudioSocket that is, calls that failed, gaps between packets over 60 ms, and the processor time of
the gateway and its media processes; at the end, the processor time over SIP as a multiple of the others.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest.mock import patch

import httpx
import numpy as np

from shared.calls.simulated_ari import PASSWORD, SimulatedAri, simulated_ari
from shared.sip.network import RecordingListener
from shared.sip.phone import SipTestPhone, sip_phone
from vivavoce.adapters.audio.formats.g711 import ulaw_decode
from vivavoce.adapters.audiosocket.protocol import (
    AudioSocketAudio,
    AudioSocketConnection,
    AudioSocketRole,
    CallId,
)

TEXT: Final = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all. " * 4
CallEnd = Callable[[], Awaitable[object] | None]
_GAP_S: Final = 0.060
_AUDIBLE: Final = 104  # of 32,768: -50 dBFS
# Every call says the same, and renders it anew.
_CODE: Final = (
    "from vivavoce.gateway import cli, engine_opening; engine_opening.KEPT_SPEECH_BYTES = 0; cli.run()"
)


class PacketTimes:
    """Notes when packets arrive, and the first that is audible."""

    def __init__(self) -> None:
        self.arrived: list[float] = []
        self.audible_at = 0.0

    def take(self, pcm: bytes) -> None:
        """Take a packet, s16le."""
        now = time.monotonic()
        self.arrived.append(now)
        if not self.audible_at:
            samples = np.frombuffer(pcm, "<i2").astype(float)
            if np.sqrt(np.mean(samples**2)) > _AUDIBLE:
                self.audible_at = now


class RtpEar:
    """Receives the RTP of a call."""

    def __init__(self) -> None:
        self.times = PacketTimes()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def close(self) -> None:
        """Receive no more."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _receive(self) -> None:
        self.times.take(ulaw_decode(self._socket.recv(2048)[12:]))


class EarMedia:
    """External media of the simulated Asterisk over RTP: an ear instead of a phone with two threads."""

    def __init__(self, host: str) -> None:
        self.phone = RtpEar()

    async def wait_ended(self) -> None:
        """Wait forever: RTP does not say that it has ended."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Receive no more."""
        self.phone.close()


class AudioSocketEar(asyncio.Protocol):
    """Calls over AudioSocket, and receives its audio."""

    def __init__(self) -> None:
        self.times = PacketTimes()
        self._connection = AudioSocketConnection(AudioSocketRole.CALLER)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._connection.send(CallId(uuid.uuid4())))

    def data_received(self, data: bytes) -> None:
        self._connection.receive_data(data)
        for event in self._connection.events():
            if isinstance(event, AudioSocketAudio):
                self.times.take(event.payload)


@dataclass
class WayResult:
    """What was measured over one way, in seconds."""

    answered: list[float] = field(default_factory=list)
    audible: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)  # by why
    gaps: int = 0
    cpu: float = 0.0  # processor seconds a second, of the gateway

    def line(self, name: str) -> str:
        """A line of the report."""

        def at(values: list[float], share: int) -> str:
            return f"{1000 * float(np.percentile(values, share)):.0f}" if values else "-"

        return (
            f"{name:11} answer p50 {at(self.answered, 50)} p95 {at(self.answered, 95)} ms, "
            f"audible p50 {at(self.audible, 50)} p95 {at(self.audible, 95)} ms, "
            f"{self.failures.total()} failed {dict(self.failures) or ''}, "
            f"{self.gaps} gaps over 60 ms, {self.cpu:.2f} processors"
        )


class Gateway:
    """A gateway in a process of its own, which answers the callers of a simulated Asterisk too."""

    def __init__(self, folder: Path, ari: SimulatedAri) -> None:
        self.ari = ari
        script = folder / "script.txt"
        script.write_text(TEXT, encoding="utf-8")
        flags = f"--agent loop:{script} --http-port 0 --audiosocket-port 0 --sip --sip-port 0"
        flags += f" --ari-url {ari.url} --ari-media rtp"
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE, "serve", *flags.split()],
            stdout=subprocess.PIPE, stderr=(folder / "log").open("w"), text=True,
            env=os.environ | {"VIVAVOCE_ARI_PASSWORD": PASSWORD},
        )  # fmt: skip
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        self.http = ready.partition("HTTP on ")[2].partition(",")[0]
        self.audiosocket_port = int(ready.partition("AudioSocket on 127.0.0.1:")[2].split()[0].rstrip(","))
        log = (folder / "log").read_text()
        self.sip_port = int(log.partition("SIP on 127.0.0.1:")[2].split()[0])

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(30)

    def cpu_s(self) -> float:
        """Processor seconds of the process and its children."""
        pids = [self._process.pid]
        for pid in pids:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            pids += [int(child) for child in children]
        ticks = 0
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / 100


# Each begins a call, and returns its end and what is heard. They raise ConnectionError if it is refused.
async def _sip_call(phone: SipTestPhone, gateway: Gateway) -> tuple[CallEnd, PacketTimes]:
    ear = RtpEar()
    description = phone.describe(codecs="0").replace(
        f" {phone.rtp.address[1]} ".encode(), f" {ear.address[1]} ".encode()
    )
    session = phone.call(gateway.sip_port, description=description)
    listener = session.listener
    assert isinstance(listener, RecordingListener)
    async with asyncio.timeout(20):
        while not listener.events:
            await asyncio.sleep(0.001)
    if listener.names()[0] != "answered":
        raise ConnectionError(str(listener.events[0]))
    return session.hang_up, ear.times


async def _rtp_call(client: httpx.AsyncClient) -> tuple[CallEnd, PacketTimes]:
    ear = RtpEar()
    answer = await client.post("/v1/calls", json={"over": "rtp", "peer": f"127.0.0.1:{ear.address[1]}"})
    if answer.status_code != 201:
        raise ConnectionError(f"{answer.status_code} {answer.text[:80]}")
    call = answer.json()["call"]
    return lambda: client.delete(f"/v1/calls/{call}"), ear.times


async def _audiosocket_call(gateway: Gateway) -> tuple[CallEnd, PacketTimes]:
    loop = asyncio.get_running_loop()
    transport, ear = await loop.create_connection(AudioSocketEar, "127.0.0.1", gateway.audiosocket_port)
    return transport.close, ear.times


async def _ari_call(ari: SimulatedAri) -> tuple[CallEnd, PacketTimes]:
    channel = await ari.ring(f"1700.{uuid.uuid4()}")
    async with asyncio.timeout(20):
        while not (bridged := [one for one in ari.bridges.values() if channel.id in one]):
            if channel.id not in ari.channels:
                raise ConnectionError("the gateway did not connect the caller")
            await asyncio.sleep(0.001)
    _, media_channel = bridged[0]
    media = ari.channels[media_channel].media
    assert isinstance(media, EarMedia)
    return lambda: ari.caller_hangs_up(channel), media.phone.times


async def measure(way: str, calls: int, rate: float, seconds: float, gateway: Gateway) -> WayResult:
    """Begin calls at a rate, let all speak, and end them."""
    result = WayResult()
    heard: list[PacketTimes] = []
    ends: list[CallEnd] = []

    async def one(phone: SipTestPhone, client: httpx.AsyncClient) -> None:
        begun = time.monotonic()
        try:
            if way == "audiosocket":
                end, times = await _audiosocket_call(gateway)
            elif way == "ari":
                end, times = await _ari_call(gateway.ari)
            elif way == "sip":
                end, times = await _sip_call(phone, gateway)
            else:
                end, times = await _rtp_call(client)
        except (TimeoutError, OSError, httpx.HTTPError) as error:
            result.failures[repr(error)] += 1
            return
        result.answered.append(time.monotonic() - begun)
        ends.append(end)
        heard.append(times)
        await asyncio.sleep(seconds)
        if times.audible_at:
            result.audible.append(times.audible_at - begun)
        else:
            result.failures[f"silent, {len(times.arrived)} packets"] += 1

    async with sip_phone() as phone, httpx.AsyncClient(base_url=gateway.http, timeout=20) as client:
        cpu, begun = gateway.cpu_s(), time.monotonic()
        tasks = []
        for number in range(calls):
            tasks.append(asyncio.create_task(one(phone, client)))
            await asyncio.sleep(max(0.0, begun + (number + 1) / rate - time.monotonic()))
        await asyncio.gather(*tasks)
        result.cpu = (gateway.cpu_s() - cpu) / (time.monotonic() - begun)
        for times in heard:
            result.gaps += int(np.count_nonzero(np.diff(times.arrived) > _GAP_S))
        ending = [ended for end in ends if (ended := end()) is not None]
        await asyncio.gather(*ending, return_exceptions=True)
        await asyncio.sleep(2)
    return result


async def measure_way(way: str, options: argparse.Namespace) -> WayResult:
    """Measure a way with a gateway of its own: one call, which is printed, then many."""
    with tempfile.TemporaryDirectory() as folder, patch("shared.calls.simulated_ari.RtpMedia", EarMedia):
        async with simulated_ari() as ari:
            gateway = await asyncio.to_thread(Gateway, Path(folder), ari)
            try:
                while not ari.sockets:
                    await asyncio.sleep(0.01)
                one = await measure(way, 1, 1, 3, gateway)
                print(one.line(f"{way} 1"), flush=True)
                return await measure(way, options.calls, options.rate, options.seconds, gateway)
            finally:
                await asyncio.to_thread(gateway.close)


def main() -> None:
    """Measure each way, and print them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    audible, cpu = 0.0, dict[str, float]()
    for way in ("audiosocket", "rtp", "ari", "sip"):
        many = asyncio.run(measure_way(way, options))
        cpu[way] = many.cpu
        print(many.line(way), flush=True)
        if many.audible:
            median = float(np.median(many.audible))
            audible = audible or median
            print(f"{way}: first audible p50 {1000 * (median - audible):+.0f} ms against AudioSocket")
        print(
            json.dumps(
                {"way": way, "calls": options.calls, "failed": many.failures.total(), "gaps": many.gaps}
            )
        )
    ratios = ", ".join(f"{cpu['sip'] / used:.2f} of {way}" for way, used in cpu.items() if way != "sip")
    print(f"sip: processor time {ratios}")


if __name__ == "__main__":
    main()
