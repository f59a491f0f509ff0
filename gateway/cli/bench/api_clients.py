"""Minimal clients of the speech APIs, one interface for all, so that a bench measures them alike.

They send what the SDKs send, without an SDK's delays: DashScope's Python SDK polls every 100 ms. Speech
is requested as s16le at 24 kHz, and connections are kept open between requests. PAI's API answers with base64
in server-sent events, Inworld's with base64 in lines; both are decoded. jambonz' API answers MP3.
"""

import asyncio
import json
from base64 import b64decode
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.protocol import State

from ....adapters.audio.encoders import AudioFormat
from ....tts_engine.chunk import SAMPLE_RATE
from ....tts_engine.errors import Overloaded
from ...background_tasks import cancel_and_wait
from .report import BenchFailed

if TYPE_CHECKING:
    from ....adapters.client import SpeechClient

_NATIVE_PATH = "/v1/audio/speech/stream"
_DASHSCOPE_PATH = "/api-ws/v1/inference"
_OPENAI_PATH = "/v1/audio/speech"
_DASHSCOPE_VOICE = "longanyang"  # a preset name, which every server maps to its default voice
# Of the services' catalogues, for which the default voice speaks.
_CARTESIA_VOICE = "a0e99841-438c-4a64-b679-ae501e7d6091"
_ELEVENLABS_VOICE = "21m00Tcm4TlvDq8ikWAM"
_INWORLD_VOICE = "Ashley"
_REQUEST_TIMEOUT_S = 300.0
_MAX_CONNECTIONS = 10_000


class SpeechApi(StrEnum):
    """The APIs that ``vivavoce serve`` offers for speech."""

    NATIVE = "native"
    OPENAI = "openai"
    DASHSCOPE = "dashscope"
    CARTESIA = "cartesia"
    ELEVENLABS = "elevenlabs"
    DEEPGRAM = "deepgram"
    INWORLD = "inworld"
    JAMBONZ = "jambonz"
    PAI = "pai"
    RAY = "ray"
    XTTS = "xtts"

    @property
    def has_pcm(self) -> bool:
        """Whether the audio is samples, so that its length is known exactly."""
        return self is not SpeechApi.JAMBONZ

    @property
    def bytes_per_s(self) -> int:
        """Size of a second of speech."""
        return AudioFormat("pcm" if self.has_pcm else "mp3", SAMPLE_RATE).bytes_per_second


class ApiClient(Protocol):
    """Speaks texts over one API of one server."""

    def speak(self, words: AsyncIterator[str], voice: str | None = None) -> AsyncIterator[bytes]:
        """Send text as ``words`` yields it and yield s16le at 24 kHz, or jambonz' MP3, as it arrives.

        HTTP takes whole texts: a request is sent when ``words`` has ended. Raises Overloaded when
        the server is at capacity, BenchFailed for any other error.
        """


@asynccontextmanager
async def open_client(api: SpeechApi, url: str, connections: int = 1) -> AsyncIterator[ApiClient]:
    """A client with ``connections`` open to the server at ``url`` (http://host:port)."""
    match api:
        case SpeechApi.NATIVE:
            from ....adapters.client import PoolPolicy, SpeechClient

            policy = PoolPolicy(
                max_connections=_MAX_CONNECTIONS, min_connections=connections, max_idle_s=20.0
            )
            async with SpeechClient(url, pool=policy) as pool:
                yield _NativeClient(pool)
        case SpeechApi.OPENAI:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=_MAX_CONNECTIONS)
            async with httpx.AsyncClient(base_url=url, timeout=_REQUEST_TIMEOUT_S, limits=limits) as http:
                yield _OpenAIClient(http)
        case SpeechApi.DASHSCOPE:
            client = DashScopeClient(url)
            try:
                await client.open(connections)
                yield client
            finally:
                await client.aclose()
        case _:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=_MAX_CONNECTIONS)
            async with httpx.AsyncClient(base_url=url, timeout=_REQUEST_TIMEOUT_S, limits=limits) as http:
                yield _HttpClient(http, api)


class _NativeClient:
    def __init__(self, pool: "SpeechClient") -> None:
        self._pool = pool

    async def speak(self, words: AsyncIterator[str], voice: str | None = None) -> AsyncIterator[bytes]:
        from ....adapters.client import SpeechOptions

        async with self._pool.utterance(SpeechOptions(voice=voice)) as utterance:

            async def push_words() -> None:
                async for word in words:
                    await utterance.push_text(word)
                await utterance.end_input()

            async with _running(push_words()):
                async for piece in utterance:
                    yield piece.audio


class _OpenAIClient:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def speak(self, words: AsyncIterator[str], voice: str | None = None) -> AsyncIterator[bytes]:
        text = "".join([word async for word in words])
        body = openai_request(text, voice)
        async with self._http.stream("POST", _OPENAI_PATH, json=body) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                error = response.json()["error"]
                code = str(error["code"])
                if code.startswith("overloaded_"):
                    raise Overloaded(
                        error["message"], reason=code.removeprefix("overloaded_"), retry_after_s=1.0
                    )
                raise BenchFailed(f"the server answered {response.status_code}: {error['message']}")
            async for data in response.aiter_raw():
                yield data


class _HttpClient:
    """A dialect whose request is JSON and whose answer is audio, as it is or in base64."""

    def __init__(self, http: httpx.AsyncClient, api: SpeechApi) -> None:
        self._http = http
        self._api = api

    async def speak(self, words: AsyncIterator[str], voice: str | None = None) -> AsyncIterator[bytes]:
        path, body = http_request(self._api, "".join([word async for word in words]), voice)
        async with self._http.stream("POST", path, json=body) as response:
            if response.status_code != httpx.codes.OK:
                problem = f"the server answered {response.status_code}: {(await response.aread())[:200]!r}"
                if response.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                    raise Overloaded(problem, reason="api", retry_after_s=1.0)
                raise BenchFailed(problem)
            if self._api not in (SpeechApi.INWORLD, SpeechApi.PAI):
                async for data in response.aiter_raw():
                    yield data
                return
            async for line in response.aiter_lines():
                if audio := _audio_of_line(self._api, line):
                    yield audio


class DashScopeClient:
    """A pool of WebSockets, each of which carries one task at a time, as DashScope's SDK keeps them."""

    def __init__(self, url: str, key: str = "") -> None:
        self._url = f"ws://{urlsplit(url).netloc}{_DASHSCOPE_PATH}"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.idle: list[ClientConnection] = []

    async def open(self, count: int) -> None:
        """Open ``count`` connections."""
        for _ in range(count):
            self.idle.append(await self._connect())

    async def aclose(self) -> None:
        """Close the idle connections."""
        for connection in self.idle:
            await connection.close()

    def _pop_open(self) -> ClientConnection | None:
        """Return an idle connection that the server has not closed, which it does after a minute."""
        while self.idle:
            connection = self.idle.pop()
            if connection.state is State.OPEN:
                return connection
        return None

    async def _connect(self) -> ClientConnection:
        return await connect(
            self._url, additional_headers=self._headers, compression=None, proxy=None, max_queue=None
        )

    async def speak(self, words: AsyncIterator[str], voice: str | None = None) -> AsyncIterator[bytes]:
        """As ``ApiClient.speak``; opens a connection when none is idle."""
        connection = self._pop_open() or await self._connect()
        is_idle = False
        try:
            task_id = uuid4().hex
            await connection.send(run_task_frame(task_id, voice))
            await _receive_event(connection, task_id)  # task-started
            async with _running(_send_words(connection, task_id, words)):
                while isinstance(message := await _receive_event(connection, task_id), bytes):
                    if message:
                        yield message
            is_idle = True
        except Overloaded:
            is_idle = True
            raise
        finally:
            if is_idle:
                self.idle.append(connection)
            else:
                connection.transport.abort()  # audio of the task may still come


async def _receive_event(connection: ClientConnection, task_id: str) -> bytes | str:
    """Return the next audio of the task, b"" for a result, or the name of another event; raises its error."""
    frame = await connection.recv()
    if isinstance(frame, bytes):
        return frame
    header = json.loads(frame)["header"]
    if header["task_id"] != task_id:
        raise BenchFailed(f"got an event of task {header['task_id']} during task {task_id}")
    if header["event"] == "task-failed":
        raise _dashscope_error(header)
    return str(header["event"]) if header["event"] != "result-generated" else b""


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run ``work`` meanwhile; raises its error at the end of the block, and cancels it if the block fails.

    Unlike a task group, it may be left by closing the generator that contains it.
    """
    task = asyncio.create_task(work)
    try:
        yield
        await task
    finally:
        await cancel_and_wait(task)


def _audio_of_line(api: SpeechApi, line: str) -> bytes:
    """Return the audio in a line of Inworld's or PAI's answer; raises BenchFailed if it reports an error."""
    if not line:  # between PAI's events
        return b""
    answer = json.loads(line.removeprefix("data: "))
    if answer.get("error"):
        raise BenchFailed(f"the speech failed: {answer['error']}")
    if api is SpeechApi.PAI:
        return b64decode(answer["output"]["audio"]["data"])
    return b64decode(answer["result"]["audioContent"])


async def _send_words(connection: ClientConnection, task_id: str, words: AsyncIterator[str]) -> None:
    async for word in words:
        await connection.send(_dashscope_frame("continue-task", task_id, {"text": word}))
    await connection.send(_dashscope_frame("finish-task", task_id, {}))


def _dashscope_error(header: dict[str, str]) -> Exception:
    if header["error_code"].startswith("Throttling"):
        return Overloaded(header["error_message"], reason="throttling", retry_after_s=1.0)
    return BenchFailed(f"the task failed: {header['error_code']}: {header['error_message']}")


# Requests on a connection that the bench aborts or stops reading


@asynccontextmanager
async def speaking_transport(api: SpeechApi, url: str, text: str) -> AsyncIterator[asyncio.Transport]:
    """The transport of a connection on which ``text`` is being spoken and audio has arrived."""
    if api not in (SpeechApi.NATIVE, SpeechApi.DASHSCOPE):
        async with _speaking_over_http(api, url, text) as transport:
            yield transport
        return
    path = _NATIVE_PATH if api is SpeechApi.NATIVE else _DASHSCOPE_PATH
    async with connect(
        f"ws://{urlsplit(url).netloc}{path}", compression=None, proxy=None, max_queue=None
    ) as connection:
        for frame in _native_frames(text) if api is SpeechApi.NATIVE else _dashscope_frames(text):
            await connection.send(frame)
        while not isinstance(await connection.recv(), bytes):
            pass
        yield connection.transport


@asynccontextmanager
async def _speaking_over_http(api: SpeechApi, url: str, text: str) -> AsyncIterator[asyncio.Transport]:
    address = urlsplit(url)
    path, fields = http_request(api, text, None)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = json.dumps(fields).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    status = await reader.readline()
    if b" 200 " not in status:
        raise BenchFailed(f"the server answered {status.decode().strip()}")
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(1)
    try:
        yield cast(asyncio.Transport, writer.transport)
    finally:
        writer.transport.abort()


def openai_request(text: str, voice: str | None) -> dict[str, str]:
    """The body of a request for PCM."""
    return {"model": "tts-1", "voice": voice or "alloy", "input": text, "response_format": "pcm"}


def http_request(api: SpeechApi, text: str, voice: str | None) -> tuple[str, Mapping[str, object]]:
    """The path and the body of a request for streamed speech, PCM where the API has it."""
    match api:
        case SpeechApi.CARTESIA:
            audio = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
            speaker = {"mode": "id", "id": voice or _CARTESIA_VOICE}
            fields = {"transcript": text, "voice": speaker, "output_format": audio, "model_id": "sonic-3"}
            return "/tts/bytes", fields
        case SpeechApi.ELEVENLABS:
            path = f"/v1/text-to-speech/{voice or _ELEVENLABS_VOICE}/stream?output_format=pcm_24000"
            return path, {"text": text}
        case SpeechApi.DEEPGRAM:
            query = f"model={voice or ''}&encoding=linear16&container=none&sample_rate=24000"
            return f"/v1/speak?{query}", {"text": text}
        case SpeechApi.INWORLD:
            config = {"audioEncoding": "PCM", "sampleRateHertz": 24_000}
            fields = {"text": text, "voiceId": voice or _INWORLD_VOICE, "audioConfig": config}
            return "/tts/v1/voice:stream", fields
        case SpeechApi.JAMBONZ:
            return "/jambonz/tts", {"text": text, "voice": voice or ""}
        case SpeechApi.PAI:
            speech = {"text": text, "output_format": "pcm", "sample_rate": 24_000}
            return "/api/v1/audio/speech", {
                "input": speech | ({"reference_audio_id": voice} if voice else {})
            }
        case SpeechApi.RAY:
            named = {"voice_type": voice} if voice else {}
            return "/v1/model/cosyvoice/tts", {"text": text, "stream": True, "format": "pcm", **named}
        case SpeechApi.XTTS:
            return "/tts_stream", {"text": text, "speaker": voice or "default"}
        case _:
            return _OPENAI_PATH, dict(openai_request(text, voice))


def run_task_frame(task_id: str, voice: str | None, text: str = "") -> str:
    """DashScope's first frame of a task; ``text`` is spoken before any continue-task."""
    parameters = {"voice": voice or _DASHSCOPE_VOICE, "format": "pcm", "sample_rate": 24_000}
    input_fields = {"text": text} if text else {}
    return _dashscope_frame(
        "run-task", task_id, input_fields, model="cosyvoice-v3-flash", parameters=parameters
    )


def _native_frames(text: str) -> list[str]:
    messages = (
        {"type": "session.config", "response_format": "pcm"},
        {"type": "input.text", "text": text},
        {"type": "input.done"},
    )
    return [json.dumps(message) for message in messages]


def _dashscope_frames(text: str) -> list[str]:
    return [run_task_frame(uuid4().hex, None, text)]


def _dashscope_frame(action: str, task_id: str, input_fields: dict[str, str], **payload: object) -> str:
    header = {"action": action, "task_id": task_id, "streaming": "duplex"}
    return json.dumps({"header": header, "payload": {"input": input_fields, **payload}})
