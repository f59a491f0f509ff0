"""``SpeechClient`` against the server: speech, reuse of connections, errors and clean-up."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.audio.tones import pitch_of
from shared.event_loop import until
from vivavoce.adapters.client import (
    PoolPolicy,
    RemoteUtterance,
    ServerUnavailable,
    SpeechClient,
    SpeechOptions,
    SpeechPiece,
)
from vivavoce.gateway.access.access_control import AccessControl
from vivavoce.gateway.access.keys import KeyLimits, KeysFile, Scope
from vivavoce.tts_engine.errors import BadRequest, Overloaded, SynthesisFailed

Run = Callable[..., None]
TONE_440 = SpeechOptions(voice="tone-440")


def client(server: Any, key: str | None = None, **policy: Any) -> SpeechClient:
    return SpeechClient(str(server.client.base_url), api_key=key, pool=PoolPolicy(**policy))


async def speech_of(utterance: RemoteUtterance, text: str = "One two three.") -> list[SpeechPiece]:
    for word in text.split(" ") if len(text) < 1_000 else [text]:
        await utterance.push_text(word + " ")
    await utterance.end_input()
    return [piece async for piece in utterance]


def pitch_hz(pieces: list[SpeechPiece]) -> float:
    return pitch_of(b"".join(piece.audio for piece in pieces))


def test_text_becomes_speech_with_word_times(run: Run) -> None:
    async def test(server: Any) -> None:
        async with client(server) as speech:
            async with speech.utterance(TONE_440) as utterance:
                pieces = await speech_of(utterance)
            assert pitch_hz(pieces) == pytest.approx(440, abs=5)
            words = [word for piece in pieces for word in piece.words]
            assert [word.text for word in words] == ["One", "two", "three."]
            assert [word.start_s for word in words] == pytest.approx([0.0, 0.2, 0.4])
            assert utterance.time_to_first_audio_s is not None
            assert speech.last_time_to_first_audio_s == utterance.time_to_first_audio_s > 0

    run(test)


def test_words_are_said_as_the_options_have_it_and_faults_are_the_utterances(run: Run) -> None:
    async def test(server: Any) -> None:
        async with client(server) as speech:
            said = SpeechOptions(voice="tone-440", pronunciations={"nginx": "engine x"})
            async with speech.utterance(said) as utterance:
                pieces = await speech_of(utterance, "One nginx three.")
            words = [word for piece in pieces for word in piece.words]
            assert [word.text for word in words] == ["One", "nginx", "three."]
            wrong = SpeechOptions(voice="tone-440", pronunciations={"nginx": "/SH/"})
            with pytest.raises(BadRequest, match="'/SH/' is not IPA"):
                async with speech.utterance(wrong) as utterance:
                    await speech_of(utterance)

    run(test)


def test_text_beyond_the_message_limit_is_sent_in_several_messages(run: Run) -> None:
    async def test(server: Any) -> None:
        async with client(server) as speech, speech.utterance(TONE_440) as utterance:
            pieces = await speech_of(utterance, "One two" + " " * 70_000 + "three.")
            assert [word.text for piece in pieces for word in piece.words] == ["One", "two", "three."]

    run(test)


def test_consecutive_utterances_share_one_connection(run: Run) -> None:
    async def test(server: Any) -> None:
        async with client(server, min_connections=1) as speech:
            for voice, pitch in [("tone-440", 440), ("tone-330", 330)] * 4:
                async with speech.utterance(SpeechOptions(voice=voice)) as utterance:
                    assert pitch_hz(await speech_of(utterance)) == pytest.approx(pitch, abs=5)
            assert speech.open_connections == 1
            assert len(server.sockets) == 1

    run(test)


def test_a_connection_is_reused_after_every_way_an_utterance_can_end(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vivavoce.adapters.client.utterance._DRAIN_TIMEOUT_S", 30.0
    )  # so that a loaded machine does not close it

    async def test(server: Any) -> None:
        async with client(server, min_connections=1) as speech:
            (connection,) = speech._idle
            async with speech.utterance(TONE_440):
                pass  # no text
            async with speech.utterance(TONE_440) as utterance:
                await utterance.push_text("One two three. ")  # left before the end of input
            async with speech.utterance(TONE_440) as utterance:
                await utterance.push_text("One two three. " * 50)
                await utterance.end_input()
                await anext(utterance)  # left during the speech
            async with speech.utterance(TONE_440) as utterance:
                await utterance.end_input()
                assert [piece async for piece in utterance] == []
            with pytest.raises(BadRequest, match="unknown"):
                async with speech.utterance(SpeechOptions(voice="unknown")) as utterance:
                    await speech_of(utterance)
            async with speech.utterance(SpeechOptions(voice="unknown")) as utterance:
                await utterance.push_text("One two three. ")
                for _ in range(2):  # one error for the configuration, one for the text
                    with pytest.raises(BadRequest, match="unknown"):
                        await anext(utterance)
                assert [piece async for piece in utterance] == []  # ended before the end of input
            with pytest.raises(ZeroDivisionError):
                async with speech.utterance(TONE_440) as utterance:
                    await utterance.push_text("One two three. ")
                    raise ZeroDivisionError
            async with speech.utterance(SpeechOptions(voice="tone-330")) as utterance:
                assert pitch_hz(await speech_of(utterance)) == pytest.approx(330, abs=5)
            assert list(speech._idle) == [connection] and len(server.sockets) == 1
            assert server.engine.active_streams == 0

    run(test)


def test_twenty_concurrent_utterances_get_their_own_speech(run: Run) -> None:
    async def test(server: Any) -> None:
        async def speak(speech: SpeechClient, number: int) -> None:
            pitch = (440, 330)[number % 2]
            async with speech.utterance(SpeechOptions(voice=f"tone-{pitch}")) as utterance:
                assert pitch_hz(await speech_of(utterance)) == pytest.approx(pitch, abs=5)

        async with client(server, max_connections=6, min_connections=2) as speech:
            await asyncio.gather(*(speak(speech, number) for number in range(20)))
            assert speech.open_connections <= 6

    run(test)


def test_an_utterance_fails_when_all_connections_stay_in_use(run: Run) -> None:
    async def test(server: Any) -> None:
        async with (
            client(server, max_connections=1, min_connections=0, acquire_timeout_s=0.2) as speech,
            speech.utterance(TONE_440),
        ):
            with pytest.raises(Overloaded, match="all 1 connections are in use"):
                async with speech.utterance(TONE_440):
                    pass

    run(test)


def test_a_connection_closed_by_the_server_is_not_used(run: Run) -> None:
    async def test(server: Any) -> None:
        async with client(server, min_connections=2) as speech:
            await server.sockets.connections.drain_and_close(0.1)
            await until(lambda: not server.sockets)
            async with speech.utterance(TONE_440) as utterance:
                assert await speech_of(utterance)

    run(test)


def test_idle_connections_are_replaced_and_closed(run: Run) -> None:
    async def test(server: Any) -> None:
        async with client(server, min_connections=2, max_idle_s=0.2) as speech:
            first = set(speech._idle)
            await until(lambda: len(speech._idle) == 2 and not first & set(speech._idle))
            await until(lambda: len(server.sockets) == 2)
        await until(lambda: len(server.sockets) == 0)

    run(test)


def test_closing_during_an_utterance_leaves_no_connection_stream_or_task(run: Run) -> None:
    async def test(server: Any) -> None:
        before = asyncio.all_tasks()
        async with client(server, min_connections=3) as speech:
            utterance = await (context := speech.utterance(TONE_440)).__aenter__()
            await utterance.push_text("One two three. " * 100)
            await speech.aclose()
            with pytest.raises(ServerUnavailable):
                await speech_of(utterance)
            await context.__aexit__(None, None, None)
            assert speech.open_connections == 0
        await until(lambda: len(server.sockets) == 0 and server.engine.active_streams == 0)
        await until(lambda: len(asyncio.all_tasks()) <= len(before) + 1)

    run(test)


def test_a_cancelled_task_releases_its_connection(run: Run) -> None:
    async def test(server: Any) -> None:
        async def speak(speech: SpeechClient) -> None:
            async with speech.utterance(TONE_440) as utterance:
                await utterance.push_text("One two three. " * 100)
                await asyncio.sleep(60)

        async with client(server, min_connections=1, max_connections=1) as speech:
            speaking = asyncio.create_task(speak(speech))
            await until(lambda: server.engine.active_streams == 1)
            speaking.cancel()
            await asyncio.wait({speaking})
            async with speech.utterance(TONE_440) as utterance:
                assert await speech_of(utterance)
            assert server.engine.active_streams == 0

    run(test)


def test_a_failed_synthesis_raises_synthesis_failed(run: Run) -> None:
    async def test(server: Any) -> None:
        async with client(server) as speech:
            with pytest.raises(SynthesisFailed):
                async with speech.utterance(TONE_440) as utterance:
                    await speech_of(utterance, "One two three four five six seven.")

    run(test, broken_after=2)


def test_a_server_at_capacity_raises_overloaded_with_a_retry_time(run: Run) -> None:
    async def test(server: Any) -> None:
        async with client(server) as speech, speech.utterance(TONE_440) as first:
            await first.push_text("One two three. ")
            await until(lambda: server.engine.active_streams == 1)
            with pytest.raises(Overloaded) as caught:
                async with speech.utterance(TONE_440) as second:
                    await speech_of(second)
            assert caught.value.retry_after_s > 0

    run(test, max_streams=1)


def test_a_key_is_sent_and_a_wrong_key_is_refused(run: Run, tmp_path: Path) -> None:
    keys = KeysFile(tmp_path / "keys.json")
    key = keys.add("bot", (Scope.SPEAK,), KeyLimits())

    async def test(server: Any) -> None:
        async with client(server, key) as speech, speech.utterance(TONE_440) as utterance:
            assert await speech_of(utterance)
        for wrong in (None, key[:-2] + "xx"):
            with pytest.raises(BadRequest, match="API key"):
                await client(server, wrong).__aenter__()

    run(test, access=AccessControl(keys))


def test_an_unreachable_server_raises_server_unavailable() -> None:
    async def scenario() -> None:
        with pytest.raises(ServerUnavailable, match="cannot be reached"):
            async with SpeechClient("ws://127.0.0.1:9"):
                pass

    asyncio.run(scenario())


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://x", "://"])
def test_a_url_of_another_scheme_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="is allowed"):
        SpeechClient(url)


@pytest.mark.parametrize("url", ["ws://", "http://:80", "ws://host:port", "ws://host:99999", "ws://[::1"])
def test_a_url_without_a_host_or_with_an_invalid_port_is_refused(url: str) -> None:
    with pytest.raises(BadRequest, match="got the URL"):
        SpeechClient(url)


@pytest.mark.parametrize(
    "sizes",
    [{"max_connections": 0}, {"max_connections": 2, "min_connections": 3}, {"min_connections": -1}],
)
def test_contradictory_pool_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(BadRequest, match="max_connections >= 1"):
        PoolPolicy(**sizes)
