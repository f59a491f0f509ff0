"""The Pipecat service against a server of ours, in real pipelines on a voice of tones.

What a pipeline hears and remembers is held in ``tests/adapters/test_pipecat_tts.py``; here, that a server in
between changes nothing of it, and what becomes of a reply when the server does not answer.
"""

import asyncio
import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # Pipecat warns of old classes of its own
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
    MetricsFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    TTSUpdateSettingsFrame,
)
from pipecat.metrics.metrics import TTFAMetricsData, TTFBMetricsData, TTSUsageMetricsData
from pipecat.services.tts_service import TextAggregationMode
from pipecat.utils.errors import ErrorCategory

from shared.event_loop import until
from shared.pipecat_line import line, reply, tokens
from shared.tones import pitch_of
from vivavoce.adapters.client import PoolPolicy, SpeechClient
from vivavoce.adapters.pipecat import (
    VivavoceTTSService,
    VivavoceWebsocketTTSService,
    audio_context,
    remote_tts_service,
)
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.tts_engine.errors import BadRequest

Run = Callable[..., None]
STORY = "One two three four five six, " * 20


@pytest.fixture(autouse=True)
def quiet_log() -> Iterator[None]:
    logger.disable("pipecat")
    logger.disable("vivavoce")
    yield
    logger.enable("pipecat")
    logger.enable("vivavoce")


def remote(house: Any, **arguments: Any) -> VivavoceWebsocketTTSService:
    """The service as users make it, but for audio that waits for no listener."""
    return VivavoceWebsocketTTSService(**{"url": str(house.client.base_url), "lead_s": math.inf, **arguments})


class Relay:
    """A way to the server that can be cut, closed, and made to swallow everything."""

    def __init__(self, house: Any) -> None:
        self._target = house.address
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self.port = 0

    async def __aenter__(self) -> "Relay":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.thaw()
        await self.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Nobody listens any more, and who was connected is cut off."""
        self._server.close()
        self.cut()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def freeze(self) -> None:
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        self._writers |= {writer, back}
        flows = {
            asyncio.create_task(self._carry(reader, back)),
            asyncio.create_task(self._carry(there, writer)),
        }
        self._tasks |= flows

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65_536):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


# As in this process


@pytest.mark.parametrize("sample_rate", [8_000, 16_000, 24_000])
def test_a_server_in_between_changes_no_sample_and_no_word(run: Run, sample_rate: int) -> None:
    text = "Well, it's 4,000 words; one two. That is all!"

    async def test(house: Any) -> None:
        heard = []
        for service in (VivavoceTTSService(engine=house.engine, lead_s=math.inf), remote(house)):
            async with line(service, sample_rate=sample_rate) as end:
                await end.turn(text)
                first = end.of(TTSTextFrame)[0].pts
                times = [(frame.pts - first) / 1e9 for frame in end.of(TTSTextFrame)]
                heard.append((end.audio, [frame.text for frame in end.of(TTSTextFrame)], times))
                assert {frame.sample_rate for frame in end.of(TTSAudioRawFrame)} == {sample_rate}
                assert end.errors == []
        (here, here_words, here_times), (there, there_words, there_times) = heard
        assert there_words == here_words
        assert there_times == pytest.approx(here_times, abs=0.002)
        if sample_rate != 16_000:  # the server's way to that rate holds back less
            assert there == here
        assert len(there) == pytest.approx(len(here), abs=0.02 * sample_rate)

    run(test)


def test_frames_come_in_the_order_that_pipecat_asks_for(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            await end.turn("One two. Three.")
            await end.until(LLMFullResponseEndFrame)
            kinds = [type(frame) for frame in end.below.frames]
            assert kinds[1:3] == [LLMFullResponseStartFrame, TTSStartedFrame]
            assert kinds[-2:] == [TTSStoppedFrame, LLMFullResponseEndFrame]
            assert kinds.index(TTSAudioRawFrame) < kinds.index(TTSTextFrame)
            assert kinds.count(TTSStartedFrame) == kinds.count(TTSStoppedFrame) == 1

    run(test)


def test_the_first_clause_is_heard_while_the_reply_is_being_written(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            await end.send(LLMFullResponseStartFrame(), *tokens("Hello there, I "))
            await end.until(TTSTextFrame, 2)
            assert end.words == ["Hello", "there"]
            assert end.of(TTSStoppedFrame) == []

    run(test)


def test_three_unspeakable_replies_in_a_row_are_silence_and_no_error(run: Run) -> None:
    async def test(house: Any) -> None:
        service = remote(house)
        async with line(service, sample_rate=8_000) as end:
            for text in ("…", "\N{GRINNING FACE}", "!?", "Well."):
                await end.turn(text)
            assert service.is_usable and end.errors == []
            assert not any(b"".join(frame.audio for frame in end.of(TTSAudioRawFrame)[:3]))
            assert end.words[-1] == "Well"

    run(test)


def test_a_turn_without_text_says_nothing_and_costs_no_connection(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            for _ in range(5):
                await end.send(LLMFullResponseStartFrame(), LLMFullResponseEndFrame())
            await end.turn("Then.")
            assert end.words == ["Then"] and end.errors == []
            assert len(house.sockets) <= 3

    run(test)


def test_a_speak_frame_in_mid_turn_is_said_after_the_turn(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            between = TTSSpeakFrame("Between us.")
            await end.send(LLMFullResponseStartFrame(), *tokens("One two. "), between, *tokens("Three."))
            await end.send(LLMFullResponseEndFrame())
            await end.until(TTSStoppedFrame, 2)
            assert end.words == ["One", "two", "Three", "Between", "us"]

    run(test)


def test_sentences_are_spoken_in_sentence_mode(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house, text_aggregation_mode=TextAggregationMode.SENTENCE)) as end:
            await end.turn("One two. Three four.")
            assert end.words == ["One", "two", "Three", "four"]

    run(test)


def test_metrics_are_told(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house), enable_metrics=True, enable_usage_metrics=True) as end:
            await end.turn("One two three.")
            data = [item for frame in end.of(MetricsFrame) for item in frame.data]
        assert [d.value for d in data if isinstance(d, TTSUsageMetricsData)] == [len("One two three.")]
        assert any(isinstance(item, TTFBMetricsData) and item.value > 0 for item in data)
        assert any(isinstance(item, TTFAMetricsData) for item in data)

    run(test)


def test_a_reader_who_takes_his_time_gets_everything(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_tts_service, "MAX_UNREAD_S", 0.1)

    async def test(house: Any) -> None:
        async with line(remote(house, lead_s=0.3)) as end:
            await end.turn("One two three four five six seven eight.")
            assert end.words == "One two three four five six seven eight".split()

    run(test)


# Interruptions


def test_no_audio_follows_an_interruption_and_the_server_is_free_at_once(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house, lead_s=0.5)) as end:
            for _ in range(5):
                await end.send(*reply(STORY))
                await end.until(TTSAudioRawFrame, len(end.of(TTSAudioRawFrame)) + 3)
                await end.send(InterruptionFrame())
                await end.until(InterruptionFrame)
                cut, at = end.of(TTSAudioRawFrame)[-1].context_id, len(end.below.frames)
                await until(lambda: house.engine.active_streams == 0)
                await end.turn("Then.")
                after = end.below.frames[at:]
                assert cut not in {
                    f.context_id for f in after if isinstance(f, TTSAudioRawFrame | TTSTextFrame)
                }
                assert end.words[-1] == "Then"
                end.below.frames.clear()
            assert end.errors == []
            assert len(house.sockets) <= 3  # connections were lent again

    run(test)


def test_nothing_of_an_interrupted_reply_is_heard_in_the_next(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house, lead_s=0.3), sample_rate=8_000) as end:
            await end.turn("Then.")
            undisturbed = end.audio
            for _ in range(3):
                heard = len(end.of(TTSAudioRawFrame))
                await end.send(*reply(STORY))
                await end.until(TTSAudioRawFrame, heard + 2)
                await end.send(InterruptionFrame())
                await end.turn("Then.")
                context = end.of(TTSStoppedFrame)[-1].context_id
                assert undisturbed == b"".join(
                    frame.audio for frame in end.of(TTSAudioRawFrame) if frame.context_id == context
                )

    run(test)


@pytest.mark.parametrize("begun", ["", "Hello"])
def test_an_interruption_before_any_audio_leaves_nothing_to_hear(run: Run, begun: str) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            await end.send(LLMFullResponseStartFrame(), *tokens(begun))
            await end.until(TTSStartedFrame if begun else LLMFullResponseStartFrame)
            await end.send(InterruptionFrame())
            await end.until(InterruptionFrame)
            await end.turn("Next one.")
            assert end.words == ["Next", "one"] and end.errors == []

    run(test)


# A server that is not there


def test_a_server_that_is_away_is_an_error_and_is_spoken_with_when_it_is_back(run: Run) -> None:
    async def test(house: Any) -> None:
        async with Relay(house) as way:
            await way.close()
            service = remote(house, url=f"ws://127.0.0.1:{way.port}")
            async with line(service) as end:
                for number in range(1, 5):
                    await end.turn("Is anybody there?")
                    assert [error.category for error in end.errors] == [ErrorCategory.CONNECTIVITY] * number
                assert "cannot be reached" in end.errors[0].error
                assert end.words == [] and service.is_usable
                await way.open()
                await end.turn("At last.")
                assert end.words == ["At", "last"] and len(end.errors) == 4

    run(test)


def test_a_server_lost_in_mid_reply_is_one_error_and_no_invention(run: Run) -> None:
    async def test(house: Any) -> None:
        async with Relay(house) as way:
            async with line(remote(house, url=f"ws://127.0.0.1:{way.port}", lead_s=0.5)) as end:
                await end.send(*reply("One two three four. " * 20))
                await end.until(TTSTextFrame, 2)
                way.cut()
                await end.until(TTSStoppedFrame)
                assert [error.category for error in end.errors] == [ErrorCategory.CONNECTIVITY]
                assert len(end.words) < 4 * 20
                said = len(end.words)
                await end.turn("Fine again.")
                assert end.words[said:] == ["Fine", "again"] and len(end.errors) == 1
            await until(lambda: house.engine.active_streams == 0)

    run(test, step_s=0.1)


@pytest.mark.parametrize("when", ["between turns", "before the first token", "before the first audio"])
def test_a_server_that_was_restarted_before_anything_was_heard_is_not_noticed(run: Run, when: str) -> None:
    async def test(house: Any) -> None:
        async with Relay(house) as way, line(remote(house, url=f"ws://127.0.0.1:{way.port}")) as end:
            await end.turn("One.")
            text = "Two three four."
            match when:
                case "between turns":
                    way.cut()
                    await end.send(*reply(text))
                case "before the first token":
                    await end.send(LLMFullResponseStartFrame())
                    await end.until(LLMFullResponseStartFrame, 2)
                    await asyncio.sleep(0.1)
                    way.cut()
                    await asyncio.sleep(0.1)
                    await end.send(*tokens(text), LLMFullResponseEndFrame())
                case "before the first audio":
                    await end.send(LLMFullResponseStartFrame(), *tokens("Two thr"))
                    await end.until(TTSStartedFrame, 2)
                    await asyncio.sleep(0.1)
                    way.cut()
                    await end.send(*tokens("ee four."), LLMFullResponseEndFrame())
            await end.until(TTSStoppedFrame, 2)
            assert end.words == ["One", "Two", "three", "four"] and end.errors == []

    run(test)


def test_a_server_that_says_nothing_is_given_up_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(house: Any) -> None:
        async with Relay(house) as way, line(remote(house, url=f"ws://127.0.0.1:{way.port}")) as end:
            await end.turn("One.")
            monkeypatch.setattr(audio_context, "STALL_TIMEOUT_S", 0.3)
            way.freeze()
            await end.turn("Two.")
            assert "gave nothing for 0.3 s" in end.errors[0].error
            way.thaw()
            monkeypatch.setattr(audio_context, "STALL_TIMEOUT_S", 60.0)
            await end.turn("Three.")
            assert end.words == ["One", "Three"]

    run(test)


def test_a_server_that_never_answers_is_no_obstacle_to_the_end(run: Run) -> None:
    async def test(house: Any) -> None:
        async with Relay(house) as way:
            async with line(remote(house, url=f"ws://127.0.0.1:{way.port}")) as end:
                await end.send(LLMFullResponseStartFrame(), *tokens("One two. Three"))
                await end.until(TTSAudioRawFrame)
                way.freeze()
                await end.send(CancelFrame())
                await end.until(CancelFrame)
            way.thaw()

    run(test)


def test_a_full_house_is_an_error_for_this_reply_and_does_not_write_the_service_off(run: Run) -> None:
    async def test(house: Any) -> None:
        service = remote(house)
        async with line(service) as end:
            with_the_only_slot = house.engine.stream()
            for _ in range(4):
                await end.turn("Is anybody there?")
            assert [error.category for error in end.errors] == [ErrorCategory.RATE_LIMIT] * 4
            assert end.words == [] and service.is_usable
            with_the_only_slot.cancel()
            await end.turn("At last.")
            assert end.words == ["At", "last"]

    run(test, max_streams=1)


def test_a_voice_that_breaks_is_one_error(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            await end.turn("One two three four five six seven.")
            assert [error.category for error in end.errors] == [ErrorCategory.SERVER]
            house.backend.broken_after = None
            said = len(end.words)
            await end.turn("Fine again.")
            assert end.words[said:] == ["Fine", "again"]

    run(test, broken_after=2)


def test_a_wrong_key_is_said_at_the_first_reply(run: Run, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("bot", (Scope.SPEAK,), KeyLimits())

    async def test(house: Any) -> None:
        async with line(remote(house, api_key=key)) as end:
            await end.turn("Let me in.")
            assert end.words == ["Let", "me", "in"]
        service = remote(house, api_key="wrong")
        async with line(service) as end:
            await end.send(*reply("Let me in."))
            await until(lambda: bool(end.errors))
            assert "API key" in end.errors[0].error and not service.is_usable

    run(test, access=AccessControl(keys))


def test_a_writer_who_is_silent_for_longer_than_the_server_waits_is_spoken_whole(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_tts_service, "KEEP_ALIVE_S", 0.1)

    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            await end.send(LLMFullResponseStartFrame())
            for part in ("One two. ", "Three, four."):
                await asyncio.sleep(1.2)  # calling a tool
                await end.send(LLMTextFrame(part))
            await end.send(LLMFullResponseEndFrame())
            await end.until(TTSStoppedFrame)
            assert end.words == ["One", "two", "Three", "four"] and end.errors == []

    run(test, idle_s=1.0)


# Settings


def test_a_new_voice_speaks_from_the_next_utterance_on(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            await end.turn("One two three.")
            before = len(end.audio)
            await end.send(
                LLMFullResponseStartFrame(),  # opens the turn
                TTSUpdateSettingsFrame(delta=VivavoceWebsocketTTSService.Settings(voice="tone-330")),
                *tokens("One two three."),
                LLMFullResponseEndFrame(),
            )
            await end.until(TTSStoppedFrame, 2)
            assert pitch_of(end.audio[:before]) == pytest.approx(440, abs=5)
            assert pitch_of(end.audio[before:]) == pytest.approx(330, abs=5)

    run(test)


def test_speed_is_the_servers_to_obey_and_ours_to_bound(run: Run) -> None:
    async def test(house: Any) -> None:
        speeds: list[float] = []
        open_slot = house.backend.open_slot
        house.backend.open_slot = lambda request: speeds.append(request.speed) or open_slot(request)
        service = remote(house, settings=VivavoceWebsocketTTSService.Settings(speed=2.0))
        async with line(service) as end:
            await end.turn("One two three.")
            await end.send(TTSUpdateSettingsFrame(delta=VivavoceWebsocketTTSService.Settings(speed=9.0)))
            await until(lambda: bool(end.errors))
            assert "got speed 9.0" in end.errors[0].error and service.is_usable
            await end.send(TTSUpdateSettingsFrame(delta=VivavoceWebsocketTTSService.Settings(speed=1.0)))
            await end.turn("One two three.")
            assert speeds == [2.0, 1.0]

    run(test)


def test_a_voice_that_does_not_exist_is_said_at_the_first_reply_and_can_be_changed(run: Run) -> None:
    async def test(house: Any) -> None:
        service = remote(house, settings=VivavoceWebsocketTTSService.Settings(voice="nobody"))
        async with line(service) as end:
            await end.send(LLMFullResponseStartFrame())
            await until(lambda: len(house.sockets) > 0)
            await asyncio.sleep(0.3)
            assert end.errors == []  # nobody is to say anything yet
            await end.send(*tokens("Hello."), LLMFullResponseEndFrame())
            await until(lambda: bool(end.errors))
            assert "nobody" in end.errors[0].error and not service.is_usable
            await end.send(
                TTSUpdateSettingsFrame(delta=VivavoceWebsocketTTSService.Settings(voice="tone-330"))
            )
            await until(lambda: service.is_usable)
            await end.turn("Better now.")
            assert end.words[-2:] == ["Better", "now"]

    run(test)


# Ends


def test_an_end_frame_lets_the_reply_be_said_and_closes_every_connection(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            await end.send(*reply("One two three four. Five."))
        assert end.words == ["One", "two", "three", "four", "Five"]
        await until(lambda: len(house.sockets) == 0)

    run(test)


@pytest.mark.parametrize(
    "stage", ["before the text", "in the text", "in the audio", "behind an interruption"]
)
def test_a_pipeline_can_be_cancelled_at_each_stage(run: Run, stage: str) -> None:
    async def test(house: Any) -> None:
        service = remote(house, lead_s=0.5)
        async with line(service) as end:
            match stage:
                case "before the text":
                    await end.send(LLMFullResponseStartFrame())
                    await end.until(LLMFullResponseStartFrame)
                case "in the text":
                    await end.send(LLMFullResponseStartFrame(), *tokens("One two thr"))
                    await end.until(TTSStartedFrame)
                case _:
                    await end.send(*reply(STORY))
                    await end.until(TTSAudioRawFrame, 2)
            if stage == "behind an interruption":
                await end.send(InterruptionFrame())
            await end.send(CancelFrame())
            await end.until(CancelFrame)
            await until(lambda: len(house.sockets) == 0 and house.engine.active_streams == 0)
        await service.cleanup()  # a third time
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("vivavoce")] == []

    run(test)


def test_two_services_share_a_client_that_they_do_not_close(run: Run) -> None:
    async def test(house: Any) -> None:
        async with SpeechClient(
            str(house.client.base_url), pool=PoolPolicy(max_connections=4, min_connections=2)
        ) as client:
            settings = VivavoceWebsocketTTSService.Settings
            one = remote(house, url=None, client=client, settings=settings(voice="tone-440"))
            other = remote(house, url=None, client=client, settings=settings(voice="tone-330"))
            async with line(one) as first, line(other) as second:
                await asyncio.gather(first.turn("One two three."), second.turn("One two three."))
                assert pitch_of(first.audio) == pytest.approx(440, abs=5)
                assert pitch_of(second.audio) == pytest.approx(330, abs=5)
            async with client.utterance() as utterance:
                await utterance.push_text("Still here.")
                await utterance.end_input()
                assert [piece async for piece in utterance]
            assert len(house.sockets) <= 4

    run(test)


def test_more_replies_at_once_than_connections_are_all_spoken(run: Run) -> None:
    async def test(house: Any) -> None:
        client = SpeechClient(
            str(house.client.base_url), pool=PoolPolicy(max_connections=2, min_connections=0)
        )
        async with client, line(remote(house, url=None, client=client)) as end:
            await end.send(*(TTSSpeakFrame(f"Number {number}.") for number in range(6)))
            await end.until(TTSStoppedFrame, 6)
            assert end.words == " ".join(f"Number {number}" for number in range(6)).split()
            assert end.errors == [] and len(house.sockets) <= 2

    run(test)


def test_forty_turns_leave_neither_tasks_nor_connections_behind(run: Run) -> None:
    async def test(house: Any) -> None:
        async with line(remote(house)) as end:
            await end.turn("Warm up.")
            before = len(asyncio.all_tasks())
            for number in range(40):
                heard = len(end.of(TTSAudioRawFrame))
                if number % 3:
                    await end.turn(f"Turn {number}, here we go.")
                    continue
                await end.send(*reply(f"Turn {number}, here we go."))
                await end.until(TTSAudioRawFrame, heard + 1)
                await end.send(InterruptionFrame())
                await end.until(InterruptionFrame, number // 3 + 1)
            await end.turn("The end.")
            assert end.errors == []
            # A slow machine opens some more while interrupted ones come to rest; 40 turns never leave 40.
            await until(lambda: len(house.sockets) <= 8 and house.engine.active_streams == 0)
            await until(lambda: len(asyncio.all_tasks()) <= before + 12 * len(house.sockets))

    run(test)


@pytest.mark.parametrize("how", [{}, {"url": "ws://a", "client": SpeechClient("ws://a")}, {"url": "ftp://a"}])
def test_a_service_wants_one_server(how: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        VivavoceWebsocketTTSService(**how)
