"""Streams that replicas speak: equal to those of an engine here, also when a replica is lost."""

import asyncio
import itertools
import logging
from contextlib import aclosing
from pathlib import Path
from typing import TypeVar

import pytest

from shared.cluster.local_replicas import LocalReplica, LocalReplicas, open_cluster
from shared.engine.standin_backend import StandInBackend
from shared.event_loop import until
from vivavoce.gateway.cluster.ray.replica_settings import ReplicaSettings
from vivavoce.gateway.cluster.replicas import waiting_streams
from vivavoce.gateway.cluster.replicas.cluster_engine import ClusterEngine
from vivavoce.gateway.cluster.replicas.messages import CancelStream, OpenStream, ReportPlayout
from vivavoce.gateway.cluster.replicas.sent_lexicons import LexiconPacker, LexiconUnpacker, SentLexicon
from vivavoce.tts_engine.chunk import SAMPLE_RATE, AudioChunk
from vivavoce.tts_engine.engine import Engine, EngineConfig
from vivavoce.tts_engine.errors import (
    BadRequest,
    LanguageNotSpoken,
    Overloaded,
    StreamClosed,
    SynthesisFailed,
    UnknownVoice,
)
from vivavoce.tts_engine.reading.pronunciation.entries import lexicon_of
from vivavoce.tts_engine.reading.pronunciation.lexicon import Lexicon
from vivavoce.tts_engine.reading.pronunciation.lexicon_files import LexiconFile
from vivavoce.tts_engine.reading.prosody import Prosody
from vivavoce.tts_engine.scheduler import SchedulerPolicy
from vivavoce.tts_engine.stream import Stream

TEXT = "One two three four, five six seven. Eight nine ten, and eleven! Twelve thirteen fourteen fifteen."
WORDS = TEXT.split()
T = TypeVar("T")


async def speak(stream: Stream, text: str = TEXT) -> list[AudioChunk]:
    await give(stream, text)
    return await hear(stream)


async def give(stream: Stream, text: str = TEXT) -> None:
    """Push a text, and wait until a replica is chosen for it."""
    stream.push_text(text)
    stream.end_input()
    await asyncio.sleep(0)


async def hear(stream: Stream) -> list[AudioChunk]:
    async with stream:
        return [chunk async for chunk in stream]


def heard_words(chunks: list[AudioChunk]) -> list[str]:
    return [word.text for chunk in chunks for word in chunk.words]


def check_contiguous(chunks: list[AudioChunk]) -> None:
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.final for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[0].samples[0] == 0
    for before, after in itertools.pairwise(chunks):
        assert before.samples[1] == after.samples[0]
    for chunk in chunks:
        assert len(chunk.pcm) == 2 * (chunk.samples[1] - chunk.samples[0])
        for word in chunk.words:
            assert TEXT[word.text_start : word.text_stop] == word.text
            assert chunk.samples[0] / SAMPLE_RATE - 1e-6 <= word.start_s < chunk.samples[1] / SAMPLE_RATE


def speaking_replica(directory: LocalReplicas) -> LocalReplica:
    return next(each for each in directory.replicas if each.engine.active_streams)


def test_a_replica_speaks_the_samples_of_a_local_engine() -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, _), await Engine.open(backend=StandInBackend()) as local:
            for text in (TEXT, "Hello.", "", "...", TEXT[:20]):
                here, there = await speak(local.stream(), text), await speak(engine.stream(), text)
                assert b"".join(chunk.pcm for chunk in there) == b"".join(chunk.pcm for chunk in here)
                assert heard_words(there) == heard_words(here)
                assert [chunk.text for chunk in there] == [chunk.text for chunk in here]
                assert [chunk.samples for chunk in there] == [chunk.samples for chunk in here]

    asyncio.run(run())


def test_text_in_pieces_with_marks_rates_pauses_and_languages_is_as_in_a_local_engine() -> None:
    async def pieces(stream: Stream) -> list[AudioChunk]:
        async with stream:
            stream.mark("begin")
            stream.push_text("One tw")
            await asyncio.sleep(0.01)
            stream.push_text("o three, four. ", pause_s=0.5)
            stream.mark("middle")
            stream.set_prosody(Prosody(1.5))
            stream.set_language("zxx-AA")
            stream.push_text("five six")
            stream.flush()
            stream.push_text(" seven")
            stream.mark("end")
            stream.end_input()
            stream.end_input()
            return [chunk async for chunk in stream]

    async def run() -> None:
        async with open_cluster(1) as (engine, _), await Engine.open(backend=StandInBackend()) as local:
            here, there = await pieces(local.stream()), await pieces(engine.stream())
            assert [(chunk.pcm, chunk.words, chunk.marks) for chunk in there] == [
                (chunk.pcm, chunk.words, chunk.marks) for chunk in here
            ]
            assert sum((chunk.marks for chunk in there), ())[0].name == "begin"
            with pytest.raises(LanguageNotSpoken):
                engine.stream().set_language("de")

    asyncio.run(run())


def test_words_of_a_keys_lexicon_and_of_a_request_reach_a_replica_with_the_stream(tmp_path: Path) -> None:
    file = tmp_path / "key.toml"
    file.write_text('[words]\nnginx = "engine x"\n', "utf-8")
    of_key = LexiconFile(file)
    of_request = lexicon_of({"redis": "red is it"})

    async def samples(engine: Engine, text: str, *lexicons: Lexicon) -> bytes:
        return b"".join(chunk.pcm for chunk in await speak(engine.stream(lexicons=lexicons), text))

    async def run() -> None:
        async with open_cluster(1) as (engine, _), await Engine.open(backend=StandInBackend()) as local:
            said = await samples(engine, "One nginx, redis.", of_request, of_key.current())
            assert said == await samples(local, "One engine x, red is it.")
            file.write_text('[words]\nnginx = "en"\n', "utf-8")
            of_key.current()
            of_key.wait_read()  # the gateway reads the change; replicas hold no copy of it
            said = await samples(engine, "One nginx, redis.", of_request, of_key.current())
            assert said == await samples(local, "One en, red is it.")

    asyncio.run(run())


def test_a_lexicon_is_packed_and_unpacked_once_for_all_streams() -> None:
    lexicon = lexicon_of(
        {"nginx": {"ipa": "/ˈɛndʒɪn/", "say": "engine x"}, "重庆": {"pinyin": "chong2 qing4"}}
    )
    packer, unpacker = LexiconPacker(), LexiconUnpacker()
    sent = packer.pack(lexicon)
    assert packer.pack(lexicon) is sent != packer.pack(lexicon_of({"a": "b"}))
    assert unpacker.unpack(sent) == lexicon
    assert unpacker.unpack(SentLexicon(sent.digest, bytes(sent.content))) is unpacker.unpack(sent)


def test_a_replica_follows_the_changes_of_its_own_lexicon(tmp_path: Path) -> None:
    file = tmp_path / "lexicon.toml"
    file.write_text('[words]\nnginx = "engine x"\n', "utf-8")
    config = ReplicaSettings(lexicon=file).engine_config()

    async def run() -> None:
        directory = LocalReplicas()
        await directory.add(config=config)
        engine = await ClusterEngine.connect(directory, EngineConfig())
        async with aclosing(engine):
            spoken = heard_words(await speak(engine.stream(), "One nginx two."))
            assert spoken == ["One", "nginx", "nginx", "two"]  # two spoken words, each with the written one
            file.write_text('[words]\nnginx = "en"\n', "utf-8")
            while len(heard_words(await speak(engine.stream(), "One nginx two."))) != 3:
                await asyncio.sleep(0.01)  # a thread reads the change

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("chunks", range(1, 16))
def test_a_stream_goes_on_at_another_replica_after_any_chunk_without_a_word_lost_or_repeated(
    chunks: int,
) -> None:
    async def run() -> None:
        async with open_cluster(2) as (engine, directory):
            stream = engine.stream()
            await give(stream)
            speaker = next(each for each in directory.replicas if each.name in stream.tried)
            speaker.max_chunks = chunks
            heard = await hear(stream)
            assert heard_words(heard) == [word.strip(",.!") for word in WORDS]
            check_contiguous(heard)
            assert not speaker.is_alive
            assert engine.active_streams == 0

    asyncio.run(run())


def test_text_that_comes_after_the_loss_is_spoken_by_the_other_replica() -> None:
    async def run() -> None:
        async with open_cluster(2) as (engine, directory), engine.stream() as stream:
            stream.push_text("One two three, four. ")
            await until(lambda: any(each.engine.active_streams for each in directory.replicas))
            first = await anext(stream)
            speaking_replica(directory).kill()
            await until(lambda: len(engine.replicas) == 1)
            stream.push_text("Five six.")
            stream.end_input()
            heard = [first, *[chunk async for chunk in stream]]
            assert heard_words(heard) == ["One", "two", "three", "four", "Five", "six"]

    asyncio.run(run())


def test_without_another_replica_the_stream_ends_with_an_error_and_the_next_is_refused() -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, directory):
            stream = engine.stream()
            stream.push_text(TEXT)
            await anext(stream)
            directory.replicas[0].kill()
            with pytest.raises(SynthesisFailed, match="died"):
                async for _ in stream:
                    pass
            with pytest.raises(Overloaded) as refusal:
                engine.stream()
            assert refusal.value.reason == "replicas"
            assert engine.active_streams == 0

    asyncio.run(run())


def test_a_stream_of_the_last_replica_waits_for_one_that_starts() -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, directory):
            stream = engine.stream()
            stream.push_text(TEXT)
            stream.end_input()
            heard = [await anext(stream)]
            directory.may_grow = True
            directory.replicas[0].kill()
            await until(lambda: not engine.replicas)
            await directory.add()
            heard += [chunk async for chunk in stream]
            assert heard_words(heard) == [word.strip(",.!") for word in WORDS]
            assert engine.metrics.failures._value.get() == 0

    asyncio.run(run())


def test_a_text_that_ends_replicas_does_not_end_all_of_them() -> None:
    async def run() -> None:
        async with open_cluster(5) as (engine, directory):
            for each in directory.replicas:
                each.max_chunks = 1
            with pytest.raises(SynthesisFailed):
                await speak(engine.stream())
            assert sum(each.is_alive for each in directory.replicas) == 2

    asyncio.run(run())


def test_other_streams_do_not_notice_a_lost_replica() -> None:
    async def run() -> None:
        async with open_cluster(2) as (engine, directory):
            streams = [engine.stream() for _ in range(6)]
            await asyncio.gather(*map(give, streams))
            placed = {stream: engine._speaking[stream].replica for stream in streams}
            assert sorted(placed.values()) == ["replica-1"] * 3 + ["replica-2"] * 3
            directory.replicas[0].max_chunks = 4
            heard = await asyncio.gather(*map(hear, streams))
            for chunks in heard:
                assert heard_words(chunks) == [word.strip(",.!") for word in WORDS]
            kept = [stream for stream in streams if placed[stream] == "replica-2"]
            assert all(stream.tried == {"replica-2"} for stream in kept)

    asyncio.run(run())


def test_cancel_reaches_the_replica_and_frees_its_slot() -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, directory):
            replica = directory.replicas[0]
            stream = engine.stream()
            stream.push_text(TEXT)
            await anext(stream)
            assert replica.engine.active_streams == 1
            stream.cancel()
            assert [chunk async for chunk in stream] == []
            with pytest.raises(StreamClosed):
                stream.push_text("more")
            await until(lambda: replica.engine.active_streams == 0)
            assert CancelStream() in [command.action for command in replica.commands]

    asyncio.run(run())


def test_a_listener_that_takes_nothing_stops_the_rendering() -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, directory):
            stream = engine.stream()
            stream.push_text("word " * 500)
            stream.end_input()
            rendered = directory.replicas[0].engine.metrics.audio_seconds
            await until(lambda: rendered._value.get() > 1.9)
            await asyncio.sleep(0.1)
            assert rendered._value.get() < 3.0  # of 100 s
            assert len(heard_words([chunk async for chunk in stream])) == 500

    asyncio.run(run())


def test_deadlines_reach_the_scheduler_of_the_replica() -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, directory):
            replica = directory.replicas[0]
            stream = engine.stream()
            stream.push_text("word " * 100)
            await anext(stream)
            stream.set_deadline(asyncio.get_running_loop().time() + 5.0)
            await until(
                lambda: any(
                    isinstance(command.action, ReportPlayout) and command.action.lead_s is not None
                    for command in replica.commands
                )
            )
            session = next(iter(replica.engine._sessions.streams))
            assert session.deadline is not None
            stream.cancel()

    asyncio.run(run())


def test_a_replica_of_another_bundle_is_refused() -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, directory):
            await directory.add(digest="other")
            same = await directory.add()
            await until(lambda: same.name in engine.replicas)
            assert engine.replicas == ("replica-1", "replica-3")

    asyncio.run(run())


def test_a_leaving_replica_ends_its_streams_and_takes_no_new_one() -> None:
    async def run() -> None:
        async with open_cluster(2) as (engine, directory):
            stream = engine.stream()
            stream.push_text(TEXT)
            await asyncio.sleep(0)
            leaving = next(each for each in directory.replicas if each.name in stream.tried)
            directory.listed.remove(leaving)
            await until(lambda: leaving.name not in engine.replicas)
            others = [engine.stream() for _ in range(3)]
            await asyncio.gather(*map(give, others))
            assert all(leaving.name not in other.tried for other in others)
            stream.end_input()
            assert heard_words([chunk async for chunk in stream]) == [word.strip(",.!") for word in WORDS]
            assert stream.tried == {leaving.name}
            await until(lambda: leaving.name not in engine._links)
            for other in others:
                other.cancel()

    asyncio.run(run())


def test_the_last_replica_takes_streams_until_another_one_is_there() -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, directory):
            first = engine.stream()
            first.push_text(TEXT)
            await until(lambda: engine.replica_streams == 1)
            directory.listed.clear()
            await until(lambda: engine.replicas == ())
            assert len(await speak(engine.stream())) > 5
            new = await directory.add()
            await until(lambda: engine.replicas == (new.name,))
            later = engine.stream()
            await give(later)
            assert later.tried == {new.name}
            for stream in (first, later):
                stream.cancel()

    asyncio.run(run())


def test_requests_are_checked_before_a_replica_is_asked() -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, directory):
            with pytest.raises(UnknownVoice):
                engine.stream(voice="nobody")
            with pytest.raises(BadRequest, match="speed"):
                engine.stream(speed=9.0)
            with pytest.raises(BadRequest, match="clones no voice"):
                engine.voices.enroll(b"", 16_000)  # type: ignore[arg-type]
            assert [voice.id for voice in engine.voices] == ["tone-440"]
            assert not any(isinstance(each.action, OpenStream) for each in directory.replicas[0].commands)

    asyncio.run(run())


def test_a_replica_is_chosen_when_the_first_clause_or_the_whole_text_is_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        async with open_cluster(1) as (engine, _):
            streams = [engine.stream() for _ in range(4)]
            for text in ("One", " two", " three"):
                for stream in streams:
                    stream.push_text(text)
                await asyncio.sleep(0)
            assert not any(stream.tried for stream in streams)
            streams[0].push_text(", four")
            streams[1].push_text(" four five six seven eight nine ten eleven")
            streams[2].flush()
            streams[3].end_input()
            await asyncio.sleep(0)
            assert all(stream.tried for stream in streams)
            caplog.clear()
            await give(engine.stream(), "One two three four five.")
            await give(engine.stream(), "One two three four five. " * 100)

    with caplog.at_level(logging.DEBUG, logger="vivavoce"):
        asyncio.run(run())
    choices = [record.args for record in caplog.records if "is placed" in record.msg]
    assert [round(args[2]) for args in choices] == [2, 167]  # seconds of speech


def test_streams_wait_for_a_replica_that_starts_and_are_refused_without_one() -> None:
    async def run() -> None:
        directory = LocalReplicas()
        await directory.add(config=EngineConfig(scheduler=SchedulerPolicy(max_streams=1)))
        async with await ClusterEngine.connect(directory, EngineConfig()) as engine:
            first = engine.stream()
            first.push_text(TEXT)
            await until(lambda: engine.refusal() is not None)
            with pytest.raises(Overloaded):
                engine.stream()
            directory.may_grow = True
            second = engine.stream()
            await give(second)
            assert not second.tried
            await directory.add()
            assert len(await hear(second)) > 5
            first.cancel()

    asyncio.run(run())


def test_a_stream_that_its_replica_refused_waits_for_room_like_others() -> None:
    async def run() -> None:
        directory = LocalReplicas()
        directory.may_grow = True
        replica = await directory.add(config=EngineConfig(scheduler=SchedulerPolicy(max_streams=1)))
        async with await ClusterEngine.connect(directory, EngineConfig()) as engine:
            other = replica.engine.stream()  # of another gateway, which this one has not heard of
            stream = engine.stream()
            await give(stream)
            assert stream.tried == {replica.name}
            await until(lambda: not stream.tried)
            other.cancel()
            assert len(await hear(stream)) > 5

    asyncio.run(run())


def test_a_stream_that_waits_for_room_in_vain_is_refused_with_the_time_to_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_streams, "MAX_WAIT_S", 0.05)

    async def run() -> None:
        directory = LocalReplicas()
        directory.may_grow = True
        await directory.add(config=EngineConfig(scheduler=SchedulerPolicy(max_streams=1)))
        async with await ClusterEngine.connect(directory, EngineConfig()) as engine:
            first = engine.stream()
            first.push_text(TEXT)
            await until(lambda: engine.replica_streams == 1)
            with pytest.raises(Overloaded) as refusal:
                await speak(engine.stream())
            assert refusal.value.retry_after_s > 0 and engine.active_streams == 1
            first.cancel()

    asyncio.run(run())


def test_a_replica_that_refuses_passes_the_stream_on() -> None:
    async def run() -> None:
        directory = LocalReplicas()
        full = EngineConfig(scheduler=SchedulerPolicy(max_streams=1))
        await directory.add(config=full)
        other = await directory.add(config=full)
        engine = await ClusterEngine.connect(directory, EngineConfig())
        directory.replicas[0].engine.stream()  # of another gateway, which this one has not heard of
        heard = await asyncio.gather(speak(engine.stream()))
        assert heard_words(heard[0]) == [word.strip(",.!") for word in WORDS]
        other.engine.stream()
        with pytest.raises(Overloaded):
            await speak(engine.stream())
        await engine.aclose()

    asyncio.run(run())
