"""Recordings in native-stream configurations: made into temporary voices in time, kept, and removed."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from shared.event_loop import until
from shared.recordings import as_data_url, recording
from shared.tones import pitch_of
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.gateway.apis.native_stream.socket_api import PATH
from vivavoce.tts_engine.cosyvoice.bundle_voices import BundleVoices
from vivavoce.tts_engine.voices.store import VoiceStore

pytestmark = pytest.mark.usefixtures("decoded_in_this_process")

BUNDLED_VOICES = 2  # of the backend


@pytest.fixture
def encoded_lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths in samples of the recordings that voices were made of."""
    lengths: list[int] = []
    encode = BundleVoices.encode_prompt

    def counted(self: BundleVoices, samples: Any, *about: Any) -> Any:
        lengths.append(len(samples))
        return encode(self, samples, *about)

    monkeypatch.setattr(BundleVoices, "encode_prompt", counted)
    return lengths


REFERENCE = {"ref_audio": as_data_url(recording()), "ref_text": "What is said."}


class StreamClient:
    """A client of one connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio = b""

    async def send(self, message_type: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": message_type, **fields}))

    async def configure(self, **fields: Any) -> None:
        await self.send("session.config", **{"response_format": "pcm", **fields})

    async def until(self, message_type: str) -> dict[str, Any]:
        """Receive up to the first message of that type; audio before it is stored."""
        while True:
            data = await self.socket.recv()
            if isinstance(data, bytes):
                self.audio += data
            elif (event := json.loads(data))["type"] == message_type:
                return dict(event)

    async def say(self, text: str = "One two three.") -> None:
        await self.send("input.text", text=text)
        await self.send("input.done")

    async def pitch(self) -> float:
        """Receive the next utterance; returns its pitch, Hz."""
        self.audio = b""
        assert (await self.until("session.done"))["total_sentences"] == 1
        return pitch_of(self.audio)


@asynccontextmanager
async def open_stream(served: Any, headers: dict[str, str] | None = None) -> AsyncIterator[StreamClient]:
    host, port = served.address
    url = f"ws://{host}:{port}{PATH}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield StreamClient(socket)


async def wait_voices_removed(served: Any) -> None:
    await until(lambda: len(served.backend.voices) == BUNDLED_VOICES)


class RecordingHost:
    """An HTTP server that answers with a recording once ``released`` is set, or first with an error."""

    def __init__(self, *, fails_once: bool = False) -> None:
        self.url = ""
        self.requests = 0
        self.released = asyncio.Event()
        self.disconnected = asyncio.Event()  # set by a client that leaves before its answer
        self._fails_once = fails_once

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["RecordingHost"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a.wav"
            try:
                yield self
            finally:
                self.released.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.requests += 1
        await reader.readuntil(b"\r\n\r\n")
        disconnect, released = asyncio.create_task(reader.read(1)), asyncio.create_task(self.released.wait())
        await asyncio.wait({disconnect, released}, return_when=asyncio.FIRST_COMPLETED)
        if disconnect.done():
            self.disconnected.set()
        sound, status = recording(), "500" if self._fails_once else "200"
        self._fails_once = False
        writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: {len(sound)}\r\n\r\n".encode() + sound)
        writer.close()
        for task in (disconnect, released):
            task.cancel()
        await asyncio.gather(disconnect, released, return_exceptions=True)


LOCAL = ("127.0.0.1",)


def test_a_recording_is_encoded_once_and_its_voice_removed_with_the_connection(
    run: Any, store: VoiceStore, encoded_lengths: list[int]
) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            for _ in range(2):
                await client.say()
                assert await client.pitch() == pytest.approx(220, abs=4)
            await client.configure(speed=2, **REFERENCE)  # the same recording
            await client.say()
            await client.until("session.done")
            assert len(served.backend.voices) == BUNDLED_VOICES + 1
        await wait_voices_removed(served)
        assert store.list() == ()
        assert len(encoded_lengths) == 1

    run(test, store=store)


def test_the_voice_is_made_before_text_arrives(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await until(lambda: len(served.backend.voices) == BUNDLED_VOICES + 1)
            await client.configure(voice="tone-440")
            await wait_voices_removed(served)

    run(test, store=store)


def test_an_utterance_keeps_the_voice_that_it_began_with(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say()
            await client.configure(voice="tone-440")
            await client.say()
            await client.configure(**REFERENCE)
            await client.say()
            await client.configure(voice="tone-330")
            pitches = [await client.pitch() for _ in range(3)]
            assert pitches == [pytest.approx(hz, abs=4) for hz in (220, 440, 220)]
            await wait_voices_removed(served)  # while the connection is open
            await client.say()
            assert await client.pitch() == pytest.approx(330, abs=4)

    run(test, store=store, step_s=0.02)


def test_a_shared_recordings_voice_stays_until_the_last_connection_ends(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as stays:
            async with open_stream(served) as leaves:
                for client in (stays, leaves):
                    await client.configure(**REFERENCE)
                    await client.say()
                    assert await client.pitch() == pytest.approx(220, abs=4)
            await until(lambda: len(served.sockets) == 1)
            await stays.say()
            assert await stays.pitch() == pytest.approx(220, abs=4)
        await wait_voices_removed(served)

    run(test, store=store)


def test_an_utterance_cancelled_before_its_voice_is_made_ends_at_once(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with RecordingHost().serving() as host, open_stream(served) as client:
            await client.configure(ref_audio=host.url)
            await client.say("Never said.")
            await until(lambda: host.requests == 1)
            await client.send("input.cancel")
            for _ in range(2):
                assert (await client.until("session.done"))["cancelled"]
            assert not client.audio and not served.backend.steps
            host.released.set()
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            assert host.requests == 1  # the fetch under way serves the next utterance
        await wait_voices_removed(served)

    run(test, store=store, reference_hosts=LOCAL)


def test_a_client_that_disconnects_before_its_voice_is_made_leaves_none(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        before = len(asyncio.all_tasks())
        async with RecordingHost().serving() as host:
            async with open_stream(served) as client:
                await client.configure(ref_audio=host.url)
                await client.say()
                await until(lambda: host.requests == 1)
                client.socket.transport.abort()
                await until(lambda: len(served.sockets) == 0)
            await host.disconnected.wait()
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert len(served.backend.voices) == BUNDLED_VOICES

    run(test, store=store, reference_hosts=LOCAL)


def test_a_failed_fetch_is_repeated_for_the_next_utterance(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with RecordingHost(fails_once=True).serving() as host, open_stream(served) as client:
            host.released.set()
            await client.configure(ref_audio=host.url)
            await until(lambda: host.requests == 1)
            await client.say()
            await client.until("session.done")
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
        await wait_voices_removed(served)

    run(test, store=store, reference_hosts=LOCAL)


def test_a_client_that_disconnects_while_speaking_leaves_no_voice(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say("word " * 1_000)
            await client.until("audio.start")
            client.socket.transport.abort()
            await until(lambda: served.backend.open_slots == 0)
        await wait_voices_removed(served)

    run(test, store=store, step_s=0.005)


def test_the_voice_of_a_failed_utterance_is_removed(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say()
            assert (await client.until("error"))["utterance_index"] == 0
            served.backend.broken_after = None
            await client.say()
            await client.until("session.done")
            assert await client.pitch() == pytest.approx(220, abs=4)
        await wait_voices_removed(served)

    run(test, store=store, broken_after=1)


def test_a_draining_server_removes_the_voice(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            await served.sockets.finish(1.0)
            with pytest.raises(ConnectionClosed):
                await client.until("nothing")
        await wait_voices_removed(served)

    run(test, store=store)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/a.wav",
        "http://[::ffff:127.0.0.1]/a.wav",
        "http://2130706433/a.wav",
        "file:///etc/passwd",
        "/etc/passwd",
        "",
        "data:audio/wav;base64,???",
        as_data_url(b"no sound"),
        as_data_url(recording(0.2)),
        as_data_url(recording(61)),
    ],
)
def test_an_unusable_recording_gets_an_error_and_another_one_works(
    url: str, run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(ref_audio=url)
            for index in range(2):
                await client.say()
                error = await client.until("error")
                assert (error["utterance_index"], served.backend.steps) == (index, 0)
                assert (await client.until("session.done"))["total_sentences"] == 0
            await client.configure(**REFERENCE)
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
        await wait_voices_removed(served)

    run(test, store=store)


def test_a_model_that_does_not_clone_refuses_the_configuration(run: Any) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(ref_audio="http://127.0.0.1/never-fetched")
            assert "CosyVoice 2 or 3" in (await client.until("error"))["message"]
            await client.configure(voice="tone-330")
            await client.say()
            assert await client.pitch() == pytest.approx(330, abs=4)

    run(test)


def access_with_key(tmp_path: Path, *scopes: Scope, **limits: int) -> tuple[AccessControl, dict[str, str]]:
    file = KeysFile(tmp_path / "keys.json")
    return AccessControl(file), {"Authorization": f"Bearer {file.add('test', scopes, KeyLimits(**limits))}"}


def test_a_recording_needs_the_scope(run: Any, store: VoiceStore, tmp_path: Path) -> None:
    access, headers = access_with_key(tmp_path, Scope.SPEAK)

    async def test(served: Any) -> None:
        async with open_stream(served, headers) as client:
            await client.configure(**REFERENCE)
            assert (await client.until("error"))["code"] == "insufficient_permissions"
            await client.say()
            assert (await client.until("error"))["code"] == "insufficient_permissions"
            assert len(served.backend.voices) == BUNDLED_VOICES

    run(test, store=store, access=access)


def test_making_a_voice_is_charged_as_a_request(run: Any, store: VoiceStore, tmp_path: Path) -> None:
    access, headers = access_with_key(tmp_path, Scope.SPEAK, Scope.ENROLL, requests_per_minute=2)

    async def test(served: Any) -> None:
        async with open_stream(served, headers) as client:
            await client.configure(**REFERENCE)
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            for other in (3.4, 3.6):
                await client.configure(ref_audio=as_data_url(recording(other)))
                error = await client.until("error")
                assert (error["code"], error["retry_after_s"] > 0) == ("rate_limit_exceeded", True)
            assert len(served.backend.voices) == BUNDLED_VOICES

    run(test, store=store, access=access)


def test_a_recording_may_have_the_maximal_length_of_a_voice(
    run: Any, store: VoiceStore, encoded_lengths: list[int]
) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(ref_audio=as_data_url(recording(30, 48_000)))  # 3.84 MB of text
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            await client.configure(ref_audio="data:," + "x" * (4 << 20))
            with pytest.raises(ConnectionClosed) as closed:
                await client.until("nothing")
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        await wait_voices_removed(served)

    run(test, store=store)
    assert len(encoded_lengths) == 1


def test_a_configuration_while_the_server_drains_does_not_stop_the_utterance(
    run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        async with open_stream(served) as client:
            await client.configure(**REFERENCE)
            await client.say("One two three four five six.")
            await client.until("audio.start")
            ending = asyncio.create_task(_both(served.api.finish(20.0), served.sockets.finish(20.0)))
            await asyncio.sleep(0)
            await client.configure(voice="tone-440")
            assert (await client.until("error"))["code"] == "overloaded_shutting_down"
            assert await client.pitch() == pytest.approx(220, abs=4)
            await ending

    run(test, store=store, step_s=0.02)


async def _both(*work: Any) -> None:
    await asyncio.gather(*work)
