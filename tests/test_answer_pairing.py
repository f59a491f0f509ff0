"""Two callers, and a fault that shifts answers: none is given to the caller who did not ask for it.

The table of what ties an answer to its question is in gateway/README.md. Here are those of processes,
replicas, links and pooled connections; espeak-ng, Redis and DashScope's links are tested in the files beside
them.
"""

import asyncio
import functools
import io
import json
import os
import pickle
import socket
import wave
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection as ServedSocket
from websockets.asyncio.server import serve

from shared.audio.tones import pitch_of, tone
from shared.calls.thread_phone import ThreadPhone
from shared.cluster.local_replicas import LocalReplicas
from shared.engine.standin_backend import StandInBackend
from shared.event_loop import until
from vivavoce.adapters.audiosocket.wire import AudioSocketOpening
from vivavoce.adapters.client import PoolPolicy, ServerUnavailable, SpeechClient
from vivavoce.adapters.media.phone_media import PhoneCallOptions
from vivavoce.adapters.media.servers import remote_media
from vivavoce.adapters.media.servers.link import MessageLink
from vivavoce.adapters.media.servers.media_servers import MediaServers
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.gateway.cluster.replicas.messages import ReplicaEvent, StreamChunk
from vivavoce.models.cosyvoice.flow.hop_schedule import SpeechIdChunk
from vivavoce.tts_engine.backends.divided_stages import RenderReplicaDescription
from vivavoce.tts_engine.backends.process import ProcessBackend
from vivavoce.tts_engine.cosyvoice.rendering.remote_render_stage import RemoteRenderStage
from vivavoce.tts_engine.cosyvoice.rendering.render_messages import ChunkRequest, RenderedChunk, RenderReply
from vivavoce.tts_engine.cosyvoice.rendering.render_stage import RenderInput
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import SynthesisFailed, VivavoceError
from vivavoce.tts_engine.voice_kit.fault_isolation import FaultIsolation
from vivavoce.tts_engine.voices.recording import read_recording

PITCHES_HZ = (440, 660)
TEXT = "One two three four, five six. Seven eight nine ten."
WORDS = TEXT.replace(",", "").replace(".", "").split()


async def speak(engine: Engine, pitch_hz: int, words: list[str] | None = None) -> bytes:
    """The speech of one caller, with its words; what came before an error if it ends with one."""
    heard = b""
    async with engine.stream(voice=f"tone-{pitch_hz}") as stream:
        stream.push_text(TEXT)
        stream.end_input()
        try:
            async for chunk in stream:
                heard += chunk.pcm
                if words is not None:
                    words += [word.text for word in chunk.words]
        except SynthesisFailed:
            return heard
    return heard


def pitches_in(pcm: bytes) -> set[int]:
    """The callers whose tones are in the speech, by 50 ms."""
    windows = (pcm[start : start + 2_400] for start in range(0, len(pcm) - 2_400, 2_400))
    pitches = [pitch_of(window) for window in windows if window.count(0) < 600]
    return {min(PITCHES_HZ, key=lambda pitch_hz: abs(pitch_hz - found)) for found in pitches}


async def speech_alone() -> dict[int, bytes]:
    async with await Engine.open(backend=StandInBackend(PITCHES_HZ)) as engine:
        return {pitch_hz: await speak(engine, pitch_hz) for pitch_hz in PITCHES_HZ}


class FaultyPipe:
    """The replies of a voice process; the one of ``faulty_at`` is replaced."""

    def __init__(self, pipe: Any, fault: str) -> None:
        self._pipe, self._fault, self._replies = pipe, fault, []
        self.faults = 0

    def recv(self) -> Any:
        if self._fault == "late" and len(self._replies) == 8 and not self.faults:
            self.faults += 1
            return self._replies[-1]  # again; the reply to this step stays in the pipe
        reply = self._pipe.recv()
        if self._fault == "lost" and len(self._replies) == 8 and not self.faults:
            self.faults += 1
            reply = self._pipe.recv() if self._pipe.poll(0.05) else replace(reply, number=reply.number - 1)
        self._replies.append(reply)
        return reply

    def close(self) -> None:
        self._pipe.close()


@pytest.mark.parametrize("fault", ["late", "lost"])
def test_a_reply_of_the_voice_process_to_another_step_is_given_to_no_stream(fault: str) -> None:
    async def scenario() -> None:
        whole = await speech_alone()
        backend = ProcessBackend.start_backend(functools.partial(StandInBackend, PITCHES_HZ))
        async with await Engine.open(backend=backend) as engine:
            faulty = FaultyPipe(backend._child._replies[0], fault)
            backend._child._replies[0] = faulty  # type: ignore[call-overload]
            first = backend.pid
            heard = await asyncio.gather(*(speak(engine, pitch_hz) for pitch_hz in PITCHES_HZ))
            assert faulty.faults == 1
            for pitch_hz, pcm in zip(PITCHES_HZ, heard, strict=True):
                assert pcm == whole[pitch_hz][: len(pcm)]
            await until(lambda: engine.refusal() is None and backend.pid != first)
            for pitch_hz in PITCHES_HZ:
                assert await speak(engine, pitch_hz) == whole[pitch_hz]

    asyncio.run(scenario())


Fault = Callable[[list[ReplicaEvent]], list[ReplicaEvent]]


def lose_third(chunks: list[ReplicaEvent]) -> list[ReplicaEvent]:
    return [] if len(chunks) == 3 else chunks[-1:]


def repeat_third(chunks: list[ReplicaEvent]) -> list[ReplicaEvent]:
    return chunks[-1:] * 2 if len(chunks) == 3 else chunks[-1:]


def send_third_late(chunks: list[ReplicaEvent]) -> list[ReplicaEvent]:
    if len(chunks) == 3:
        return []
    return [chunks[-1], chunks[2]] if len(chunks) == 4 else chunks[-1:]


@pytest.mark.parametrize("fault", [lose_third, repeat_third, send_third_late])
def test_chunks_of_a_replica_that_are_lost_repeated_or_late_are_not_heard(fault: Fault) -> None:
    async def scenario() -> None:
        whole = await speech_alone()
        words: dict[int, list[str]] = {pitch_hz: [] for pitch_hz in PITCHES_HZ}
        directory = LocalReplicas()
        for _ in range(2):
            replica = await directory.add(backend=StandInBackend(PITCHES_HZ))
        send = type(replica).events
        faulty: list[list[ReplicaEvent]] = []  # the chunks of the first connection that sends three

        async def events(sender: Any) -> AsyncGenerator[tuple[ReplicaEvent, ...], None]:
            chunks: list[ReplicaEvent] = []
            async for batch in send(sender):
                for event in batch:
                    if not isinstance(event, StreamChunk):
                        yield (event,)
                        continue
                    chunks.append(event)
                    if len(chunks) == 3 and not faulty:
                        faulty.append(chunks)
                    is_faulty = bool(faulty) and faulty[0] is chunks
                    for sent in fault(chunks) if is_faulty else [event]:
                        yield (sent,)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(type(replica), "events", events)
            engine = await ClusterEngine.connect(directory, EngineConfig())
            heard = await asyncio.gather(*(speak(engine, each, words[each]) for each in PITCHES_HZ))
            await engine.aclose()
        assert faulty
        for pitch_hz, pcm in zip(PITCHES_HZ, heard, strict=True):
            assert pitches_in(pcm) == {pitch_hz}
            assert len(pcm) <= len(whole[pitch_hz])
            assert words[pitch_hz] == WORDS

    asyncio.run(scenario())


class SwappingTransport:
    """A render replica that answers the first two requests with each other's samples."""

    def __init__(self) -> None:
        self.requests: list[tuple[ChunkRequest, Future[RenderReply]]] = []

    def render(self, replica: str, request: ChunkRequest) -> "Future[RenderReply]":
        answer: Future[RenderReply] = Future()
        self.requests.append((request, answer))
        if len(self.requests) == 2:
            (first, first_answer), (second, second_answer) = self.requests
            first_answer.set_result(rendered(second))
            second_answer.set_result(rendered(first))
        elif len(self.requests) > 2:
            answer.set_result(rendered(request))
        return answer

    def keep_voice(self, replica: str, flow_prompt: object) -> "Future[None]":
        raise AssertionError("no voice is missing")

    def release(self, replica: str, decoder: str, sentence: int) -> None:
        pass


def rendered(request: ChunkRequest) -> RenderedChunk:
    return RenderedChunk(np.full(4, request.sentence, np.float32), None, request.place)


def test_samples_of_another_sentence_are_rendered_again_at_another_replica() -> None:
    stage = RemoteRenderStage(SwappingTransport(), "digest", "decode-1")
    stage.update([RenderReplicaDescription(f"render-{each}", "digest", 0, 8, False) for each in (1, 2, 3)])
    prompt: Any = SimpleNamespace(key="voice", ids=())

    def render(number: int) -> Sequence[float]:
        sentence = stage.begin_sentence(prompt, 1.0, np.random.default_rng(0))
        wanted = RenderInput(sentence, SpeechIdChunk(0, 4, 4, final=True), [1, 2, 3, 4])
        samples = stage.render({0: wanted}, FaultIsolation({0: number}, free_memory=lambda row: None))
        assert set(samples[0].tolist()) == {sentence.number}
        return samples[0].tolist()

    with ThreadPoolExecutor(2) as threads:
        assert len({tuple(samples) for samples in threads.map(render, (1, 2))}) == 2


@pytest.mark.parametrize("fault", ["lost", "repeated"])
def test_a_link_ends_where_a_message_is_missing_or_comes_twice(fault: str) -> None:
    async def scenario() -> None:
        received: list[Any] = []
        losses: list[bool] = []
        own, relay_in = socket.socketpair()
        relay_out, other = socket.socketpair()
        sender = MessageLink(own, lambda *_: None, lambda: None)
        receiver = MessageLink(
            other, lambda message, _: received.append(message), lambda: losses.append(True)
        )
        for number in range(3):
            sender.send(number)
        sent = [relay_in.recv(8 + len(pickle.dumps((number, False), 5))) for number in range(3)]
        relay_out.sendall(b"".join((sent[0], sent[2]) if fault == "lost" else (sent[0], sent[0], sent[1])))
        await until(lambda: losses)
        assert received == [0]
        for each in (sender, receiver, relay_in, relay_out):
            each.close()

    asyncio.run(scenario())


def test_a_call_is_never_served_on_the_connection_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    class Owner:
        def __init__(self) -> None:
            self.reasons: list[str] = []

        def on_closed(self, reason: str) -> None:
            self.reasons.append(reason)

        def on_problem(self, text: str, *, is_internal: bool) -> None:
            raise AssertionError(text)

        def fail(self, error: Exception) -> None:
            raise error

    def tcp_pair() -> tuple[socket.socket, socket.socket]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            phone = socket.create_connection(listener.getsockname())
            return listener.accept()[0], phone

    async def scenario() -> None:
        servers = MediaServers(1, lambda: None)
        await servers.start()
        options = PhoneCallOptions(sample_rate=8_000, stalled_s=5.0)
        opening = AudioSocketOpening(UUID(int=7), b"\x01\x00\x10" + UUID(int=7).bytes)
        (served, served_end), (mixed_up, mixed_up_end) = tcp_pair(), tcp_pair()
        phone, owner = ThreadPhone(served_end), Owner()
        servers.open_phone_call(opening, served, Owner(), options)
        await until(lambda: phone.arrivals)
        send_fds = socket.send_fds
        with monkeypatch.context() as patch:
            # The descriptor of the first call comes with the message of the second.
            patch.setattr(socket, "send_fds", lambda sock, data, _: send_fds(sock, data, [served.fileno()]))
            servers.open_phone_call(opening, mixed_up, owner, options)
        await until(lambda: owner.reasons)
        assert owner.reasons == ["the media server was given the connection of another call"]
        packets = len(phone.arrivals)
        await until(lambda: len(phone.arrivals) > packets + 10)
        await servers.aclose()
        phone.close()
        mixed_up_end.close()

    assert remote_media.socket_identity(0) == (os.fstat(0).st_dev, os.fstat(0).st_ino)
    asyncio.run(scenario())


LATE = json.dumps({"type": "audio.words", "utterance_index": 0, "words": []})


@pytest.mark.parametrize("late", [tone(440, 24_000, 0, 480), LATE], ids=["audio", "words"])
def test_speech_of_the_utterance_before_is_not_given_to_the_next_one_of_a_pooled_connection(
    late: bytes | str,
) -> None:
    async def handle(served: ServedSocket) -> None:
        index = 0
        async for message in served:
            if json.loads(message)["type"] != "input.done":
                continue
            if index == 1:
                await served.send(late)
            await served.send(json.dumps({"type": "audio.start", "utterance_index": index}))
            await served.send(tone(660 if index else 440, 24_000, 0, 480))
            await served.send(json.dumps({"type": "session.done", "utterance_index": index}))
            index += 1

    async def scenario() -> None:
        async with serve(handle, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            pool = PoolPolicy(min_connections=1, max_connections=1)
            async with SpeechClient(f"ws://127.0.0.1:{port}", pool=pool) as client:
                for faulty in (False, True, False):
                    pieces: list[bytes] = []
                    async with client.utterance() as utterance:
                        await utterance.push_text("Hello.")
                        await utterance.end_input()
                        try:
                            pieces += [piece.audio async for piece in utterance]
                        except ServerUnavailable:
                            assert faulty
                    assert len(pieces) == (0 if faulty else 1)

    asyncio.run(scenario())


def test_recordings_that_are_decoded_at_once_are_given_to_those_who_sent_them() -> None:
    def sound_file(pitch_hz: int) -> bytes:
        file = io.BytesIO()
        with wave.open(file, "wb") as wav:
            wav.setnchannels(1)
            wav.setsampwidth(2)
            wav.setframerate(16_000)
            wav.writeframes(tone(pitch_hz, 16_000, 0, 56_000))
        return file.getvalue()

    def pitch_read(pitch_hz: int) -> float:
        read = read_recording(sound_file(pitch_hz))
        return pitch_of(np.rint(8_000 * read.samples).astype("<i2").tobytes(), read.sample_rate)

    def refused(_: int) -> str:
        try:
            read_recording(b"RIFF" + sound_file(440)[4:60])
        except VivavoceError as error:
            return str(error)
        raise AssertionError("a damaged file was read")

    with ThreadPoolExecutor(4) as threads:
        faulty = [threads.submit(refused, each) for each in range(2)]
        pitches = list(threads.map(pitch_read, PITCHES_HZ * 2))
        assert pitches == pytest.approx([*PITCHES_HZ * 2], abs=1)
        assert all(each.result() for each in faulty)
