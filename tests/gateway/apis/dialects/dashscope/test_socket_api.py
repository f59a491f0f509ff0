"""DashScope's WebSocket API on real sockets: tasks, refusals, timeouts, and the release of the engine."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from shared.engine.standin_backend import StandInBackend
from shared.event_loop import until
from vivavoce.adapters.dashscope.connection import DEFAULT_TIMEOUTS, DashScopeTimeouts
from vivavoce.gateway.access.access_control import AccessControl, Grant
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.access.url_guard import UrlGuard
from vivavoce.gateway.apis.dialects.dashscope.socket_api import PATH, DashScopeSocketApi
from vivavoce.gateway.apis.shell.speech_server import SpeechApiPolicy, SpeechServer
from vivavoce.gateway.listening_sockets import bind_socket
from vivavoce.gateway.web.app import Mount, make_app
from vivavoce.gateway.web.http_server import HttpServer
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.scheduler import SchedulerPolicy

TIMEOUT_S = 30.0
PITCHES = tuple(range(300, 3300, 150))


class EngineVoices:
    """Resolves the names of the engine's own voices."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def resolve(self, name: str | None, grant: Grant, default: str | None = None) -> str:
        return self._engine.voices.get(name).id


class RunningServer:
    """A server of the WebSocket API, and its port."""

    def __init__(self, sockets: DashScopeSocketApi, backend: StandInBackend, port: int) -> None:
        self.sockets = sockets
        self.backend = backend
        self.port = port

    @asynccontextmanager
    async def connect_client(self, *, key: str | None = None, path: str = PATH) -> AsyncIterator["Client"]:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        url = f"ws://127.0.0.1:{self.port}{path}"
        async with connect(url, additional_headers=headers, proxy=None, compression=None) as socket:
            yield Client(socket)

    async def wait_until_free(self) -> None:
        await until(lambda: self.backend.open_slots == 0 and not self.sockets.server.engine.active_streams)


class Client:
    """A client that sends and receives frame by frame."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio = b""
        self.events: list[dict[str, Any]] = []

    async def send(self, action: str, task_id: str, input: Any = None, **payload: Any) -> None:
        header = {"action": action, "task_id": task_id, "streaming": "duplex"}
        await self.send_raw(json.dumps({"header": header, "payload": {"input": input or {}, **payload}}))

    async def send_raw(self, data: str | bytes) -> None:
        await self.socket.send(data)

    async def run_task(
        self, task_id: str, input: Any = None, *, model: str = "cosyvoice-v2", **parameters: Any
    ) -> None:
        parameters = {"voice": "longanyang", "format": "pcm", "sample_rate": 24_000, **parameters}
        await self.send("run-task", task_id, input, model=model, parameters=parameters)

    async def receive(self) -> dict[str, Any] | bytes:
        """Return the next frame; add JSON to ``events`` and audio to ``audio``."""
        async with asyncio.timeout(TIMEOUT_S):
            frame = await self.socket.recv()
        if isinstance(frame, bytes):
            self.audio += frame
            return frame
        event: dict[str, Any] = json.loads(frame)
        self.events.append(event)
        return event

    async def receive_event(self, *names: str) -> dict[str, Any]:
        while True:
            frame = await self.receive()
            if isinstance(frame, dict) and frame["header"]["event"] in names:
                return frame["header"] | {"payload": frame["payload"]}

    async def start_task(self, task_id: str, **parameters: Any) -> None:
        await self.run_task(task_id, **parameters)
        assert (await self.receive_event("task-started", "task-failed"))["event"] == "task-started"

    async def speak(self, task_id: str, *texts: str, **parameters: Any) -> dict[str, Any]:
        """Run a whole task and return its last event."""
        self.audio = b""
        await self.start_task(task_id, **parameters)
        for text in texts:
            await self.send("continue-task", task_id, {"text": text})
        await self.send("finish-task", task_id)
        return await self.receive_event("task-finished", "task-failed")

    async def wait_until_closed(self) -> int | None:
        with pytest.raises(ConnectionClosed) as caught:
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    await self.socket.recv()
        return None if caught.value.rcvd is None else caught.value.rcvd.code


@asynccontextmanager
async def running_server(
    *,
    access: AccessControl | None = None,
    backend: StandInBackend | None = None,
    timeouts: DashScopeTimeouts = DEFAULT_TIMEOUTS,
    max_streams: int = 64,
) -> AsyncIterator[RunningServer]:
    backend = backend or StandInBackend(PITCHES)
    config = EngineConfig(scheduler=SchedulerPolicy(max_streams=max_streams))
    async with await Engine.open(backend=backend, config=config) as engine:
        access = access or AccessControl.open_to_all()
        voices: Any = EngineVoices(engine)
        server = SpeechServer(engine, access, voices, UrlGuard(), SpeechApiPolicy())
        sockets = DashScopeSocketApi(server, voices, timeouts)
        app = make_app(
            unready=lambda: None,
            registry=engine.metrics.registry,
            access=access,
            mounts=[Mount(sockets.routes(), None)],
        )
        async with served(app) as port:
            yield RunningServer(sockets, backend, port)
            await sockets.finish(0.0)


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[int]:
    sock = bind_socket("127.0.0.1", 0)
    server = HttpServer(app, sock)
    task = asyncio.create_task(server.run_until_closed())
    await server.wait_started(task)
    try:
        yield sock.getsockname()[1]
    finally:
        server.close()
        await task


def with_server(test: Callable[[RunningServer], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with running_server(**settings) as server:
            await test(server)
            await server.wait_until_free()

    asyncio.run(run())


def pitch_of(pcm: bytes) -> int:
    """Return the pitch of the stand-in voice that spoke."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)[:4800]
    peak = int(np.argmax(np.abs(np.fft.rfft(samples * np.hanning(len(samples)), 48_000))))
    return min(PITCHES, key=lambda pitch: abs(pitch - peak / 2))


# Tasks


def test_a_task_is_spoken_with_its_events_in_order() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            finished = await client.speak("a" * 32, "Hello, ", "world. ", "How are you?")
            assert finished["payload"]["usage"] == {"characters": 26}
            assert len(client.audio) >= 5 * 9_600
            names = [event["header"]["event"] for event in client.events]
            assert names[0], names[-1] == ("task-started", "task-finished")
            kinds = [event["payload"].get("output", {}).get("type") for event in client.events[1:-1]]
            assert kinds[0] == "sentence-begin"
            assert kinds[-1] == "sentence-end"
            assert kinds.count("sentence-begin") == kinds.count("sentence-end") == 2

    with_server(test)


def test_each_binary_frame_is_announced_right_before_it() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.start_task("t")
            await client.send("continue-task", "t", {"text": "One two three. Four five."})
            await client.send("finish-task", "t")
            before: Any = None
            for _ in range(100):
                frame = await client.receive()
                if isinstance(frame, bytes):
                    assert before["payload"]["output"]["type"] == "sentence-synthesis"
                elif frame["header"]["event"] == "task-finished":
                    return
                before = frame
            pytest.fail("the task did not finish")

    with_server(test)


@pytest.mark.parametrize("path", [PATH, PATH + "/", PATH + "?key=value"])
def test_the_path_may_end_in_a_slash_and_is_not_redirected(path: str) -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client(path=path) as client:
            assert (await client.speak("t", "Hello."))["event"] == "task-finished"

    with_server(test)


def test_many_tasks_follow_each_other_without_a_pause() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            for number in range(50):
                assert (await client.speak(f"task-{number}", "Hello."))["event"] == "task-finished"

    with_server(test, max_streams=1)


def test_the_engine_is_free_before_task_finished_is_written() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client, server.connect_client() as other:
            for number in range(20):
                await client.speak(f"task-{number}", "Hello.")
                await other.start_task(f"other-{number}")  # the only stream of the server is free
                await other.send("finish-task", f"other-{number}", {"directive": "cancel"})
                await other.receive_event("task-finished")

    with_server(test, max_streams=1)


def test_a_run_task_sent_before_the_end_of_the_last_task_is_accepted() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.start_task("a")
            await client.send("finish-task", "a", {"directive": "cancel"})
            await client.run_task("b")
            assert (await client.receive_event("task-finished"))["task_id"] == "a"
            assert (await client.receive_event("task-started"))["task_id"] == "b"

    with_server(test)


def test_a_hundred_tasks_on_twenty_sockets_are_not_mixed_up() -> None:
    async def test(server: RunningServer) -> None:
        async def five(pitch: int) -> list[int]:
            async with server.connect_client() as client:
                heard = []
                for _ in range(5):
                    task_id = uuid4().hex
                    finished = await client.speak(task_id, "One two three.", voice=f"tone-{pitch}")
                    assert finished["event"] == "task-finished"
                    assert {event["header"]["task_id"] for event in client.events} == {task_id}
                    client.events.clear()
                    heard.append(pitch_of(client.audio))
                return heard

        heard = await asyncio.gather(*map(five, PITCHES))
        assert heard == [[pitch] * 5 for pitch in PITCHES]

    with_server(test)


def test_text_in_run_task_is_spoken() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.run_task(str(uuid4()), {"text": "Hello there."})
            await client.receive_event("task-started")
            await client.send("finish-task", str(client.events[0]["header"]["task_id"]))
            finished = await client.receive_event("task-finished")
            assert finished["payload"]["usage"] == {"characters": 12}

    with_server(test)


def test_flush_speaks_what_is_buffered_while_the_task_goes_on() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.start_task("t")
            await client.send("continue-task", "t", {"text": "Hello"})
            await client.send("continue-task", "t", {"flush": True})
            while not client.audio:
                await client.receive()
            await client.send("finish-task", "t")
            await client.receive_event("task-finished")

    with_server(test)


def test_cancelling_ends_the_task_at_once_and_frees_the_engine() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.start_task("t")
            await client.send("continue-task", "t", {"text": "word " * 3_000})
            while not client.audio:
                await client.receive()
            await client.send("finish-task", "t", {"directive": "cancel"})
            await client.receive_event("task-finished")
            await server.wait_until_free()  # after the step under way
            assert len(client.audio) < 3_000 * 9_600
            assert (await client.speak("next", "Hello."))["event"] == "task-finished"

    with_server(test)


def test_word_times_come_with_the_end_of_their_sentence() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.speak("t", "One two. Three.", word_timestamp_enabled=True)
            ends = [
                event["payload"]["output"]
                for event in client.events
                if event["payload"].get("output", {}).get("type") == "sentence-end"
            ]
            words = [[word["text"] for word in end["sentence"]["words"]] for end in ends]
            assert words == [["One", "two."], ["Three."]]
            first, second = ends[0]["sentence"]["words"]
            assert (first["begin_time"], first["end_time"]) == (0, 200)
            assert second["begin_index"] == 4
            assert ends[1]["sentence"]["words"][0]["begin_time"] >= 400

    with_server(test)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["Default", "mp3", "wav", "pcm", "opus"])
@pytest.mark.parametrize("sample_rate", [0, 8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
def test_every_format_at_every_rate_decodes_to_the_spoken_length(codec: str, sample_rate: int) -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            finished = await client.speak("t", "One two.", format=codec, sample_rate=sample_rate)
            assert finished["event"] == "task-finished"
            rate = sample_rate or 22_050
            seconds = len(client.audio) / 2 / rate if codec == "pcm" else decoded_s(client.audio)
            assert 0.4 <= seconds <= 0.75

    with_server(test)


def decoded_s(audio: bytes) -> float:
    import io

    import av

    with av.open(io.BytesIO(audio)) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def test_volume_and_pitch_change_the_audio() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.speak("t", "One two.", volume=0)
            assert not any(client.audio)
            await client.speak("u", "One two.", pitch=1.5, voice="tone-600")
            assert pitch_of(client.audio) == 900

    with_server(test)


def test_ssml_tags_are_neither_spoken_nor_charged() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            document = '<speak>Hello <sub alias="world">W</sub>.</speak>'
            finished = await client.speak("t", document, enable_ssml=True)
            assert finished["payload"]["usage"] == {"characters": len("Hello W.")}

    with_server(test)


def test_the_prosody_of_an_ssml_document_multiplies_the_tasks_own() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            plain = '<speak><prosody rate="1">One two three four.</prosody></speak>'
            await client.speak("t", plain, enable_ssml=True, voice="tone-600")
            seconds = len(client.audio)
            document = (
                '<speak rate="2" volume="25"><prosody pitch="1.5">One two three four.</prosody></speak>'
            )
            await client.speak("u", document, enable_ssml=True, voice="tone-600", volume=25)
            assert pitch_of(client.audio) == 900
            assert len(client.audio) == pytest.approx(seconds / 2, rel=0.15)
            assert np.abs(np.frombuffer(client.audio, "<i2").astype(int)).max() < 2_500

    with_server(test)


def test_a_task_without_text_is_20_ms_of_silence() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            finished = await client.speak("t")
            assert finished["payload"]["usage"] == {"characters": 0}
            assert client.audio == bytes(960)

    with_server(test)


# Refusals

BAD: dict[str, Callable[[Client], Awaitable[None]]] = {
    "not JSON": lambda client: client.send_raw("{"),
    "binary": lambda client: client.send_raw(b"\x00"),
    "20,001 characters": lambda client: client.send("continue-task", "t", {"text": "x" * 20_001}),
    "SSML that is not XML": lambda client: client.send(
        "continue-task", "t", {"text": "<speak>Hello <b></speak>"}
    ),
    "a billion laughs": lambda client: client.send(
        "continue-task",
        "t",
        {"text": '<speak/><!DOCTYPE speak [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><speak>&b;</speak>'},
    ),
    "another directive": lambda client: client.send("finish-task", "t", {"directive": "pause"}),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_a_wrong_frame_fails_the_open_task_and_no_other(bad: Callable[[Client], Awaitable[None]]) -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client, server.connect_client() as other:
            await other.start_task("other")
            await client.start_task("t", enable_ssml=True)
            await client.send("continue-task", "t", {"text": "word " * 1_000})
            await bad(client)
            failed = await client.receive_event("task-failed")
            assert (failed["task_id"], failed["error_code"]) == ("t", "InvalidParameter")
            assert failed["payload"] == {}
            await client.send("continue-task", "t", {"text": "late"})
            await client.send("finish-task", "t")
            assert (await client.speak("next", "Hello."))["event"] == "task-finished"
            await other.send("continue-task", "other", {"text": "Hello."})
            await other.send("finish-task", "other")
            assert (await other.receive_event("task-finished", "task-failed"))["event"] == "task-finished"

    with_server(test)


@pytest.mark.parametrize(
    ("parameters", "code", "says"),
    [
        ({"voice": "nobody"}, "InvalidParameter", "Engine return error code: 418"),
        ({"voice": None}, "InvalidParameter", "voice is required"),
        ({"format": "amr"}, "InvalidParameter", "format"),
        ({"model": "paraformer-v2"}, "ModelNotFound", "paraformer-v2"),
    ],
)
def test_a_task_that_cannot_run_fails_with_dashscopes_code(parameters: Any, code: str, says: str) -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.run_task("t", **parameters)
            failed = await client.receive_event("task-failed", "task-started")
            assert (failed["event"], failed["error_code"]) == ("task-failed", code)
            assert says in failed["error_message"]
            assert (await client.speak("next", "Hello."))["event"] == "task-finished"

    with_server(test)


def test_a_preset_of_dashscope_is_spoken_by_the_default_voice() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            for preset in ("longxiaochun", "longxiaochun_v2", "loongstella", "longanyang"):
                await client.speak(preset, "One two.", voice=preset)
                assert pitch_of(client.audio) == PITCHES[0]

    with_server(test)


def test_a_second_task_is_refused_and_the_first_goes_on() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.start_task("first")
            await client.run_task("second")
            assert (await client.receive_event("task-failed"))["task_id"] == "second"
            await client.send("continue-task", "first", {"text": "Hello."})
            await client.send("finish-task", "first")
            assert (await client.receive_event("task-finished"))["task_id"] == "first"

    with_server(test)


@pytest.mark.parametrize(
    "run", [{"model": "paraformer-v2"}, {"rate": 9}, {"voice": ""}, {"voice": "unknown"}, {"format": "ogg"}]
)
def test_frames_under_way_when_a_task_is_refused_get_no_failure_of_their_own(run: dict[str, Any]) -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.run_task("refused", **run)  # a client does not wait for task-started here
            await client.send("continue-task", "refused", {"text": "One."})
            await client.send("continue-task", "refused", {"text": "Two."})
            await client.send("finish-task", "refused")
            await client.receive_event("task-failed")
            assert (await client.speak("next", "Hello."))["event"] == "task-finished"
            failures = [event["header"] for event in client.events if "error_code" in event["header"]]
            assert [failure["task_id"] for failure in failures] == ["refused"]

    with_server(test)


def test_frames_of_a_second_task_are_ignored_after_its_refusal() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.start_task("first")
            await client.run_task("second")
            await client.send("continue-task", "second", {"text": "One."})
            await client.send("finish-task", "second")
            await client.send("continue-task", "first", {"text": "Two."})
            await client.send("finish-task", "first")
            assert (await client.receive_event("task-finished"))["task_id"] == "first"
            failures = [event["header"] for event in client.events if "error_code" in event["header"]]
            assert [failure["task_id"] for failure in failures] == ["second"]

    with_server(test)


def test_a_task_beyond_capacity_fails_at_once() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client, server.connect_client() as other:
            await client.start_task("first")
            await other.run_task("second")
            failed = await other.receive_event("task-failed", "task-started")
            assert failed["error_code"] == "Throttling.RateQuota"
            assert failed["error_message"].startswith("Requests rate limit exceeded, please try again later")
            await client.send("finish-task", "first")
            await client.receive_event("task-finished")
            assert (await other.speak("third", "Hello."))["event"] == "task-finished"

    with_server(test, max_streams=1)


# Keys

NO_LIMITS = KeyLimits()


def keys(tmp_path: Path, limits: KeyLimits = NO_LIMITS) -> tuple[KeysFile, str]:
    file = KeysFile(tmp_path / "keys.json")
    return file, file.add("test", (Scope.SPEAK,), limits)


@pytest.mark.parametrize("key", [None, "wrong", "vv_00000000_" + "x" * 43, " "])
def test_a_wrong_key_is_refused_at_the_handshake_with_401(key: str | None, tmp_path: Path) -> None:
    async def test(server: RunningServer) -> None:
        with pytest.raises(InvalidStatus) as caught:
            async with server.connect_client(key=key):
                pass
        answer = caught.value.response
        assert (answer.status_code, answer.reason_phrase) == (401, "Unauthorized")
        body = json.loads(answer.body or b"")
        assert body["code"] == "InvalidApiKey"
        assert set(body) == {"code", "message", "request_id"}

    with_server(test, access=AccessControl(keys(tmp_path)[0]))


def test_a_valid_key_is_accepted_with_bearer_in_any_case(tmp_path: Path) -> None:
    file, key = keys(tmp_path)

    async def test(server: RunningServer) -> None:
        for scheme in ("Bearer", "bearer"):
            headers = {"Authorization": f"{scheme} {key}"}
            url = f"ws://127.0.0.1:{server.port}{PATH}"
            async with connect(url, additional_headers=headers, proxy=None) as socket:
                assert "permessage-deflate" not in socket.response.headers.get("Sec-WebSocket-Extensions", "")
                assert (await Client(socket).speak("t", "Hello."))["event"] == "task-finished"

    with_server(test, access=AccessControl(file))


def test_a_key_without_the_scope_speak_is_refused_at_the_handshake(tmp_path: Path) -> None:
    file = KeysFile(tmp_path / "keys.json")
    key = file.add("enrols", (Scope.ENROLL,), KeyLimits())

    async def test(server: RunningServer) -> None:
        with pytest.raises(InvalidStatus) as caught:
            async with server.connect_client(key=key):
                pass
        assert caught.value.response.status_code == 403

    with_server(test, access=AccessControl(file))


def test_a_revoked_key_runs_no_more_tasks(tmp_path: Path) -> None:
    file, key = keys(tmp_path)

    async def test(server: RunningServer) -> None:
        async with server.connect_client(key=key) as client:
            await client.speak("t", "Hello.")
            file.revoke(key.split("_")[1])
            await client.run_task("u")
            assert (await client.receive_event("task-failed"))["error_code"] == "InvalidApiKey"

    with_server(test, access=AccessControl(file))


def test_a_key_has_a_limited_number_of_open_tasks(tmp_path: Path) -> None:
    file, key = keys(tmp_path, KeyLimits(streams=1))

    async def test(server: RunningServer) -> None:
        async with server.connect_client(key=key) as client, server.connect_client(key=key) as other:
            await client.start_task("t")
            await other.run_task("u")
            assert (await other.receive_event("task-failed"))["error_code"] == "Throttling.RateQuota"
            await client.send("finish-task", "t")
            await client.receive_event("task-finished")
            assert (await other.speak("v", "Hello."))["event"] == "task-finished"

    with_server(test, access=AccessControl(file))


# Timeouts and shutdown

SHORT_TIMEOUTS = DashScopeTimeouts(input_timeout_s=0.1, idle_timeout_s=0.2)


def test_an_idle_socket_is_closed_with_1000() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            assert await client.wait_until_closed() == 1000
        await until(lambda: len(server.sockets.connections) == 0)

    with_server(test, timeouts=SHORT_TIMEOUTS)


def test_a_task_without_input_fails_and_the_socket_stays_open() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.start_task("t")
            failed = await client.receive_event("task-failed")
            assert "request timeout after" in failed["error_message"]
            assert (await client.speak("next", "Hello."))["event"] == "task-finished"

    with_server(test, timeouts=DashScopeTimeouts(input_timeout_s=0.6, idle_timeout_s=20.0))


@pytest.mark.slow
def test_a_client_that_stops_reading_stops_its_own_rendering_only() -> None:
    async def test(server: RunningServer) -> None:
        metrics = server.sockets.server.engine.metrics
        async with server.connect_client() as client, server.connect_client() as other:
            await client.start_task("t", sample_rate=48_000, format="wav")
            client.socket.transport.pause_reading()
            for _ in range(10):
                await client.send("continue-task", "t", {"text": "word " * 3_999})
            rendered = -1.0
            while rendered != (rendered := metrics.audio_seconds._value.get()):
                await asyncio.sleep(0.5)
            assert rendered < 10 * 3_999 * 0.2
            assert (await other.speak("u", "Hello."))["event"] == "task-finished"
            client.socket.transport.abort()
            await server.wait_until_free()

    with_server(test)


def test_at_shutdown_open_tasks_finish_and_sockets_are_closed_with_1001() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as idle, server.connect_client() as client:
            await client.start_task("t")
            await client.send("continue-task", "t", {"text": "Hello."})
            ending = asyncio.create_task(server.sockets.finish(TIMEOUT_S))
            assert await idle.wait_until_closed() == 1001
            with pytest.raises(InvalidStatus) as caught:
                async with server.connect_client():
                    pass
            assert caught.value.response.status_code == 503
            await client.send("finish-task", "t")
            assert (await client.receive_event("task-finished", "task-failed"))["event"] == "task-finished"
            assert await client.wait_until_closed() == 1001
            await ending

    with_server(test)


def test_the_wait_for_open_tasks_at_shutdown_is_bounded() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            await client.start_task("t")
            await server.sockets.finish(0.05)
            assert await client.wait_until_closed() == 1001

    with_server(test)


def test_the_socket_answers_pings() -> None:
    async def test(server: RunningServer) -> None:
        async with server.connect_client() as client:
            async with asyncio.timeout(TIMEOUT_S):
                await (await client.socket.ping())

    with_server(test)
