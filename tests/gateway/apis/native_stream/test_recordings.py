"""Recordings that text streamed in is spoken like: made into a voice in time, kept, and dropped."""

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

OF_THE_HOUSE = 2  # voices that are always there


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many samples each recording had that a voice was made of."""
    lengths: list[int] = []
    encode = BundleVoices.encode_prompt

    def counted(self: BundleVoices, samples: Any, *about: Any) -> Any:
        lengths.append(len(samples))
        return encode(self, samples, *about)

    monkeypatch.setattr(BundleVoices, "encode_prompt", counted)
    return lengths


SPOKEN_LIKE = {"ref_audio": as_data_url(recording()), "ref_text": "What is said."}


class Talk:
    """A client's side of one socket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.audio = b""

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def configure(self, **fields: Any) -> None:
        await self.send("session.config", **{"response_format": "pcm", **fields})

    async def until(self, kind: str) -> dict[str, Any]:
        """The first event of that type; audio before it is kept."""
        while True:
            data = await self.socket.recv()
            if isinstance(data, bytes):
                self.audio += data
            elif (event := json.loads(data))["type"] == kind:
                return dict(event)

    async def say(self, text: str = "One two three.") -> None:
        await self.send("input.text", text=text)
        await self.send("input.done")

    async def pitch(self) -> float:
        """Of the utterance that is heard next, Hz."""
        self.audio = b""
        assert (await self.until("session.done"))["total_sentences"] == 1
        return pitch_of(self.audio)


@asynccontextmanager
async def talk(served: Any, headers: dict[str, str] | None = None) -> AsyncIterator[Talk]:
    host, port = served.address
    url = f"ws://{host}:{port}{PATH}"
    async with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
        yield Talk(socket)


async def all_dropped(served: Any) -> None:
    await until(lambda: len(served.backend.voices) == OF_THE_HOUSE)


class Host:
    """A server that has the recording, and gives it out when told to; before that, once, an error."""

    def __init__(self, *, is_out_of_order: bool = False) -> None:
        self.url = ""
        self.asked = 0
        self.told = asyncio.Event()
        self.left = asyncio.Event()  # by somebody who was not answered
        self._is_out_of_order = is_out_of_order

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Host"]:
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/a.wav"
            try:
                yield self
            finally:
                self.told.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked += 1
        await reader.readuntil(b"\r\n\r\n")
        gone, told = asyncio.create_task(reader.read(1)), asyncio.create_task(self.told.wait())
        await asyncio.wait({gone, told}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            self.left.set()
        sound, status = recording(), "500" if self._is_out_of_order else "200"
        self._is_out_of_order = False
        writer.write(f"HTTP/1.1 {status} -\r\ncontent-length: {len(sound)}\r\n\r\n".encode() + sound)
        writer.close()
        for task in (gone, told):
            task.cancel()
        await asyncio.gather(gone, told, return_exceptions=True)


LOCAL = ("127.0.0.1",)


def test_a_recording_is_heard_once_spoken_like_and_dropped_with_the_socket(
    run: Any, store: VoiceStore, heard: list[int]
) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(**SPOKEN_LIKE)
            for _ in range(2):
                await client.say()
                assert await client.pitch() == pytest.approx(220, abs=4)
            await client.configure(speed=2, **SPOKEN_LIKE)  # nothing about the voice has changed
            await client.say()
            await client.until("session.done")
            assert len(served.backend.voices) == OF_THE_HOUSE + 1
        await all_dropped(served)
        assert store.list() == ()
        assert len(heard) == 1

    run(test, store=store)


def test_the_voice_is_made_before_there_is_text(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(**SPOKEN_LIKE)
            await until(lambda: len(served.backend.voices) == OF_THE_HOUSE + 1)
            await client.configure(voice="tone-440")
            await all_dropped(served)

    run(test, store=store)


def test_utterances_keep_the_voice_that_they_began_with(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(**SPOKEN_LIKE)
            await client.say()
            await client.configure(voice="tone-440")
            await client.say()
            await client.configure(**SPOKEN_LIKE)
            await client.say()
            await client.configure(voice="tone-330")
            pitches = [await client.pitch() for _ in range(3)]
            assert pitches == [pytest.approx(hz, abs=4) for hz in (220, 440, 220)]
            await all_dropped(served)  # though the socket is up
            await client.say()
            assert await client.pitch() == pytest.approx(330, abs=4)

    run(test, store=store, step_s=0.02)


def test_who_shares_a_recording_does_not_lose_it_to_who_leaves_first(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as stays:
            async with talk(served) as leaves:
                for client in (stays, leaves):
                    await client.configure(**SPOKEN_LIKE)
                    await client.say()
                    assert await client.pitch() == pytest.approx(220, abs=4)
            await until(lambda: len(served.sockets) == 1)
            await stays.say()
            assert await stays.pitch() == pytest.approx(220, abs=4)
        await all_dropped(served)

    run(test, store=store)


def test_an_utterance_that_is_cancelled_before_there_is_its_voice_ends_at_once(
    run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        async with Host().serving() as host, talk(served) as client:
            await client.configure(ref_audio=host.url)
            await client.say("Never said.")
            await until(lambda: host.asked == 1)
            await client.send("input.cancel")
            for _ in range(2):
                assert (await client.until("session.done"))["cancelled"]
            assert not client.audio and not served.backend.steps
            host.told.set()
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            assert host.asked == 1  # the next one gets what was on its way
        await all_dropped(served)

    run(test, store=store, reference_hosts=LOCAL)


def test_a_client_that_vanishes_before_there_is_its_voice_leaves_nothing(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        before = len(asyncio.all_tasks())
        async with Host().serving() as host:
            async with talk(served) as client:
                await client.configure(ref_audio=host.url)
                await client.say()
                await until(lambda: host.asked == 1)
                client.socket.transport.abort()
                await until(lambda: len(served.sockets) == 0)
            await host.left.wait()
        await until(lambda: len(asyncio.all_tasks()) <= before)
        assert len(served.backend.voices) == OF_THE_HOUSE

    run(test, store=store, reference_hosts=LOCAL)


def test_a_recording_that_could_not_be_fetched_is_fetched_again_for_the_next_utterance(
    run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        async with Host(is_out_of_order=True).serving() as host, talk(served) as client:
            host.told.set()
            await client.configure(ref_audio=host.url)
            await until(lambda: host.asked == 1)
            await client.say()
            await client.until("session.done")
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
        await all_dropped(served)

    run(test, store=store, reference_hosts=LOCAL)


def test_a_client_that_vanishes_in_mid_speech_leaves_no_voice(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(**SPOKEN_LIKE)
            await client.say("word " * 1_000)
            await client.until("audio.start")
            client.socket.transport.abort()
            await until(lambda: served.backend.open_slots == 0)
        await all_dropped(served)

    run(test, store=store, step_s=0.005)


def test_a_voice_that_breaks_is_dropped_too(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(**SPOKEN_LIKE)
            await client.say()
            assert (await client.until("error"))["utterance_index"] == 0
            served.backend.broken_after = None
            await client.say()
            await client.until("session.done")
            assert await client.pitch() == pytest.approx(220, abs=4)
        await all_dropped(served)

    run(test, store=store, broken_after=1)


def test_a_server_that_ends_drops_it(run: Any, store: VoiceStore) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(**SPOKEN_LIKE)
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            await served.sockets.finish(1.0)
            with pytest.raises(ConnectionClosed):
                await client.until("nothing")
        await all_dropped(served)

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
def test_what_is_no_recording_is_told_and_another_one_is_spoken_like(
    url: str, run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(ref_audio=url)
            for index in range(2):
                await client.say()
                error = await client.until("error")
                assert (error["utterance_index"], served.backend.steps) == (index, 0)
                assert (await client.until("session.done"))["total_sentences"] == 0
            await client.configure(**SPOKEN_LIKE)
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
        await all_dropped(served)

    run(test, store=store)


def test_a_model_that_clones_nobody_says_so_at_once(run: Any) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(ref_audio="http://127.0.0.1/never-fetched")
            assert "CosyVoice 2 or 3" in (await client.until("error"))["message"]
            await client.configure(voice="tone-330")
            await client.say()
            assert await client.pitch() == pytest.approx(330, abs=4)

    run(test)


def keys(tmp_path: Path, *scopes: Scope, **limits: int) -> tuple[AccessControl, dict[str, str]]:
    file = KeysFile(tmp_path / "keys.json")
    return AccessControl(file), {"Authorization": f"Bearer {file.add('test', scopes, KeyLimits(**limits))}"}


def test_a_key_needs_the_scope_for_it(run: Any, store: VoiceStore, tmp_path: Path) -> None:
    access, headers = keys(tmp_path, Scope.SPEAK)

    async def test(served: Any) -> None:
        async with talk(served, headers) as client:
            await client.configure(**SPOKEN_LIKE)
            assert (await client.until("error"))["code"] == "insufficient_permissions"
            await client.say()
            assert (await client.until("error"))["code"] == "insufficient_permissions"
            assert len(served.backend.voices) == OF_THE_HOUSE

    run(test, store=store, access=access)


def test_making_a_voice_is_a_request_of_the_keys(run: Any, store: VoiceStore, tmp_path: Path) -> None:
    access, headers = keys(tmp_path, Scope.SPEAK, Scope.ENROLL, requests_per_minute=2)

    async def test(served: Any) -> None:
        async with talk(served, headers) as client:
            await client.configure(**SPOKEN_LIKE)
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            for other in (3.4, 3.6):
                await client.configure(ref_audio=as_data_url(recording(other)))
                error = await client.until("error")
                assert (error["code"], error["retry_after_s"] > 0) == ("rate_limit_exceeded", True)
            assert len(served.backend.voices) == OF_THE_HOUSE

    run(test, store=store, access=access)


def test_a_recording_may_be_as_long_as_a_voice_may_be(run: Any, store: VoiceStore, heard: list[int]) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(ref_audio=as_data_url(recording(30, 48_000)))  # 3.84 MB of text
            await client.say()
            assert await client.pitch() == pytest.approx(220, abs=4)
            await client.configure(ref_audio="data:," + "x" * (4 << 20))
            with pytest.raises(ConnectionClosed) as closed:
                await client.until("nothing")
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        await all_dropped(served)

    run(test, store=store)
    assert len(heard) == 1


def test_a_socket_that_is_configured_while_the_server_ends_says_what_it_began_to_say(
    run: Any, store: VoiceStore
) -> None:
    async def test(served: Any) -> None:
        async with talk(served) as client:
            await client.configure(**SPOKEN_LIKE)
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
