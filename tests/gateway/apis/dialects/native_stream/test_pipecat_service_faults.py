"""The Pipecat service of a vivavoce server: faults of the server, the end of a pipeline, shared clients."""

import asyncio
import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat imports its own deprecated classes
    pytest.importorskip(
        "pipecat.services.tts_service", reason="needs the extra: make test EXTRAS=dev,stt,pipecat"
    )

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.utils.errors import ErrorCategory

from shared.audio.tones import pitch_of
from shared.event_loop import until
from shared.gateways.pipecat_pipeline import LONG_TEXT, remote_service, reply, run_pipeline, tokens
from vivavoce.adapters.client import PoolPolicy, SpeechClient
from vivavoce.adapters.pipecat import (
    VivavoceWebsocketTTSService,
    audio_context,
    remote_tts_service,
)
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.tts_engine.errors import BadRequest

Run = Callable[..., None]


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    logger.disable("pipecat")
    logger.disable("vivavoce")
    yield
    logger.enable("pipecat")
    logger.enable("vivavoce")


class Relay:
    """A TCP relay to the server that can be closed and reopened, cut its connections, and stop forwarding."""

    def __init__(self, served: Any) -> None:
        self._target = served.address
        self._writers: set[asyncio.StreamWriter] = set()
        self._may_forward = asyncio.Event()
        self._may_forward.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.port = 0

    async def __aenter__(self) -> "Relay":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.resume()
        await self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and abort the open connections."""
        self._server.close()
        self.cut_connections()

    def cut_connections(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def pause(self) -> None:
        self._may_forward.clear()

    def resume(self) -> None:
        self._may_forward.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, server_writer}
        self._tasks |= {
            asyncio.create_task(self._forward(reader, server_writer)),
            asyncio.create_task(self._forward(server_reader, writer)),
        }

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._may_forward.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


# Faults of the server and of its connections


def test_an_unreachable_server_fails_each_reply_until_it_is_back(run: Run) -> None:
    async def test(served: Any) -> None:
        async with Relay(served) as relay:
            await relay.close()
            service = remote_service(served, url=f"ws://127.0.0.1:{relay.port}")
            async with run_pipeline(service) as pipeline:
                for number in range(1, 5):
                    await pipeline.turn("Is anybody there?")
                    assert [error.category for error in pipeline.errors] == [
                        ErrorCategory.CONNECTIVITY
                    ] * number
                assert "cannot be reached" in pipeline.errors[0].error
                assert pipeline.words == [] and service.is_usable
                await relay.open()
                await pipeline.turn("At last.")
                assert pipeline.words == ["At", "last"] and len(pipeline.errors) == 4

    run(test)


def test_a_connection_lost_within_a_reply_is_one_error_and_drops_the_rest(run: Run) -> None:
    async def test(served: Any) -> None:
        async with Relay(served) as relay:
            async with run_pipeline(
                remote_service(served, url=f"ws://127.0.0.1:{relay.port}", lead_s=0.5)
            ) as pipeline:
                await pipeline.send(*reply("One two three four. " * 20))
                await pipeline.until(TTSTextFrame, 2)
                relay.cut_connections()
                await pipeline.until(TTSStoppedFrame)
                assert [error.category for error in pipeline.errors] == [ErrorCategory.CONNECTIVITY]
                assert len(pipeline.words) < 4 * 20
                count = len(pipeline.words)
                await pipeline.turn("Fine again.")
                assert pipeline.words[count:] == ["Fine", "again"] and len(pipeline.errors) == 1
            await until(lambda: served.engine.active_streams == 0)

    run(test, step_s=0.1)


@pytest.mark.parametrize("when", ["between turns", "before the first token", "before the first audio"])
def test_a_connection_lost_before_any_audio_is_replaced_without_an_error(run: Run, when: str) -> None:
    async def test(served: Any) -> None:
        async with (
            Relay(served) as relay,
            run_pipeline(remote_service(served, url=f"ws://127.0.0.1:{relay.port}")) as pipeline,
        ):
            await pipeline.turn("One.")
            text = "Two three four."
            match when:
                case "between turns":
                    relay.cut_connections()
                    await pipeline.send(*reply(text))
                case "before the first token":
                    await pipeline.send(LLMFullResponseStartFrame())
                    await pipeline.until(LLMFullResponseStartFrame, 2)
                    await asyncio.sleep(0.1)
                    relay.cut_connections()
                    await asyncio.sleep(0.1)
                    await pipeline.send(*tokens(text), LLMFullResponseEndFrame())
                case "before the first audio":
                    await pipeline.send(LLMFullResponseStartFrame(), *tokens("Two thr"))
                    await pipeline.until(TTSStartedFrame, 2)
                    await asyncio.sleep(0.1)
                    relay.cut_connections()
                    await pipeline.send(*tokens("ee four."), LLMFullResponseEndFrame())
            await pipeline.until(TTSStoppedFrame, 2)
            assert pipeline.words == ["One", "Two", "three", "four"] and pipeline.errors == []

    run(test)


def test_a_silent_server_fails_the_reply_after_the_timeout(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(served: Any) -> None:
        async with (
            Relay(served) as relay,
            run_pipeline(remote_service(served, url=f"ws://127.0.0.1:{relay.port}")) as pipeline,
        ):
            await pipeline.turn("One.")
            monkeypatch.setattr(audio_context, "STALL_TIMEOUT_S", 0.3)
            relay.pause()
            await pipeline.turn("Two.")
            assert "gave nothing for 0.3 s" in pipeline.errors[0].error
            relay.resume()
            monkeypatch.setattr(audio_context, "STALL_TIMEOUT_S", 60.0)
            await pipeline.turn("Three.")
            assert pipeline.words == ["One", "Three"]

    run(test)


def test_a_pipeline_can_be_cancelled_while_the_server_is_silent(run: Run) -> None:
    async def test(served: Any) -> None:
        async with Relay(served) as relay:
            async with run_pipeline(remote_service(served, url=f"ws://127.0.0.1:{relay.port}")) as pipeline:
                await pipeline.send(LLMFullResponseStartFrame(), *tokens("One two. Three"))
                await pipeline.until(TTSAudioRawFrame)
                relay.pause()
                await pipeline.send(CancelFrame())
                await pipeline.until(CancelFrame)
            relay.resume()

    run(test)


def test_an_overloaded_server_fails_the_reply_and_keeps_the_service_usable(run: Run) -> None:
    async def test(served: Any) -> None:
        service = remote_service(served)
        async with run_pipeline(service) as pipeline:
            only_stream = served.engine.stream()
            for _ in range(4):
                await pipeline.turn("Is anybody there?")
            assert [error.category for error in pipeline.errors] == [ErrorCategory.RATE_LIMIT] * 4
            assert pipeline.words == [] and service.is_usable
            only_stream.cancel()
            await pipeline.turn("At last.")
            assert pipeline.words == ["At", "last"]

    run(test, max_streams=1)


def test_a_failing_voice_is_one_error(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            await pipeline.turn("One two three four five six seven.")
            assert [error.category for error in pipeline.errors] == [ErrorCategory.SERVER]
            served.backend.broken_after = None
            count = len(pipeline.words)
            await pipeline.turn("Fine again.")
            assert pipeline.words[count:] == ["Fine", "again"]

    run(test, broken_after=2)


def test_a_wrong_key_is_reported_at_the_first_reply(run: Run, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("bot", (Scope.SPEAK,), KeyLimits())

    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served, api_key=key)) as pipeline:
            await pipeline.turn("Let me in.")
            assert pipeline.words == ["Let", "me", "in"]
        service = remote_service(served, api_key="wrong")
        async with run_pipeline(service) as pipeline:
            await pipeline.send(*reply("Let me in."))
            await until(lambda: bool(pipeline.errors))
            assert "API key" in pipeline.errors[0].error and not service.is_usable

    run(test, access=AccessControl(keys))


def test_a_reply_with_pauses_longer_than_the_server_s_idle_timeout_is_spoken_completely(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_tts_service, "KEEP_ALIVE_S", 0.1)

    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            await pipeline.send(LLMFullResponseStartFrame())
            for part in ("One two. ", "Three, four."):
                await asyncio.sleep(1.2)  # longer than idle_s
                await pipeline.send(LLMTextFrame(part))
            await pipeline.send(LLMFullResponseEndFrame())
            await pipeline.until(TTSStoppedFrame)
            assert pipeline.words == ["One", "two", "Three", "four"] and pipeline.errors == []

    run(test, idle_s=1.0)


# The end of a pipeline, and shared clients


def test_an_end_frame_waits_for_the_end_of_the_reply_and_closes_every_connection(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            await pipeline.send(*reply("One two three four. Five."))
        assert pipeline.words == ["One", "two", "three", "four", "Five"]
        await until(lambda: len(served.sockets) == 0)

    run(test)


@pytest.mark.parametrize("stage", ["before the text", "in the text", "in the audio", "after an interruption"])
def test_a_pipeline_can_be_cancelled_at_each_stage(run: Run, stage: str) -> None:
    async def test(served: Any) -> None:
        service = remote_service(served, lead_s=0.5)
        async with run_pipeline(service) as pipeline:
            match stage:
                case "before the text":
                    await pipeline.send(LLMFullResponseStartFrame())
                    await pipeline.until(LLMFullResponseStartFrame)
                case "in the text":
                    await pipeline.send(LLMFullResponseStartFrame(), *tokens("One two thr"))
                    await pipeline.until(TTSStartedFrame)
                case _:
                    await pipeline.send(*reply(LONG_TEXT))
                    await pipeline.until(TTSAudioRawFrame, 2)
            if stage == "after an interruption":
                await pipeline.send(InterruptionFrame())
            await pipeline.send(CancelFrame())
            await pipeline.until(CancelFrame)
            await until(lambda: len(served.sockets) == 0 and served.engine.active_streams == 0)
        await service.cleanup()  # as at the end of the pipeline
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("vivavoce")] == []

    run(test)


def test_two_services_share_a_client_that_they_do_not_close(run: Run) -> None:
    async def test(served: Any) -> None:
        async with SpeechClient(
            str(served.client.base_url), pool=PoolPolicy(max_connections=4, min_connections=2)
        ) as client:
            settings = VivavoceWebsocketTTSService.Settings
            low = remote_service(served, url=None, client=client, settings=settings(voice="tone-440"))
            high = remote_service(served, url=None, client=client, settings=settings(voice="tone-330"))
            async with run_pipeline(low) as first, run_pipeline(high) as second:
                await asyncio.gather(first.turn("One two three."), second.turn("One two three."))
                assert pitch_of(first.audio) == pytest.approx(440, abs=5)
                assert pitch_of(second.audio) == pytest.approx(330, abs=5)
            async with client.utterance() as utterance:
                await utterance.push_text("Still here.")
                await utterance.end_input()
                assert [chunk async for chunk in utterance]
            assert len(served.sockets) <= 4

    run(test)


def test_replies_beyond_the_number_of_connections_are_all_spoken(run: Run) -> None:
    async def test(served: Any) -> None:
        client = SpeechClient(
            str(served.client.base_url), pool=PoolPolicy(max_connections=2, min_connections=0)
        )
        async with client, run_pipeline(remote_service(served, url=None, client=client)) as pipeline:
            await pipeline.send(*(TTSSpeakFrame(f"Number {number}.") for number in range(6)))
            await pipeline.until(TTSStoppedFrame, 6)
            assert pipeline.words == " ".join(f"Number {number}" for number in range(6)).split()
            assert pipeline.errors == [] and len(served.sockets) <= 2

    run(test)


def test_forty_turns_leak_no_task_and_no_connection(run: Run) -> None:
    async def test(served: Any) -> None:
        async with run_pipeline(remote_service(served)) as pipeline:
            await pipeline.turn("Warm up.")
            before = len(asyncio.all_tasks())
            for number in range(40):
                count = len(pipeline.of(TTSAudioRawFrame))
                if number % 3:
                    await pipeline.turn(f"Turn {number}, here we go.")
                    continue
                await pipeline.send(*reply(f"Turn {number}, here we go."))
                await pipeline.until(TTSAudioRawFrame, count + 1)
                await pipeline.send(InterruptionFrame())
                await pipeline.until(InterruptionFrame, number // 3 + 1)
            await pipeline.turn("The end.")
            assert pipeline.errors == []
            # A slow machine opens a few more while interrupted streams close, but not one for each turn.
            await until(lambda: len(served.sockets) <= 8 and served.engine.active_streams == 0)
            await until(lambda: len(asyncio.all_tasks()) <= before + 12 * len(served.sockets))

    run(test)


@pytest.mark.parametrize(
    "arguments", [{}, {"url": "ws://a", "client": SpeechClient("ws://a")}, {"url": "ftp://a"}]
)
def test_a_service_needs_exactly_one_server(arguments: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        VivavoceWebsocketTTSService(**arguments)
